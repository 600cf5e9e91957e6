"""Pages of MEMORY.md, USER.md and the daily logs: read, append, move, delete, edit, and their earlier versions.

An edit carries the state that was read, so that no other change is overwritten.
"""

from datetime import date
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
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
    done,
    page_for_registered,
    project_of,
    show,
)
from core.errors import Conflict, NotFound
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
        return redirect(document_path(form.cleaned_data["date"], project=project))
    before = request.GET.get("before")
    found = documents.list_daily_logs(user=user, project=project, before=day_of(before) if before else None, limit=50)
    lines = documents.first_lines(user=user, project=project, days=[each.date for each in found.logs])
    today = timezone.localdate()
    shown = [(each, lines.get(each.date, ""), document_path(each.date, project=project)) for each in found.logs]
    context: dict[str, Any] = {"found": found, "form": form, "append": AppendForm(), "logs": shown}
    return _show(request, "memory/logs.html", today, **context)


@page_for_registered
def log(request: HttpRequest, date: str) -> HttpResponse:
    """Of any day: a POST appends to its log, or starts one."""
    day, project, user = day_of(date), project_of(request), person_of(request)
    form = AppendForm(request.POST or None)
    if form.is_valid():
        with form.complaining("text"):
            documents.append(user=user, day=day, project=project, now=timezone.now(), **form.cleaned_data)
            return done(request, _("Added."), document_path(day, project=project))
    document, paths = _present(user, day, project), _paths(day, project, "move", "delete")
    return _show(request, "memory/log.html", day, document=document, paths=paths, form=form)


@page_for_registered
def delete_log(request: HttpRequest, date: str) -> HttpResponse:
    """Only in the state that the user saw: newer text must be read first."""
    user, day, project = person_of(request), day_of(date), project_of(request)
    document, status = documents.read(user=user, day=day, project=project), None
    if request.method == "POST":
        try:
            documents.delete(user=user, day=day, project=project, expected=[request.POST.get("state", "")])
            to = reverse("memory:logs", query={"project": project} if project else None)
            return done(request, _("Log deleted."), to)
        except Conflict:
            status = HTTPStatus.CONFLICT
    return _show(request, "memory/delete_log.html", day, status=status, document=document)


@require_safe
@page_for_registered
def memory(request: HttpRequest) -> HttpResponse:
    """Who the person is and what always holds; of a project, what always holds there."""
    project = project_of(request)
    boxes = []
    for key, day in (("who", ABOUT_ME), ("holds", None)) if not project else (("holds", None),):
        document = _present(person_of(request), day, project)
        boxes.append({"key": key, "document": document, **_paths(day, project)})
    left_out = {} if project else _left_out(person_of(request))
    return _show(request, "memory/document.html", None, boxes=boxes, **_memories_beside(request, None), **left_out)


@require_safe
@page_for_registered
def about(request: HttpRequest) -> HttpResponse:
    """The former address of the first box, which links of results and agents still have."""
    return redirect(f"{reverse('memory:memory')}#who", permanent=True)


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
    document, form, status = documents.read(user=user, day=day, project=project), DayForm(request.POST or None), None
    if form.is_valid():
        to, state = form.cleaned_data["date"], request.POST.get("state", "")
        try:
            with form.complaining("date"):
                documents.move(user=user, day=day, project=project, to=to, expected=[state], now=timezone.now())
                return done(request, _("The log is moved."), document_path(to, project=project))
        except Conflict:
            status = HTTPStatus.CONFLICT
    return _show(request, "memory/move_log.html", day, status=status, document=document, form=form)


@page_for_registered
def edit(request: HttpRequest, date: str = "", day: DocumentDay = None) -> HttpResponse:
    """With `?line=`, one line alone."""
    day = day_of(date) if date else day
    user, project = person_of(request), document_project(request, day)
    present = _present(user, day, project)
    if digest := request.GET.get("line"):
        return _edit_line(request, day, present, digest)
    form = DocumentForm(request.POST) if request.method == "POST" else _form_of(present)
    if form.is_valid():
        content, state = form.cleaned_data["content"], form.cleaned_data["state"]
        where: dict[str, Any] = {"user": user, "day": day, "project": project, "now": timezone.now()}
        try:
            with form.complaining():
                if state:
                    documents.replace(**where, content=content, expected=[state])
                else:
                    documents.create(**where, content=content)
                return done(request, _("Saved."), document_path(day, project=project))
        except Conflict:
            return _conflict(request, day, content)
    return _editor(request, day, form, present)


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
    if form.is_valid():
        content = form.cleaned_data["content"].strip()
        for each in reversed(found):
            text = text[: each.start] + content + text[each.stop :]
        text = text if content else without_left_out(present.content, path, {digest})
        now, state = timezone.now(), present.state
        try:
            with form.complaining():
                documents.replace(user=user, day=day, project=project, content=text, expected=[state], now=now)
                return done(request, _("Saved."), path)
        except Conflict:
            return _edit_line(request, day, _present(user, day, project), digest)
    return _editor(request, day, form, present, is_line=True)


def _conflict(request: HttpRequest, day: DocumentDay, mine: str) -> HttpResponse:
    """Shows both texts. The next submission was written with the other text in view, and may replace it."""
    project = document_project(request, day)
    present = _present(person_of(request), day, project)
    if present is not None and present.content == mine:
        return redirect(document_path(day, project=project))
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
    return _show(request, template, day, **context)


def _show(
    request: HttpRequest, template: str, day: DocumentDay, *, status: int | None = None, **context: Any
) -> HttpResponse:
    """With what each page of a document says: which one it is, whether it has changed, and the way back to it."""
    project, log_of = document_project(request, day), day if isinstance(day, date) else None
    context |= {"of_project": project, "day": log_of, "is_about": day == ABOUT_ME}
    context |= {"tab": "logs" if log_of else "memory", "back": document_path(day, project=project)}
    return show(request, template, status=status, has_changed=status == HTTPStatus.CONFLICT, **context)


def _form_of(present: DocumentOutput | None, **facts: str) -> DocumentForm:
    there = {"content": present.content, "state": present.state} if present else {}
    return DocumentForm(initial=there | facts)


@page_for_registered
def history(request: HttpRequest, date: str = "", day: DocumentDay = None) -> HttpResponse:
    """With `?version=`, its text and the changes since; a POST from there restores it."""
    day = day_of(date) if date else day
    user, project = person_of(request), document_project(request, day)
    document, number, status = documents.read(user=user, day=day, project=project), request.GET.get("version"), None
    context: dict[str, Any] = {"document": document, "history": document_path(day, "history", project=project)}
    if not number:
        context["versions"] = documents.list_versions(user=user, document_id=document.id)
        return _show(request, "memory/history.html", day, **context)
    if not (number.isdecimal() and number.isascii() and len(number) <= 9):
        raise NotFound
    earlier = documents.read_version(user=user, document_id=document.id, version=int(number))
    if request.method == "POST":
        where: dict[str, Any] = {"user": user, "day": day, "project": project, "now": timezone.now()}
        try:
            documents.replace(**where, content=earlier.content, expected=[request.POST.get("state", "")])
            said = _("The earlier version is back. What was here is among the earlier ones now.")
            return done(request, said, document_path(day, project=project))
        except Conflict:
            status = HTTPStatus.CONFLICT
    return _show(request, "memory/version.html", day, status=status, earlier=earlier, **context)


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
