"""Shared code of the memory pages: access, days in addresses, and links to results."""

from datetime import date
from functools import wraps
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from core.errors import NotFound
from core.validation import parse_day
from intake.identity import is_registered
from intake.links import conversation_path
from intake.views.changing import P, View, personal_form
from intake.views.pages import sidebar_of
from memory.documents import YEARS
from memory.models import MemoryDocument
from memory.models.documents import ABOUT_ME, AboutMe, DocumentDay
from memory.search.sources import Reference


def page_for_people(view: View[P]) -> View[P]:
    """For registered users, acting as them.

    A visitor sees what the page offers and how to register, and gets back the text they sent.
    """

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not is_registered(request):
            return _tell_visitor(request)
        return view(request, *args, **kwargs)

    return personal_form(wrapper)


def show(request: HttpRequest, template: str, *, status: int = HTTPStatus.OK, **context: Any) -> HttpResponse:
    return render(request, template, {**sidebar_of(request), **context}, status=status)


def _tell_visitor(request: HttpRequest) -> HttpResponse:
    """A user whose session ended while they were writing is a visitor, too."""
    is_sending = request.method == "POST"
    unsaved = request.POST.get("content") or request.POST.get("text") if is_sending else None
    # A page that only accepts POST cannot be reopened by its address alone.
    back = request.get_full_path()
    status = HTTPStatus.UNAUTHORIZED if is_sending else HTTPStatus.OK
    return show(request, "memory/visitor.html", status=status, unsaved=unsaved, back=back, place=_place(request))


def _place(request: HttpRequest) -> str:
    first = request.path.split("/")[1]
    return first if first in ("search", "import") else "memory"


def day_of(text: str) -> date:
    """Raises `NotFound` for an invalid day, and for one that can have no log."""
    try:
        day = parse_day(text)
    except ValueError:
        raise NotFound from None
    if day.year not in YEARS:
        raise NotFound
    return day


def path_to(reference: Reference, *, words: str = "") -> str:
    """The address of the text. `words`: some of a message's words, at which a long one opens."""
    if reference.conversation_id is not None:
        return conversation_path(reference.conversation_id, turn_number=reference.turn_number, words=words)
    if reference.record_id is not None:
        return record_path(reference.record_id)
    if reference.is_note and reference.document_id is not None:
        return note_path(reference.document_id)
    if reference.document == MemoryDocument.Kind.ABOUT.label:
        return document_path(ABOUT_ME)
    return document_path(reference.day if reference.kind == "daily_log" else None)


def document_path(day: DocumentDay, doing: str = "") -> str:
    """The address of a document, or of an action on it: `edit`, `history`; for a log also `move` and `delete`."""
    name = f"{doing}_" if doing else ""
    match day:
        case None:
            return reverse(f"memory:{name}memory")
        case AboutMe():
            return reverse(f"memory:{name}about")
    return reverse(f"memory:{name}log", args=[day.isoformat()])


def tab_of(day: DocumentDay) -> str:
    return "logs" if isinstance(day, date) else "memory" if day is None else "about"


def note_path(note_id: UUID) -> str:
    return reverse("memory:note", args=[note_id])


def record_path(record_id: UUID) -> str:
    return reverse("memory:record", args=[record_id])
