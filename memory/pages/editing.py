"""MEMORY.md and a day's log, written whole: with the state that was read, so that nobody's words are written over."""

from http import HTTPStatus

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone

from core.errors import Conflict, InvalidInput, NotFound
from intake.identity import person_of
from intake.models import User
from memory import documents
from memory.documents import Document
from memory.pages.days import Day, day_of
from memory.pages.forms import DocumentForm
from memory.pages.links import document_path, editing_path
from memory.pages.people import page_for_people, show


@page_for_people
def memory(request: HttpRequest) -> HttpResponse:
    return _edit(request, None)


@page_for_people
def log(request: HttpRequest, date: str) -> HttpResponse:
    return _edit(request, day_of(date))


def _edit(request: HttpRequest, day: Day) -> HttpResponse:
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
    messages.success(request, "Saved.")
    return HttpResponseRedirect(document_path(day))


def _write(user: User, day: Day, form: DocumentForm) -> None:
    content, state = form.cleaned_data["content"], form.cleaned_data["state"]
    now = timezone.now()
    if state:
        documents.replace(user=user, day=day, content=content, expected=[state], now=now)
    else:
        documents.create(user=user, day=day, content=content, now=now)


def _conflict(request: HttpRequest, day: Day, form: DocumentForm) -> HttpResponse:
    """Both stand side by side. What is sent from there was written with the other in view, and may replace it."""
    mine, present = form.cleaned_data["content"], _present(person_of(request), day)
    if present is not None and present.content == mine:
        return HttpResponseRedirect(document_path(day))
    form = _form_of(present, content=mine)
    return _show(request, "memory/conflict.html", day, form, present, status=HTTPStatus.CONFLICT)


def _editor(
    request: HttpRequest, day: Day, form: DocumentForm, present: Document | None, *, status: int = HTTPStatus.OK
) -> HttpResponse:
    return _show(request, "memory/edit.html", day, form, present, status=status)


def _show(
    request: HttpRequest, template: str, day: Day, form: DocumentForm, present: Document | None, *, status: int
) -> HttpResponse:
    context = {"form": form, "day": day, "present": present, "action": editing_path(day)}
    return show(request, template, status=status, place="memory", tab="logs" if day else "memory", **context)


def _form_of(present: Document | None, *, content: str | None = None) -> DocumentForm:
    there = present.content if present else ""
    return DocumentForm(
        initial={"content": there if content is None else content, "state": present.state if present else ""}
    )


def _present(user: User, day: Day) -> Document | None:
    try:
        return documents.read(user=user, day=day)
    except NotFound:
        return None
