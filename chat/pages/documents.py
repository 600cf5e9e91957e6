"""Pages of MEMORY.md, USER.md and the daily logs: read, append, move, delete, and edit.

An edit carries the state that was read, so that no other change is overwritten.
"""

from datetime import date
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from agent_tools.tools.context import lines_left_out, lines_of, without_left_out
from chat.pages.common import (
    AppendForm,
    DayForm,
    DocumentForm,
    day_of,
    logs_path,
    page_for_registered,
    project_of,
    show,
)
from core.errors import Conflict, InvalidInput, NotFound, TooLarge
from intake.accounts.identity import person_of
from intake.models import Conversation, User
from memory import documents
from memory.addresses import document_path
from memory.documents import DocumentOutput
from memory.left_out import digest_of, digests_left_out
from memory.models.documents import ABOUT_ME, DocumentDay


@page_for_registered
def logs(request: HttpRequest) -> HttpResponse:
    """With `date`, from the field for another day, redirects to that day's log. With `project`, the logs of that."""
    user, project = person_of(request), project_of(request)
    form = DayForm(request.GET if "date" in request.GET else None, initial={"date": timezone.localdate()})
    if form.is_valid():
        return HttpResponseRedirect(document_path(form.cleaned_data["date"], project=project))
    before = request.GET.get("before")
    found = documents.list_daily_logs(user=user, project=project, before=day_of(before) if before else None, limit=50)
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    lines = documents.first_lines(user=user, project=project, days=[each.date for each in found.logs])
    today = timezone.localdate()
    shown = [(each, lines.get(each.date, ""), document_path(each.date, project=project)) for each in found.logs]
    context: dict[str, Any] = {"found": found, "form": form, "append": AppendForm(), "logs": shown}
    return show_document(request, "memory/logs.html", today, status=status, **context)


@page_for_registered
def log(request: HttpRequest, date: str) -> HttpResponse:
    """Of any day: a POST appends to its log, or starts one."""
    day, project, user = day_of(date), project_of(request), person_of(request)
    form, status = AppendForm(), HTTPStatus.OK
    if request.method == "POST":
        form, status = AppendForm(request.POST), HTTPStatus.BAD_REQUEST
        if form.is_valid():
            try:
                text = form.cleaned_data["text"]
                documents.append(user=user, day=day, project=project, text=text, now=timezone.now())
            except (InvalidInput, TooLarge) as error:
                status = form.complain(error, "text")
            else:
                messages.success(request, _("Added."))
                return HttpResponseRedirect(document_path(day, project=project))
    context = {"document": _present(user, day, project), "paths": _paths(day, project, "move", "delete"), "form": form}
    return show_document(request, "memory/log.html", day, status=status, **context)


@page_for_registered
def delete_log(request: HttpRequest, date: str) -> HttpResponse:
    """Only in the state that the user saw: newer text must be read first."""
    day, project = day_of(date), project_of(request)
    document = documents.read(user=person_of(request), day=day, project=project)
    has_changed = False
    if request.method == "POST":
        try:
            state = request.POST.get("state", "")
            documents.delete(user=person_of(request), day=day, project=project, expected=[state])
        except Conflict:
            has_changed = True
        else:
            messages.success(request, _("Log deleted."))
            return HttpResponseRedirect(logs_path(project))
    status = HTTPStatus.CONFLICT if has_changed else HTTPStatus.OK
    context: dict[str, Any] = {"document": document, "has_changed": has_changed}
    return show_document(request, "memory/delete_log.html", day, status=status, **context)


@require_safe
@page_for_registered
def memory(request: HttpRequest) -> HttpResponse:
    """Who the person is and what always holds; of a project, what always holds there."""
    project = project_of(request)
    boxes = []
    for key, day in (("who", ABOUT_ME), ("holds", None)) if not project else (("holds", None),):
        document = _present(person_of(request), day, project)
        paths = _paths(day, project)
        boxes.append({"key": key, "document": document, "content": document.content if document else "", **paths})
    left_out = {} if project else _left_out(person_of(request))
    return show_document(
        request, "memory/document.html", None, boxes=boxes, **_memories_beside(request, None), **left_out
    )


@require_safe
@page_for_registered
def about(request: HttpRequest) -> HttpResponse:
    """The former address of the first box, which links of results and agents still have."""
    return HttpResponsePermanentRedirect(f"{reverse('memory:memory')}#who")


def _left_out(user: User) -> dict[str, Any]:
    """What no model gets, and what single chats do not get, each with the digest that brings it back."""
    chats = list(Conversation.objects.for_user(user).filter(expires_at=None).exclude(left_out=[]).newest_first())
    lists = [(None, digests_left_out(user)), *((chat, chat.left_out) for chat in chats)]
    every = {digest for _chat, digests in lists for digest in digests}
    found = lines_left_out(user, every) if every else {}
    shown = [
        (chat, digest, found[digest].text, found[digest].path)
        for chat, digests in lists
        for digest in sorted(digests)
        if digest in found
    ]
    gone = sum(len(digests) for _chat, digests in lists) - len(shown)
    return {"left_out": shown, "gone": gone}


@page_for_registered
def move_log(request: HttpRequest, date: str) -> HttpResponse:
    day, project, user = day_of(date), project_of(request), person_of(request)
    document = documents.read(user=user, day=day, project=project)
    form, status = DayForm(request.POST or None), HTTPStatus.OK
    if request.method == "POST":
        status = HTTPStatus.BAD_REQUEST
        if form.is_valid():
            to, state = form.cleaned_data["date"], request.POST.get("state", "")
            try:
                documents.move(user=user, day=day, project=project, to=to, expected=[state], now=timezone.now())
            except (InvalidInput, TooLarge) as error:
                status = form.complain(error, "date")
            except Conflict:
                status = HTTPStatus.CONFLICT
            else:
                messages.success(request, _("The log is moved."))
                return HttpResponseRedirect(document_path(to, project=project))
    context = {"document": document, "form": form, "has_changed": status == HTTPStatus.CONFLICT}
    return show_document(request, "memory/move_log.html", day, status=status, **context)


@page_for_registered
def edit(request: HttpRequest, date: str = "", day: DocumentDay = None) -> HttpResponse:
    """With `?line=`, one line alone."""
    day = day_of(date) if date else day
    user, project = person_of(request), document_project(request, day)
    present = _present(user, day, project)
    if digest := request.GET.get("line"):
        return _edit_line(request, day, present, digest)
    if request.method != "POST":
        return _editor(request, day, _form_of(present), present)
    form, status = DocumentForm(request.POST), HTTPStatus.BAD_REQUEST
    if form.is_valid():
        content, state = form.cleaned_data["content"], form.cleaned_data["state"]
        where: dict[str, Any] = {"user": user, "day": day, "project": project, "now": timezone.now()}
        try:
            if state:
                documents.replace(**where, content=content, expected=[state])
            else:
                documents.create(**where, content=content)
        except InvalidInput as error:
            status = form.complain(error)
        except Conflict:
            return _conflict(request, day, form)
        else:
            messages.success(request, _("Saved."))
            return HttpResponseRedirect(document_path(day, project=project))
    return _editor(request, day, form, present, status=status)


def _edit_line(request: HttpRequest, day: DocumentDay, present: DocumentOutput | None, digest: str) -> HttpResponse:
    """The line that is left out by this digest, wherever it stands; other lines may have changed meanwhile. If it has
    changed itself, nothing is saved: the whole document is shown to edit, with what was written.
    """
    user, project, text = person_of(request), document_project(request, day), present.content if present else ""
    path, form = document_path(day, project=project), DocumentForm(request.POST or None)
    found = [slice(start, end) for line, start, end, _headings in lines_of(text, path) if line.digest == digest]
    if form.is_valid():
        found = [each for each in found if digest_of(text[each]) == form.cleaned_data["state"]]
    if present is None or not found:
        mine, status = request.POST.get("content", ""), HTTPStatus.CONFLICT
        return _editor(request, day, _form_of(present), present, status=status, is_gone=True, mine=mine)
    if not form.is_bound:
        words = text[found[0]]
        form = _form_of(present, content=words, state=digest_of(words))
        return _editor(request, day, form, present, is_line=True)
    try:
        if form.is_valid():
            content = form.cleaned_data["content"].strip()
            for each in reversed(found):
                text = text[: each.start] + content + text[each.stop :]
            text = text if content else without_left_out(present.content, path, {digest})
            now, state = timezone.now(), present.state
            documents.replace(user=user, day=day, project=project, content=text, expected=[state], now=now)
            messages.success(request, _("Saved."))
            return HttpResponseRedirect(path)
    except InvalidInput as error:
        form.complain(error)
    except Conflict:
        return _edit_line(request, day, _present(user, day, project), digest)
    return _editor(request, day, form, present, status=HTTPStatus.BAD_REQUEST, is_line=True)


def _conflict(request: HttpRequest, day: DocumentDay, form: DocumentForm) -> HttpResponse:
    """Shows both texts. The next submission was written with the other text in view, and may replace it."""
    project = document_project(request, day)
    mine, present = form.cleaned_data["content"], _present(person_of(request), day, project)
    if present is not None and present.content == mine:
        return HttpResponseRedirect(document_path(day, project=project))
    form = _form_of(present, content=mine)
    return _editor(request, day, form, present, "memory/conflict.html", status=HTTPStatus.CONFLICT)


def _editor(
    request: HttpRequest,
    day: DocumentDay,
    form: DocumentForm,
    present: DocumentOutput | None,
    template: str = "memory/edit.html",
    **context: Any,
) -> HttpResponse:
    action = document_path(day, "edit", project=document_project(request, day))
    context |= {"form": form, "present": present, "action": action, **_memories_beside(request, day)}
    return show_document(request, template, day, **context)


def show_document(request: HttpRequest, template: str, day: DocumentDay, **context: Any) -> HttpResponse:
    """With what each page of a document says: which one it is, and the way back to it."""
    project, log_of = document_project(request, day), day if isinstance(day, date) else None
    context |= {"of_project": project, "day": log_of, "is_about": day == ABOUT_ME}
    context |= {"tab": "logs" if log_of else "memory", "back": document_path(day, project=project)}
    return show(request, template, **context)


def _form_of(present: DocumentOutput | None, **facts: str) -> DocumentForm:
    there = {"content": present.content, "state": present.state} if present else {}
    return DocumentForm(initial=there | facts)


def _present(user: User, day: DocumentDay, project: str) -> DocumentOutput | None:
    try:
        return documents.read(user=user, day=day, project=project)
    except NotFound:
        return None


def document_project(request: HttpRequest, day: DocumentDay) -> str:
    """The page about the user belongs to no project."""
    return "" if day == ABOUT_ME else project_of(request)


def _paths(day: DocumentDay, project: str, *doings: str) -> dict[str, str]:
    return {doing: document_path(day, doing, project=project) for doing in ("edit", "history", *doings)}


def _memories_beside(request: HttpRequest, day: DocumentDay) -> dict[str, Any]:
    """The projects with a MEMORY.md, and that of the page, each with its address."""
    if isinstance(day, date):
        return {}
    project = document_project(request, day)
    named = {*documents.projects_with_memory(user=person_of(request)), *filter(None, [project])}
    return {"memories": [(each, document_path(None, project=each)) for each in sorted(named, key=str.casefold)]}
