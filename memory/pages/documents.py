"""Pages of MEMORY.md, USER.md and the daily logs: read, append, move, delete, and edit.

An edit carries the state that was read, so that no other change is overwritten.
"""

from datetime import date
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from core.errors import Conflict, InvalidInput, NotFound, TooLarge
from intake.identity import person_of
from intake.models import User
from intake.sentences import in_page_language
from memory import documents
from memory.documents import Document
from memory.models.documents import ABOUT_ME, DocumentDay
from memory.pages.common import day_of, document_path, page_for_people, show, tab_of
from memory.pages.forms import AppendForm, DayForm, DocumentForm

LOGS_PER_PAGE = 50


@page_for_people
def logs(request: HttpRequest) -> HttpResponse:
    """With `date`, from the field for another day, redirects to that day's log."""
    form = DayForm(request.GET if "date" in request.GET else None, initial={"date": timezone.localdate()})
    if form.is_valid():
        return HttpResponseRedirect(document_path(form.cleaned_data["date"]))
    before = request.GET.get("before")
    found = documents.list_daily_logs(
        user=person_of(request), before=day_of(before) if before else None, limit=LOGS_PER_PAGE
    )
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    context = {"found": found, "form": form, "today": timezone.localdate(), "append": AppendForm()}
    return show(request, "memory/logs.html", status=status, place="memory", tab="logs", **context)


@page_for_people
def log(request: HttpRequest, date: str) -> HttpResponse:
    day = day_of(date)
    if request.method == "POST":
        return _append(request, day)
    return _log_page(request, day, AppendForm())


@page_for_people
def delete_log(request: HttpRequest, date: str) -> HttpResponse:
    """Only in the state that the user saw: newer text must be read first."""
    day = day_of(date)
    document = documents.read(user=person_of(request), day=day)
    has_changed = False
    if request.method == "POST":
        try:
            documents.delete(user=person_of(request), day=day, expected=[request.POST.get("state", "")])
        except Conflict:
            has_changed = True
        else:
            messages.success(request, _("The log is deleted."))
            return HttpResponseRedirect(reverse("memory:logs"))
    status = HTTPStatus.CONFLICT if has_changed else HTTPStatus.OK
    context = {"document": document, "has_changed": has_changed, "place": "memory", "tab": "logs"}
    return show(request, "memory/delete_log.html", status=status, **context)


@require_safe
@page_for_people
def memory(request: HttpRequest) -> HttpResponse:
    return _read(request, None)


@require_safe
@page_for_people
def about(request: HttpRequest) -> HttpResponse:
    return _read(request, ABOUT_ME)


@page_for_people
def move_log(request: HttpRequest, date: str) -> HttpResponse:
    day = day_of(date)
    user = person_of(request)
    document = documents.read(user=user, day=day)
    form = DayForm(request.POST or None)
    if request.method != "POST":
        return _mover(request, document, form)
    if not form.is_valid():
        return _mover(request, document, form, status=HTTPStatus.BAD_REQUEST)
    to = form.cleaned_data["date"]
    try:
        documents.move(user=user, day=day, to=to, expected=[request.POST.get("state", "")], now=timezone.now())
    except InvalidInput as error:
        form.complain(error)
        return _mover(request, document, form, status=HTTPStatus.BAD_REQUEST)
    except TooLarge as error:
        form.add_error("date", in_page_language(error.detail))
        return _mover(request, document, form, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except Conflict:
        return _mover(request, document, form, status=HTTPStatus.CONFLICT, has_changed=True)
    messages.success(request, _("The log is moved."))
    return HttpResponseRedirect(document_path(to))


@page_for_people
def edit_memory(request: HttpRequest) -> HttpResponse:
    return _edit(request, None)


@page_for_people
def edit_about(request: HttpRequest) -> HttpResponse:
    return _edit(request, ABOUT_ME)


@page_for_people
def edit_log(request: HttpRequest, date: str) -> HttpResponse:
    return _edit(request, day_of(date))


def _append(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    form = AppendForm(request.POST)
    if not form.is_valid():
        return _log_page(request, day, form, status=HTTPStatus.BAD_REQUEST)
    try:
        documents.append(user=person_of(request), day=day, text=form.cleaned_data["text"], now=timezone.now())
    except InvalidInput as error:
        form.complain(error)
        return _log_page(request, day, form, status=HTTPStatus.BAD_REQUEST)
    except TooLarge as error:
        form.add_error("text", in_page_language(error.detail))
        return _log_page(request, day, form, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    messages.success(request, _("Added."))
    return HttpResponseRedirect(document_path(day))


def _log_page(request: HttpRequest, day: DocumentDay, form: AppendForm, *, status: int = HTTPStatus.OK) -> HttpResponse:
    """A day without a log can start one."""
    document = _present(person_of(request), day)
    context = {"day": day, "document": document, "form": form, "place": "memory", "tab": "logs"}
    return show(request, "memory/log.html", status=status, **context)


def _read(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    """A document that is still empty starts here."""
    document = _present(person_of(request), day)
    if document is None or not document.content:
        return _editor(request, day, _form_of(document), document)
    context: dict[str, Any] = {
        "document": document,
        "edit": document_path(day, "edit"),
        "history": document_path(day, "history"),
    }
    return show(request, "memory/document.html", place="memory", tab=tab_of(day), **context)


def _mover(
    request: HttpRequest, document: Document, form: DayForm, *, status: int = HTTPStatus.OK, has_changed: bool = False
) -> HttpResponse:
    context = {"document": document, "form": form, "has_changed": has_changed, "place": "memory", "tab": "logs"}
    return show(request, "memory/move_log.html", status=status, **context)


def _edit(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    present = _present(person_of(request), day)
    if request.method != "POST":
        return _editor(request, day, _form_of(present), present)
    form = DocumentForm(request.POST)
    if not form.is_valid():
        return _editor(request, day, form, present, status=HTTPStatus.BAD_REQUEST)
    try:
        _write(person_of(request), day, form)
    except InvalidInput as error:
        form.complain(error)
        return _editor(request, day, form, present, status=HTTPStatus.BAD_REQUEST)
    except Conflict:
        return _conflict(request, day, form)
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(document_path(day))


def _write(user: User, day: DocumentDay, form: DocumentForm) -> None:
    content, state = form.cleaned_data["content"], form.cleaned_data["state"]
    now = timezone.now()
    if state:
        documents.replace(user=user, day=day, content=content, expected=[state], now=now)
    else:
        documents.create(user=user, day=day, content=content, now=now)


def _conflict(request: HttpRequest, day: DocumentDay, form: DocumentForm) -> HttpResponse:
    """Shows both texts. The next submission was written with the other text in view, and may replace it."""
    mine, present = form.cleaned_data["content"], _present(person_of(request), day)
    if present is not None and present.content == mine:
        return HttpResponseRedirect(document_path(day))
    form = _form_of(present, content=mine)
    return _show_editor(request, "memory/conflict.html", day, form, present, status=HTTPStatus.CONFLICT)


def _editor(
    request: HttpRequest, day: DocumentDay, form: DocumentForm, present: Document | None, *, status: int = HTTPStatus.OK
) -> HttpResponse:
    return _show_editor(request, "memory/edit.html", day, form, present, status=status)


def _show_editor(
    request: HttpRequest, template: str, day: DocumentDay, form: DocumentForm, present: Document | None, *, status: int
) -> HttpResponse:
    log_of = day if isinstance(day, date) else None
    context = {"form": form, "day": log_of, "present": present, "action": document_path(day, "edit")}
    back = document_path(day) if present and present.content else None
    return show(request, template, status=status, place="memory", tab=tab_of(day), back=back, **context)


def _form_of(present: Document | None, *, content: str | None = None) -> DocumentForm:
    there = present.content if present else ""
    return DocumentForm(
        initial={"content": there if content is None else content, "state": present.state if present else ""}
    )


def _present(user: User, day: DocumentDay) -> Document | None:
    try:
        return documents.read(user=user, day=day)
    except NotFound:
        return None
