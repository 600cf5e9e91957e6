"""How to get one's history out of each product, step by step, and how one sees that it has come."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    label: str
    steps: tuple[str, ...]
    # How the file comes: the e-mail, or where it lies.
    arrives: str


INSTRUCTIONS = (
    Instruction(
        label="ChatGPT",
        steps=(
            "On chatgpt.com open Settings → Data controls.",
            "Beside “Export data” choose Export, and confirm it.",
            "Open the link in the e-mail, and save the zip.",
        ),
        arrives="The e-mail comes from OpenAI, “Your data export is ready”, after minutes or some hours. "
        "Its link works for 24 hours.",
    ),
    Instruction(
        label="Claude",
        steps=(
            "On claude.ai open Settings → Privacy.",
            "Choose Export data, and the time it covers.",
            "Open the link in the e-mail while you are logged in, and save the zip.",
        ),
        arrives="The e-mail comes from Anthropic, “Your data is ready for download”, mostly within an hour. "
        "Its link works for 24 hours.",
    ),
    Instruction(
        label="Gemini",
        steps=(
            "On takeout.google.com choose Deselect all, then My Activity alone.",
            "Under All activity data included leave only Gemini Apps; under Multiple formats choose JSON.",
            "Choose Next step and Create export, then save the zip.",
        ),
        arrives="The e-mail comes from Google Takeout, “Your Google data is ready to download”. Gemini names no "
        "conversations, so a pause of 30 minutes begins another here.",
    ),
    Instruction(
        label="Open WebUI, LibreChat",
        steps=(
            "Open WebUI: Settings → Chats → Export chats.",
            "LibreChat: the menu of a conversation → Export → JSON.",
        ),
        arrives="The file is saved at once.",
    ),
    Instruction(
        label="Claude Code, Codex, OpenClaw",
        steps=(
            "Install the command line of Recollect, and make a token with the scope import.",
            "Run recollect sync, or recollect sync --watch to stay up to date.",
            "Or zip ~/.claude/projects, ~/.codex/sessions or ~/.openclaw, and drop the zip here.",
        ),
        arrives="The sessions lie on your machine already.",
    ),
    Instruction(
        label="Markdown notes, Obsidian",
        steps=("Zip the folder of your notes, and drop the zip here.",),
        arrives="Each note becomes a document, with the title and the date that it names.",
    ),
    Instruction(
        label="Another Recollect",
        steps=("Open your account there, and choose Download as Markdown or Download as JSON.",),
        arrives="The file is saved at once. Everything comes back as it was.",
    ),
)
