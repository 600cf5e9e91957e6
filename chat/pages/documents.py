"""Pages of documents, their earlier versions, notes and files.

Pages of MEMORY.md, USER.md and the daily logs: read, append, move, delete, and edit.

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

from chat.pages.common import (
    AppendForm,
    DayForm,
    DocumentForm,
    day_of,
    logs_path,
    page_for_registered,
    project_of,
    show,
    tab_of,
)
from core.errors import Conflict, InvalidInput, NotFound, TooLarge
from core.ids import parse_id
from core.isolation.acting import Caller
from core.text import in_page_language, pg_text
from core.validation import page_of, position_in_address
from intake.accounts.identity import person_of
from intake.attachments import services
from intake.chats import deleting
from intake.models import Conversation, User
from memory import documents, quotas
from memory import documents as service
from memory.addresses import document_path, note_path
from memory.documents import DocumentOutput
from memory.models.documents import ABOUT_ME, DocumentDay

LOGS_PER_PAGE = 50


@page_for_registered
def logs(request: HttpRequest) -> HttpResponse:
    """With `date`, from the field for another day, redirects to that day's log. With `project`, the logs of that."""
    user, project = person_of(request), project_of(request)
    form = DayForm(request.GET if "date" in request.GET else None, initial={"date": timezone.localdate()})
    if form.is_valid():
        return HttpResponseRedirect(document_path(form.cleaned_data["date"], project=project))
    before = request.GET.get("before")
    found = documents.list_daily_logs(
        user=user, project=project, before=day_of(before) if before else None, limit=LOGS_PER_PAGE
    )
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    lines = documents.first_lines(user=user, project=project, days=[each.date for each in found.logs])
    today = timezone.localdate()
    context: dict[str, Any] = {"found": found, "form": form, "today": today, "append": AppendForm()}
    context |= {"of_project": project, "path_of_today": document_path(today, project=project)}
    context["logs"] = [
        (each, lines.get(each.date, ""), document_path(each.date, project=project)) for each in found.logs
    ]
    return show(request, "memory/logs.html", status=status, place="memory", tab="logs", **context)


@page_for_registered
def log(request: HttpRequest, date: str) -> HttpResponse:
    day = day_of(date)
    if request.method == "POST":
        return _append(request, day)
    return _log_page(request, day, AppendForm())


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
    context = {"document": document, "has_changed": has_changed, "place": "memory", "tab": "logs"}
    context |= {"of_project": project, "back": document_path(day, project=project)}
    return show(request, "memory/delete_log.html", status=status, **context)


@require_safe
@page_for_registered
def memory(request: HttpRequest) -> HttpResponse:
    """Who the person is and what always holds; of a project, what always holds there."""
    project = project_of(request)
    boxes = []
    for key, day in (("who", ABOUT_ME), ("holds", None)) if not project else (("holds", None),):
        document = _present(person_of(request), day, project)
        paths = _paths(day, project, "edit", "history")
        boxes.append({"key": key, "document": document, "content": document.content if document else "", **paths})
    context: dict[str, Any] = {"boxes": boxes, **_memories_beside(request, None)}
    return show(request, "memory/document.html", place="memory", tab="memory", **context)


@require_safe
@page_for_registered
def about(request: HttpRequest) -> HttpResponse:
    """The former address of the first box, which links of results and agents still have."""
    return HttpResponsePermanentRedirect(f"{reverse('memory:memory')}#who")


@page_for_registered
def move_log(request: HttpRequest, date: str) -> HttpResponse:
    day, project = day_of(date), project_of(request)
    user = person_of(request)
    document = documents.read(user=user, day=day, project=project)
    form = DayForm(request.POST or None)
    if request.method != "POST":
        return _mover(request, document, form)
    if not form.is_valid():
        return _mover(request, document, form, status=HTTPStatus.BAD_REQUEST)
    to = form.cleaned_data["date"]
    try:
        state = request.POST.get("state", "")
        documents.move(user=user, day=day, project=project, to=to, expected=[state], now=timezone.now())
    except InvalidInput as error:
        form.complain(error)
        return _mover(request, document, form, status=HTTPStatus.BAD_REQUEST)
    except TooLarge as error:
        form.add_error("date", in_page_language(error.detail))
        return _mover(request, document, form, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    except Conflict:
        return _mover(request, document, form, status=HTTPStatus.CONFLICT, has_changed=True)
    messages.success(request, _("The log is moved."))
    return HttpResponseRedirect(document_path(to, project=project))


@page_for_registered
def edit_memory(request: HttpRequest) -> HttpResponse:
    return _edit(request, None)


@page_for_registered
def edit_about(request: HttpRequest) -> HttpResponse:
    return _edit(request, ABOUT_ME)


@page_for_registered
def edit_log(request: HttpRequest, date: str) -> HttpResponse:
    return _edit(request, day_of(date))


def _append(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    form, project = AppendForm(request.POST), project_of(request)
    if not form.is_valid():
        return _log_page(request, day, form, status=HTTPStatus.BAD_REQUEST)
    try:
        text = form.cleaned_data["text"]
        documents.append(user=person_of(request), day=day, project=project, text=text, now=timezone.now())
    except InvalidInput as error:
        form.complain(error)
        return _log_page(request, day, form, status=HTTPStatus.BAD_REQUEST)
    except TooLarge as error:
        form.add_error("text", in_page_language(error.detail))
        return _log_page(request, day, form, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    messages.success(request, _("Added."))
    return HttpResponseRedirect(document_path(day, project=project))


def _log_page(request: HttpRequest, day: DocumentDay, form: AppendForm, *, status: int = HTTPStatus.OK) -> HttpResponse:
    """A day without a log can start one."""
    project = project_of(request)
    document = _present(person_of(request), day, project)
    context: dict[str, Any] = {"day": day, "document": document, "form": form, "place": "memory", "tab": "logs"}
    context |= {"of_project": project, "paths": _paths(day, project, "edit", "history", "move", "delete")}
    return show(request, "memory/log.html", status=status, **context)


def _mover(
    request: HttpRequest,
    document: DocumentOutput,
    form: DayForm,
    *,
    status: int = HTTPStatus.OK,
    has_changed: bool = False,
) -> HttpResponse:
    context = {"document": document, "form": form, "has_changed": has_changed, "place": "memory", "tab": "logs"}
    context |= {"of_project": document.project, "back": document_path(document.date, project=document.project)}
    return show(request, "memory/move_log.html", status=status, **context)


def _edit(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    project = _project_of(request, day)
    present = _present(person_of(request), day, project)
    if request.method != "POST":
        return _editor(request, day, _form_of(present), present)
    form = DocumentForm(request.POST)
    if not form.is_valid():
        return _editor(request, day, form, present, status=HTTPStatus.BAD_REQUEST)
    try:
        _write(person_of(request), day, project, form)
    except InvalidInput as error:
        form.complain(error)
        return _editor(request, day, form, present, status=HTTPStatus.BAD_REQUEST)
    except Conflict:
        return _conflict(request, day, form)
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(document_path(day, project=project))


def _write(user: User, day: DocumentDay, project: str, form: DocumentForm) -> None:
    content, state = form.cleaned_data["content"], form.cleaned_data["state"]
    now = timezone.now()
    if state:
        documents.replace(user=user, day=day, project=project, content=content, expected=[state], now=now)
    else:
        documents.create(user=user, day=day, project=project, content=content, now=now)


def _conflict(request: HttpRequest, day: DocumentDay, form: DocumentForm) -> HttpResponse:
    """Shows both texts. The next submission was written with the other text in view, and may replace it."""
    project = _project_of(request, day)
    mine, present = form.cleaned_data["content"], _present(person_of(request), day, project)
    if present is not None and present.content == mine:
        return HttpResponseRedirect(document_path(day, project=project))
    form = _form_of(present, content=mine)
    return _show_editor(request, "memory/conflict.html", day, form, present, status=HTTPStatus.CONFLICT)


def _editor(
    request: HttpRequest,
    day: DocumentDay,
    form: DocumentForm,
    present: DocumentOutput | None,
    *,
    status: int = HTTPStatus.OK,
) -> HttpResponse:
    return _show_editor(request, "memory/edit.html", day, form, present, status=status)


def _show_editor(
    request: HttpRequest,
    template: str,
    day: DocumentDay,
    form: DocumentForm,
    present: DocumentOutput | None,
    *,
    status: int,
) -> HttpResponse:
    log_of, project = day if isinstance(day, date) else None, _project_of(request, day)
    context: dict[str, Any] = {"form": form, "day": log_of, "is_about": day == ABOUT_ME, "present": present}
    context["action"] = document_path(day, "edit", project=project)
    context |= _memories_beside(request, day)
    back = document_path(day, project=project)
    return show(request, template, status=status, place="memory", tab=tab_of(day), back=back, **context)


def _form_of(present: DocumentOutput | None, *, content: str | None = None) -> DocumentForm:
    there = present.content if present else ""
    return DocumentForm(
        initial={"content": there if content is None else content, "state": present.state if present else ""}
    )


def _present(user: User, day: DocumentDay, project: str) -> DocumentOutput | None:
    try:
        return documents.read(user=user, day=day, project=project)
    except NotFound:
        return None


def _project_of(request: HttpRequest, day: DocumentDay) -> str:
    """The page about the user belongs to no project."""
    return "" if day == ABOUT_ME else project_of(request)


def _paths(day: DocumentDay, project: str, *doings: str) -> dict[str, str]:
    return {doing: document_path(day, doing, project=project) for doing in doings}


def _memories_beside(request: HttpRequest, day: DocumentDay) -> dict[str, Any]:
    """The project of the page, and the projects with a MEMORY.md, each with its address."""
    project = _project_of(request, day)
    if isinstance(day, date):
        return {"of_project": project}
    named = {*documents.projects_with_memory(user=person_of(request)), *filter(None, [project])}
    beside = [(each, document_path(None, project=each)) for each in sorted(named, key=str.casefold)]
    return {"of_project": project, "memories": beside}


# --- Earlier versions of a document: lists, compares and restores them ---

LONGEST_NUMBER = 9


@page_for_registered
def memory_history(request: HttpRequest) -> HttpResponse:
    return _history(request, None)


@page_for_registered
def about_history(request: HttpRequest) -> HttpResponse:
    return _history(request, ABOUT_ME)


@page_for_registered
def log_history(request: HttpRequest, date: str) -> HttpResponse:
    return _history(request, day_of(date))


def _history(request: HttpRequest, day: DocumentDay) -> HttpResponse:
    """With `?version=`, its text and the changes since; a POST from there restores it."""
    user, project = person_of(request), _project_of(request, day)
    document = documents.read(user=user, day=day, project=project)
    number = request.GET.get("version", "")
    context: dict[str, Any] = {
        "day": day,
        "is_about": day == ABOUT_ME,
        "document": document,
        "place": "memory",
        "tab": tab_of(day),
        "back": document_path(day, project=project),
        "of_project": project,
        "history": document_path(day, "history", project=project),
    }
    if not number:
        versions = documents.list_versions(user=user, document_id=document.id)
        return show(request, "memory/history.html", versions=versions, **context)
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
    return show(request, "memory/version.html", status=status, has_changed=has_changed, earlier=earlier, **context)


def _number(text: str) -> int:
    """An invalid number is a version that does not exist."""
    if not (text.isdecimal() and text.isascii() and len(text) <= LONGEST_NUMBER):
        raise NotFound
    return int(text)


# --- Pages of imported notes: list, read and delete ---


@require_safe
@page_for_registered
def notes(request: HttpRequest) -> HttpResponse:
    """The former address of imported notes, which stand among what is kept."""
    return HttpResponsePermanentRedirect(reverse("memory:records", query={"type": "note"}))


@page_for_registered
def note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = service.read_note(user=person_of(request), note_id=parse_id(note_id))
    return show(request, "memory/note.html", note=found, place="memory", tab="records")


@page_for_registered
def delete_note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = service.read_note(user=person_of(request), note_id=parse_id(note_id))
    if request.method != "POST":
        back = note_path(found.pk)
        return show(request, "memory/delete_note.html", note=found, back=back, place="memory", tab="records")
    service.delete_note(user=person_of(request), note_id=found.pk)
    messages.success(request, _("Note deleted."))
    return HttpResponseRedirect(reverse("memory:records"))


# --- The files that were attached to messages: listed with where each was said, found by name, deleted ---


FILES_PER_PAGE = 50
LONGEST_NAME = 200


@page_for_registered
def files(request: HttpRequest) -> HttpResponse:
    """`?q=`: those whose name contains each of these words."""
    user, words = person_of(request), pg_text(request.GET.get("q", ""))[:LONGEST_NAME].strip()
    after = position_in_address(request.GET.get("after"))
    found = page_of(services.listed(user=user, words=words), by="created_at", after=after, size=FILES_PER_PAGE)
    places = {file.conversation_id for file in found.rows if file.conversation_id is not None}
    titles = dict(Conversation.objects.for_user(user).filter(pk__in=places).values_list("pk", "title"))
    shown: dict[str, Any] = {
        "rows": [(file, titles[file.conversation_id]) for file in found.rows if file.conversation_id in titles],
        "more": found.more,
        "words": words,
        "size": quotas.files(user.pk).file_bytes,
    }
    return show(request, "memory/files.html", **shown, place="memory", tab="files")


@page_for_registered
def delete_file(request: HttpRequest, file_id: str) -> HttpResponse:
    user = person_of(request)
    caller = Caller(user_id=user.pk)
    file = services.get(caller=caller, attachment_id=file_id)
    if not services.listed(user=user).filter(pk=file.pk).exists():
        raise NotFound
    if request.method != "POST":
        return show(request, "memory/delete_file.html", file=file, place="memory", tab="files")
    deleting.delete_attachment(caller=caller, attachment_id=file_id)
    messages.success(request, _("File deleted."))
    return HttpResponseRedirect(reverse("memory:files"))
