"""A folder of Markdown notes, such as an Obsidian vault: each note becomes a document, with its links as they are.

A canvas and a drawing become documents too, with the texts on them.
"""

from core.text import gettext_noop as _
from imports.reading.files import Files
from imports.reading.items import ImportedDocument, Items
from imports.reading.json_streams import records
from imports.reading.notes import (
    date_of,
    front_matter,
    note_text,
    properties_of,
    texts_of_canvas,
    title_of,
    without_drawing,
)
from imports.reading.products import ExportReader
from imports.reading.values import joined

PRODUCT = "markdown"
_NOTES = (".md", ".markdown")


def _recognises(files: Files) -> int:
    return 30 if _notes(files) else 0


def _notes(files: Files) -> set[str]:
    """Without those in hidden folders, unless all of them are in one that somebody chose."""
    notes = {name for name in files.names() if name.lower().endswith(_NOTES)}
    return {name for name in notes if not _is_hidden(name)} or {name for name in notes if ".trash/" not in name}


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _read(files: Files) -> Items:
    names, notes = files.names(), _notes(files)
    # A zip has a common parent folder if the folder itself was packed.
    folders = {name.partition("/")[0] if "/" in name else "" for name in names}
    root = f"{folders.pop()}/" if len(folders) == 1 and "" not in folders else ""
    for name in names:
        path = name.removeprefix(root)
        if name in notes:
            yield from _note(files, name, path)
        elif name.lower().endswith((".canvas", ".excalidraw")) and not _is_hidden(name):
            yield from _canvas(files, name, path)


def _note(files: Files, name: str, path: str) -> Items:
    if not (text := note_text(files, name)):
        return
    values, body = front_matter(text)
    if any("excalidraw" in key for key in values):
        body = without_drawing(body)
    title, at = title_of(values, body, path), date_of(values, path)
    yield ImportedDocument(
        product=PRODUCT,
        external_id=path,
        title=title,
        text=body.strip("\n"),
        at=at,
        properties=tuple(properties_of(values, title, at)) if body != text else (),
    )


def _canvas(files: Files, name: str, path: str) -> Items:
    if text := joined(texts_of_canvas(value) for _where, value in records(files, name)):
        title, at = title_of({}, "", path), date_of({}, path)
        yield ImportedDocument(product=PRODUCT, external_id=path, title=title, text=text, at=at)


READER = ExportReader(
    product=PRODUCT,
    label="Markdown notes",
    recognises=_recognises,
    read=_read,
    looks_for=_("notes (.md, .markdown), canvases and drawings"),
    # Settings of the programs that keep the notes, but not what was thrown away.
    wordless=r"(?:^|/)\.(?!trash/)[^/]+/|(?:^|/)logseq/(?:config\.edn|custom\.css|bak/|\.recycle/|version-files/)",
)
