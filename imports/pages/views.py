"""The page `/import/` and the page of each import, with the server's data; scripts render the rest."""

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_safe

from core.pagination import position_in_address
from imports import services
from imports.models import Import
from imports.pages.instructions import INSTRUCTIONS
from imports.reading.products import readers
from intake.identity import person_of
from memory.pages.common import page_for_people, show

STATES = {
    Import.State.UPLOADING: _("Not uploaded yet"),
    Import.State.READING: _("Being read"),
    Import.State.READY: _("Ready to bring in"),
    Import.State.WAITING: _("Waiting for its turn"),
    Import.State.RUNNING: _("Being brought in"),
    Import.State.DONE: _("Here"),
    Import.State.FAILED: _("Failed"),
    Import.State.CANCELLED: _("Cancelled"),
    Import.State.UNDOING: _("Being undone"),
    Import.State.UNDONE: _("Undone"),
}


@require_safe
@page_for_people
def home(request: HttpRequest) -> HttpResponse:
    page = services.list_imports(user=person_of(request), after=position_in_address(request.GET.get("after")))
    labels = {reader.product: reader.label for reader in readers()}
    earlier = [
        {"batch": batch, "label": labels.get(batch.product, "Export"), "state": STATES[Import.State(batch.state)]}
        for batch in page.rows
    ]
    return show(
        request,
        "imports/import.html",
        place="import",
        earlier=earlier,
        more=page.more,
        instructions=INSTRUCTIONS,
    )


@require_safe
@page_for_people
def one(request: HttpRequest, import_id: str) -> HttpResponse:
    batch = services.get(user=person_of(request), import_id=import_id)
    return show(request, "imports/import.html", place="import", batch=batch, instructions=INSTRUCTIONS)
