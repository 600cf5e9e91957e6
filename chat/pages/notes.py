"""Pages of imported notes."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from chat.pages.common import (
    page_for_registered,
    show,
)
from core.ids import parse_id
from intake.accounts.identity import person_of
from memory import documents as service
from memory.addresses import note_path


@require_safe
@page_for_registered
def notes(request: HttpRequest) -> HttpResponse:
    """The former address of imported notes, which stand among what is kept."""
    return HttpResponsePermanentRedirect(reverse("memory:records", query={"type": "note"}))


@page_for_registered
def note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = service.read_note(user=person_of(request), note_id=parse_id(note_id))
    return show(request, "memory/note.html", note=found, tab="records")


@page_for_registered
def delete_note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = service.read_note(user=person_of(request), note_id=parse_id(note_id))
    if request.method != "POST":
        back = note_path(found.pk)
        return show(request, "memory/delete_note.html", note=found, back=back, tab="records")
    service.delete_note(user=person_of(request), note_id=found.pk)
    messages.success(request, _("Note deleted."))
    return redirect("memory:records")
