"""Earlier versions of a document."""

from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from chat.pages.common import day_of, page_for_registered
from chat.pages.documents import document_project, show_document
from core.errors import Conflict, NotFound
from intake.accounts.identity import person_of
from memory import documents
from memory.addresses import document_path
from memory.models.documents import DocumentDay


@page_for_registered
def history(request: HttpRequest, date: str = "", day: DocumentDay = None) -> HttpResponse:
    """With `?version=`, its text and the changes since; a POST from there restores it."""
    day = day_of(date) if date else day
    user, project = person_of(request), document_project(request, day)
    document = documents.read(user=user, day=day, project=project)
    number = request.GET.get("version", "")
    context: dict[str, Any] = {"document": document, "history": document_path(day, "history", project=project)}
    if not number:
        versions = documents.list_versions(user=user, document_id=document.id)
        return show_document(request, "memory/history.html", day, versions=versions, **context)
    earlier = documents.read_version(user=user, document_id=document.id, version=_number(number))
    has_changed = False
    if request.method == "POST":
        expected = [request.POST.get("state", "")]
        try:
            documents.replace(
                user=user, day=day, project=project, content=earlier.content, expected=expected, now=timezone.now()
            )
        except Conflict:
            has_changed = True
        else:
            messages.success(request, _("The earlier version is back. What was here is among the earlier ones now."))
            return HttpResponseRedirect(document_path(day, project=project))
    status = HTTPStatus.CONFLICT if has_changed else HTTPStatus.OK
    context |= {"has_changed": has_changed, "earlier": earlier}
    return show_document(request, "memory/version.html", day, status=status, **context)


def _number(text: str) -> int:
    """An invalid number is a version that does not exist."""
    if not (text.isdecimal() and text.isascii() and len(text) <= 9):
        raise NotFound
    return int(text)
