"""The page `/import/` and the page of each import, with the server's data; scripts render the rest."""

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_noop as _
from django.views.decorators.http import require_safe

from chat.pages.common import page_for_registered, show
from core.paging import position_in_address
from imports import services
from imports.models import Import
from imports.reading.products import readers
from intake.accounts.identity import person_of

# `arrives`: how the file arrives, by e-mail or at its location.
INSTRUCTIONS = (
    {
        "label": "ChatGPT",
        "steps": (
            _("On chatgpt.com open Settings → Data controls."),
            _("Beside “Export data” choose Export, and confirm it."),
            _("Open the link in the e-mail, and save the zip."),
        ),
        "arrives": _(
            "The e-mail comes from OpenAI, “Your data export is ready”, after minutes or some hours. "
            "Its link works for 24 hours."
        ),
    },
    {
        "label": "Claude",
        "steps": (
            _("On claude.ai open Settings → Privacy."),
            _("Choose Export data, and the time it covers."),
            _("Open the link in the e-mail while you are logged in, and save the zip."),
        ),
        "arrives": _(
            "The e-mail comes from Anthropic, “Your data is ready for download”, mostly within an hour. "
            "Its link works for 24 hours."
        ),
    },
    {
        "label": "Gemini",
        "steps": (
            _("On takeout.google.com choose Deselect all, then My Activity alone."),
            _("Under All activity data included leave only Gemini Apps; under Multiple formats choose JSON."),
            _("Choose Next step and Create export, then save the zip."),
        ),
        "arrives": _(
            "The e-mail comes from Google Takeout, “Your Google data is ready to download”. Gemini names no "
            "conversations, so a pause of 30 minutes begins another here."
        ),
    },
    {
        "label": "Open WebUI, LibreChat, Grok, Le Chat, DeepSeek, Perplexity",
        "steps": (
            _("Open WebUI: Settings → Chats → Export chats."),
            _("LibreChat: the menu of a conversation → Export → JSON."),
            _("Grok, Le Chat and DeepSeek: the settings of your account → Export data. Drop the zip here as it is."),
            _("Perplexity: the JSON file of a thread, as the extensions for the browser export it."),
        ),
        "arrives": _("The file is saved at once."),
    },
    {
        "label": "Claude Code, Codex, OpenClaw, Gemini CLI, Copilot, Cursor",
        "steps": (
            _("Install the command line of Recollect, and make a token with the scope import."),
            _("Run recollect sync, or recollect sync --watch to stay up to date."),
            _("Or zip ~/.claude/projects, ~/.codex/sessions or ~/.openclaw, and drop the zip here."),
            _(
                "The other programs: zip ~/.gemini, agent-transcripts of Cursor or chatSessions of VS Code, or run "
                "recollect import with the folder. VS Code also exports a chat: Chat: Export Chat…"
            ),
        ),
        "arrives": _("The sessions lie on your machine already."),
    },
    {
        "label": _("Any other program"),
        "steps": (_("Make JSON or CSV of its messages: the documentation of imports has the form, and a line of jq."),),
        "arrives": _("A conversation, or a list of messages with roles and texts, is enough."),
    },
    {
        "label": _("Markdown notes, Obsidian"),
        "steps": (_("Zip the folder of your notes, and drop the zip here."),),
        "arrives": _("Each note becomes a document, with the title and the date that it names."),
    },
    {
        "label": _("Another Recollect"),
        "steps": (_("Open your account there, and choose Download as JSON."),),
        "arrives": _("The file is saved at once. Everything comes back as it was."),
    },
)


STATES = {
    Import.State.UPLOADING: _("Not uploaded yet"),
    Import.State.READING: _("Reading"),
    Import.State.READY: _("Ready to import"),
    Import.State.WAITING: _("Waiting for its turn"),
    Import.State.RUNNING: _("Importing"),
    Import.State.DONE: _("Imported"),
    Import.State.FAILED: _("Failed"),
    Import.State.CANCELLED: _("Cancelled"),
    Import.State.UNDOING: _("Undoing"),
    Import.State.UNDONE: _("Undone"),
}


@require_safe
@page_for_registered
def home(request: HttpRequest) -> HttpResponse:
    page = services.list_imports(user=person_of(request), after=position_in_address(request.GET.get("after")))
    labels = {reader.product: reader.label for reader in readers()}
    earlier = [
        {
            "batch": batch,
            # Agents append under names that no export has.
            "label": labels.get(batch.product, batch.product or "Export"),
            "state": STATES[Import.State(batch.state)],
        }
        for batch in page.rows
    ]
    return show(
        request,
        "imports/import.html",
        earlier=earlier,
        more=page.more,
        instructions=INSTRUCTIONS,
    )


@require_safe
@page_for_registered
def one(request: HttpRequest, import_id: str) -> HttpResponse:
    batch = services.get(user=person_of(request), import_id=import_id)
    return show(request, "imports/import.html", batch=batch, instructions=INSTRUCTIONS)
