"""Earlier versions of a document: lists, compares and restores them."""

from http import HTTPStatus
from itertools import islice
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from core.errors import Conflict, NotFound
from intake.identity import person_of
from memory import document_versions, documents
from memory.models.documents import ABOUT_ME, DocumentDay
from memory.pages.common import day_of, document_path, page_for_people, show, tab_of

# A longer page of differences is not readable.
MAX_LINES = 2_000
LONGEST_NUMBER = 9


@page_for_people
def memory_history(request: HttpRequest) -> HttpResponse:
    return _history(request, None)


@page_for_people
def about_history(request: HttpRequest) -> HttpResponse:
    return _history(request, ABOUT_ME)


@page_for_people
def log_history(request: HttpRequest, date: str) -> HttpResponse:
    return _history(request, day_of(date))


def _history(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    """With `?version=`, its text and the changes since; a POST from there restores it."""
    user = person_of(request)
    document = documents.read(user=user, day=day)
    number = request.GET.get("version", "")
    context: dict[str, Any] = {
        "day": day,
        "document": document,
        "place": "memory",
        "tab": tab_of(day),
        "back": document_path(day),
        "history": document_path(day, "history"),
    }
    if not number:
        versions = document_versions.list_versions(user=user, document_id=document.id)
        return show(request, "memory/history.html", versions=versions, **context)
    earlier = document_versions.read(user=user, document_id=document.id, version=_number(number))
    has_changed = False
    if request.method == "POST":
        expected = [request.POST.get("state", "")]
        try:
            documents.replace(user=user, day=day, content=earlier.content, expected=expected, now=timezone.now())
        except Conflict:
            has_changed = True
        else:
            messages.success(request, _("The earlier version is back. What was here is among the earlier ones now."))
            return HttpResponseRedirect(document_path(day))
    lines = [*islice(document_versions.difference(earlier.content, document.content), MAX_LINES + 1)]
    context |= {"earlier": earlier, "lines": lines[:MAX_LINES], "is_cut": len(lines) > MAX_LINES}
    status = HTTPStatus.CONFLICT if has_changed else HTTPStatus.OK
    return show(request, "memory/version.html", status=status, has_changed=has_changed, **context)


def _number(text: str) -> int:
    """An invalid number is a version that does not exist."""
    if not (text.isdecimal() and text.isascii() and len(text) <= LONGEST_NUMBER):
        raise NotFound
    return int(text)
