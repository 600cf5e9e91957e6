"""Pages of memory records: create, list by type, project and tag, read, change and delete."""

from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from core.errors import Conflict, InvalidInput
from core.ids import parse_id
from core.pagination import position_in_address
from intake.identity import person_of
from memory import records as service
from memory.pages.common import page_for_people, record_path, show
from memory.pages.forms import RecordFilter, RecordForm, RewriteForm

RECORDS_PER_PAGE = 30


@page_for_people
def records(request: HttpRequest) -> HttpResponse:
    form = RecordForm(request.POST or None)
    if request.method != "POST":
        return _list(request, form)
    record = _note(request, form) if form.is_valid() else None
    if record is None:
        return _list(request, form, status=HTTPStatus.BAD_REQUEST)
    messages.success(request, _("Noted."))
    return HttpResponseRedirect(reverse("memory:records"))


@page_for_people
def record(request: HttpRequest, record_id: str) -> HttpResponse:
    found = service.read(user=person_of(request), record_id=parse_id(record_id))
    return show(request, "memory/record.html", record=found, place="memory", tab="records")


@page_for_people
def edit_record(request: HttpRequest, record_id: str) -> HttpResponse:
    """If another change came first, the user sees it before replacing it."""
    found = service.read(user=person_of(request), record_id=parse_id(record_id))
    if request.method != "POST":
        return _editor(request, found, RewriteForm.of(found))
    form = RewriteForm(request.POST)
    if not form.is_valid():
        return _editor(request, found, form, status=HTTPStatus.BAD_REQUEST)
    held = {name: value for name, value in form.cleaned_data.items() if name != "state"}
    try:
        service.rewrite(
            user=person_of(request),
            record_id=found.id,
            expected=[form.cleaned_data["state"]],
            now=timezone.now(),
            **held,
        )
    except InvalidInput as error:
        form.complain(error)
        return _editor(request, found, form, status=HTTPStatus.BAD_REQUEST)
    except Conflict:
        mine = RewriteForm.of(found, **{**held, "tags": ", ".join(held["tags"])})
        return _editor(request, found, mine, has_changed=True, status=HTTPStatus.CONFLICT)
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(record_path(found.id))


@page_for_people
def delete_record(request: HttpRequest, record_id: str) -> HttpResponse:
    found = service.read(user=person_of(request), record_id=parse_id(record_id))
    if request.method != "POST":
        return show(
            request,
            "memory/delete_record.html",
            record=found,
            back=record_path(found.id),
            place="memory",
            tab="records",
        )
    service.delete(user=person_of(request), record_id=found.id)
    messages.success(request, _("The record is deleted."))
    return HttpResponseRedirect(reverse("memory:records"))


def _note(request: HttpRequest, form: RecordForm) -> service.Record | None:
    """None, with the errors on the form, for an invalid record."""
    try:
        return service.create(user=person_of(request), now=timezone.now(), **form.cleaned_data)
    except InvalidInput as error:
        form.complain(error)
        return None


def _editor(
    request: HttpRequest, found: service.Record, form: RewriteForm, *, status: int = HTTPStatus.OK, **context: Any
) -> HttpResponse:
    context |= {"record": found, "form": form, "back": record_path(found.id)}
    return show(request, "memory/edit_record.html", status=status, place="memory", tab="records", **context)


def _list(request: HttpRequest, form: RecordForm, *, status: int = HTTPStatus.OK) -> HttpResponse:
    wanted = RecordFilter(request.GET)
    fitting = wanted.cleaned_data if wanted.is_valid() else {}
    found = service.list_records(
        user=person_of(request),
        type=fitting.get("type") or None,
        project_id=fitting.get("project") or None,
        tag=fitting.get("tag") or None,
        after=position_in_address(request.GET.get("after")),
        limit=RECORDS_PER_PAGE,
    )
    context = {"found": found, "wanted": wanted, "is_narrowed": any(fitting.values()), "form": form}
    if not wanted.is_valid():
        status = HTTPStatus.BAD_REQUEST
    return show(request, "memory/records.html", status=status, place="memory", tab="records", **context)
