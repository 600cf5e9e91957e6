"""Files of imported messages become files of their turns: found by searches, shown, and readable.

A text is indexed with its turn. Bytes are read by the worker that reads every file. What cannot come in is listed with
its reason, in the preview where it is known before, and its text stays folded below the turn.
"""

import mimetypes
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from io import BytesIO
from pathlib import PurePosixPath
from uuid import UUID

from django.conf import settings
from django.db.models import F
from django.template.defaultfilters import filesizeformat
from django.utils import timezone

from core.errors import RecollectError
from core.ids import id_at, uuid7
from core.isolation.acting import Caller
from core.text import Sentence, sentence_of
from core.text import gettext_noop as _
from imports.reading.files import Files
from imports.reading.items import ImportedFile, UnreadableExport
from intake.attachments import services as attachments
from intake.attachments.reading.parts import lines_of, reading_of, sections_of
from intake.chats import exporting
from intake.models import Attachment, Turn, User
from intake.models.attachments import ADDRESS_LENGTH
from memory import quotas
from memory.index import attachments as index

# By which a text is known as what it is, besides those whose type says so.
_TEXTS = {
    "cpp", "cs", "go", "js", "json", "jsx", "kt", "mmd", "php", "rb", "rs", "sh", "sql", "svg", "tex", "toml", "ts",
    "tsx", "xml", "yaml", "yml",
}  # fmt: skip

TOO_MANY = _("a message has at most %(count)s files here")
TOO_LARGE = _("the file is larger than %(size)s")
MISSING = _("the export does not have this file any more")


def refusals_of(files: Sequence[ImportedFile]) -> Iterator[tuple[ImportedFile, Sentence]]:
    """The files of a turn of which it is known before that they cannot come in, and why."""
    fitting = 0
    for file in files:
        if size_of(file) > settings.ATTACHMENT_BYTES:
            yield file, Sentence(TOO_LARGE, size=filesizeformat(settings.ATTACHMENT_BYTES).replace("\xa0", " "))
        elif fitting >= attachments.MOST_OF_A_MESSAGE:
            yield file, Sentence(TOO_MANY, count=attachments.MOST_OF_A_MESSAGE)
        else:
            fitting += 1


def place_of(file: ImportedFile, title: str, at: datetime) -> str:
    """Where the report says that it is."""
    return f"{title or 'Untitled'}, {at:%Y-%m-%d %H:%M}: {file.name}"


def size_of(file: ImportedFile) -> int:
    return file.size or len(file.text.encode())


def attach_files(
    turn: Turn, files: Sequence[ImportedFile], *, user: User, export: Files | None
) -> list[tuple[ImportedFile, str]]:
    """In the transaction that saved the turn, as `user`; returns what else than `refusals_of` cannot come in, and why.

    A turn that was imported before gets only what it does not have. `export`: the files that entries are read from.
    """
    here = {each.sha256 for each in (*attachments.attachments_of([turn])[turn.pk], *attachments.pages_of(turn))}
    left = [file for file, _why in refusals_of(files)]
    kept: list[tuple[Attachment, ImportedFile]] = []
    refused: list[tuple[ImportedFile, str]] = []
    for file in files:
        if any(file is each for each in left):
            continue
        try:
            data = _bytes_of(file, export)
            if here and attachments.measured(data)[1] in here:
                _unfold(turn, file)
                continue
            if len(here) + len(kept) >= attachments.MOST_OF_A_MESSAGE:
                raise UnreadableExport(Sentence(TOO_MANY, count=attachments.MOST_OF_A_MESSAGE))
            kept.append((_store(turn, file, data, user), file))
            _unfold(turn, file)
        except (RecollectError, UnreadableExport) as error:
            refused.append((file, sentence_of(error)))
    _fold(turn, [file.text for file in (*left, *(file for file, _why in refused)) if file.text])
    turn.attachment_count += sum(attachment.kind != Attachment.Kind.PAGE for attachment, _file in kept)
    # Not `save`, which would index the turn again.
    Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls, attachment_count=turn.attachment_count)
    if kept:
        _claim(turn, kept, user, first=len(here))
    return refused


def _claim(turn: Turn, kept: Sequence[tuple[Attachment, ImportedFile]], user: User, *, first: int) -> None:
    """Give the files to the turn, after those that it has, and index the texts, which no worker has to read."""
    ids = [attachment.pk for attachment, _file in kept]
    attachments.claim(turn, ids)
    if first:
        Attachment.objects.for_user(user).filter(pk__in=ids).update(position=F("position") + first)
    for attachment, file in kept:
        if file.text:
            parts = sections_of(file.text) if attachment.name.endswith(".md") else lines_of(file.text)
            index.store(attachment, reading_of(parts), now=timezone.now())


def _fold(turn: Turn, texts: Sequence[str]) -> None:
    """What did not become a file is shown below the turn, and not searched."""
    folded = (
        {"id": f"imported-text-{number}", "name": "attachment", "input": {"text": text}}
        for number, text in enumerate(texts, start=1)
    )
    turn.tool_calls = [*turn.tool_calls, *folded]


def _unfold(turn: Turn, file: ImportedFile) -> None:
    """Of a file that is shown, the name is not folded below the turn too. Recollect's own turns stay as they are."""
    if file.kind:
        return
    names = [call.get("input", {}).get("name") if call["name"] == "attachment" else None for call in turn.tool_calls]
    if (name := file.named_as or file.name) in names:
        place = names.index(name)
        turn.tool_calls = [*turn.tool_calls[:place], *turn.tool_calls[place + 1 :]]


def _bytes_of(file: ImportedFile, export: Files | None) -> BytesIO:
    """At most a byte more than a file may have. Raises `UnreadableExport`."""
    if not file.entry:
        return BytesIO(file.text.encode())
    if export is None:
        raise UnreadableExport(MISSING)
    with export.open(file.entry) as stream:
        return BytesIO(stream.read(settings.ATTACHMENT_BYTES + 1))


def _store(turn: Turn, file: ImportedFile, data: BytesIO, user: User) -> Attachment:
    """Its id is of the time of the turn, and so are its texts. Raises `TooLarge` and `QuotaExceeded`."""
    caller = Caller(user_id=user.pk)
    name = file.name
    # What an export has of a PDF is its text alone.
    if file.text and not (mimetypes.guess_type(name)[0] or "").startswith("text/"):
        name = name if PurePosixPath(name).suffix[1:].lower() in _TEXTS else f"{name}.txt"
    attachment = attachments.store(
        caller=caller,
        file=data,
        name=name,
        media_type="text/plain" if file.text else file.media_type,
        kind=Attachment.Kind(file.kind) if file.kind in Attachment.Kind.values else Attachment.Kind.IMPORTED,
        now=file.created_at or turn.said_at,
        take_room=partial(quotas.take_file, caller),
    )
    id_ = _id_of(file, user) or id_at(turn.said_at)
    address = file.address[:ADDRESS_LENGTH] if attachment.kind == Attachment.Kind.PAGE else ""
    Attachment.objects.for_user(user).filter(pk=attachment.pk).update(id=id_, address=address)
    attachment.pk = id_
    return attachment


def _id_of(file: ImportedFile, user: User) -> UUID | None:
    """That of Recollect's own export, if it proves that this account had the file: links in messages lead to it."""
    if file.id is None or not exporting.is_own(user, file.id, "", proof=file.proof):
        return None
    return uuid7() if Attachment.objects.for_user(user).filter(pk=file.id).exists() else file.id
