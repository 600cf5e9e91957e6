"""A folder of Markdown notes, such as an Obsidian vault: each note becomes a document, with its links as they are."""

from core.text import gettext_noop as _
from imports.reading.files import Files
from imports.reading.items import ImportedDocument, Items, Skipped
from imports.reading.notes import date_of, front_matter, note_text, title_of
from imports.reading.products import ExportReader

PRODUCT = "markdown"
_NOTES = (".md", ".markdown")


def _recognises(files: Files) -> int:
    return 30 if any(_is_note(name) for name in files.names()) else 0


def _is_note(name: str) -> bool:
    return name.lower().endswith(_NOTES) and not _is_hidden(name)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _read(files: Files) -> Items:
    names = files.names()
    root = _common_folder(names)
    for name in names:
        path = name.removeprefix(root)
        if _is_note(name):
            yield _note(files, name, path)
        elif not _is_hidden(name):
            yield Skipped(where=path, reason=_("this is no note"))


def _common_folder(names: list[str]) -> str:
    """The common parent folder, which a zip has if the folder itself was packed."""
    folders = {name.partition("/")[0] if "/" in name else "" for name in names}
    return f"{folders.pop()}/" if len(folders) == 1 and "" not in folders else ""


def _note(files: Files, name: str, path: str) -> ImportedDocument | Skipped:
    text = note_text(files, name)
    if isinstance(text, Skipped):
        return Skipped(where=path, reason=text.reason)
    values, body = front_matter(text)
    return ImportedDocument(
        product=PRODUCT,
        external_id=path,
        title=title_of(values, body, path),
        text=body.strip("\n"),
        at=date_of(values, path),
    )


READER = ExportReader(product=PRODUCT, label="Markdown notes", recognises=_recognises, read=_read)
