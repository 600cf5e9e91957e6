"""Daily logs: which there are, one to read and to add to, and the way to be rid of it."""

from http import HTTPStatus

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone

from core.errors import Conflict, InvalidInput, NotFound, TooLarge
from intake.identity import person_of
from memory import documents
from memory.documents import Document
from memory.pages.days import Day, day_of
from memory.pages.forms import AppendForm, DayForm
from memory.pages.links import document_path
from memory.pages.people import page_for_people, show

LOGS_PER_PAGE = 50


@page_for_people
def logs(request: HttpRequest) -> HttpResponse:
    """With `date`, which the field for another day sends, to that day's log."""
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
    return _page(request, day, AppendForm())


@page_for_people
def delete_log(request: HttpRequest, date: str) -> HttpResponse:
    """Only as it was when it was looked at: what was added meanwhile is read first."""
    day = day_of(date)
    document = documents.read(user=person_of(request), day=day)
    has_changed = False
    if request.method == "POST":
        try:
            documents.delete(user=person_of(request), day=day, expected=[request.POST.get("state", "")])
        except Conflict:
            has_changed = True
        else:
            messages.success(request, "The log is deleted.")
            return HttpResponseRedirect(reverse("memory:logs"))
    status = HTTPStatus.CONFLICT if has_changed else HTTPStatus.OK
    context = {"document": document, "has_changed": has_changed, "place": "memory", "tab": "logs"}
    return show(request, "memory/delete_log.html", status=status, **context)


def _append(request: HttpRequest, day: Day) -> HttpResponse:
    form = AppendForm(request.POST)
    if not form.is_valid():
        return _page(request, day, form, status=HTTPStatus.BAD_REQUEST)
    try:
        documents.append(user=person_of(request), day=day, text=form.cleaned_data["text"], now=timezone.now())
    except InvalidInput as error:
        form.complain(error)
        return _page(request, day, form, status=HTTPStatus.BAD_REQUEST)
    except TooLarge as error:
        form.add_error("text", error.detail)
        return _page(request, day, form, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    messages.success(request, "Added.")
    return HttpResponseRedirect(document_path(day))


def _page(request: HttpRequest, day: Day, form: AppendForm, *, status: int = HTTPStatus.OK) -> HttpResponse:
    """A day without a log is one that can be begun."""
    document: Document | None
    try:
        document = documents.read(user=person_of(request), day=day)
    except NotFound:
        document = None
    context = {"day": day, "document": document, "form": form, "place": "memory", "tab": "logs"}
    return show(request, "memory/log.html", status=status, **context)
