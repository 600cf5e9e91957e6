"""Pages of imported notes: list, read and delete."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _

from core.ids import parse_id
from core.pagination import position_in_address
from intake.identity import person_of
from memory import notes as service
from memory.pages.common import note_path, page_for_people, show


@page_for_people
def notes(request: HttpRequest) -> HttpResponse:
    found = service.list_notes(user=person_of(request), after=position_in_address(request.GET.get("after")))
    return show(request, "memory/notes.html", found=found, place="memory", tab="notes")


@page_for_people
def note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = service.read(user=person_of(request), note_id=parse_id(note_id))
    return show(request, "memory/note.html", note=found, place="memory", tab="notes")


@page_for_people
def delete_note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = service.read(user=person_of(request), note_id=parse_id(note_id))
    if request.method != "POST":
        back = note_path(found.pk)
        return show(request, "memory/delete_note.html", note=found, back=back, place="memory", tab="notes")
    service.delete(user=person_of(request), note_id=found.pk)
    messages.success(request, _("The note is deleted."))
    return HttpResponseRedirect(reverse("memory:notes"))
