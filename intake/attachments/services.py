"""Stores the files of messages, gives them to their message, and removes what no message needs any more.

The bytes are the person's own rows, once for each content. These rules hold under concurrent writes:
1. Piece 0 of a content is its lock. `store` holds a share of that row until its attachment is committed.
2. `release` takes the row alone, and only then looks whether an attachment of that content is left. So it never removes
   bytes that a transaction under way has attached again.
3. A message claims its files with one conditional update in its own transaction: a file belongs to one turn.
4. The database removes attachments and their texts with their turn (a foreign key). Code that removes turns asks for
   their contents before (`contents_of`), and releases them afterwards.
"""

import hashlib
import mimetypes
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import PurePosixPath
from typing import IO
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.dispatch import Signal
from django.template.defaultfilters import filesizeformat

from core.errors import InsufficientScope, InvalidInput, NotFound, QuotaExceeded, TooLarge, Unavailable
from core.ids import parse_id, uuid7
from core.isolation.acting import Caller, binding_of
from core.responses import DISK_FULL
from core.text import cut, pg_text, restored
from core.text import gettext_noop as _
from intake.attachments.reading.pictures import PICTURES
from intake.models import Attachment, AttachmentPiece, AttachmentText, Conversation, Turn, User
from intake.models.attachments import MEDIA_TYPE_LENGTH, NAME_LENGTH, PIECE_BYTES

# Sent after a commit: files wait to be read, or have got their message. A receiver must not wait itself.
files_waiting = Signal()
MOST_OF_A_MESSAGE = 10
# The tool of answers that reads pages.
OPEN_PAGE = "open_page"
# The disk space that uploads leave free.
FREE_BYTES = 1024**3
# Of a visitor before their first message.
FIRST_FILE_BYTES = 5 * 1024**2
FIRST_FILE = _(
    "Before your first message you can attach one file of at most %(size)s. Send it, and attach others to the next."
)
# Everything else is only ever downloaded.
SHOWN = {*PICTURES, "application/pdf"}
UNKNOWN = "application/octet-stream"
_SIGNATURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"%PDF-"), "application/pdf"),
)
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*", re.ASCII)
# Also the marks that turn the direction of writing: with one, `exe.gpj` reads as a picture's name.
_NOT_IN_A_NAME = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TEXTS_AT_ONCE = 500

_HOLD_CONTENT = """
SELECT 1 FROM attachment_pieces WHERE user_id = %s AND sha256 = %s AND number = 0 FOR KEY SHARE
"""
_LOCK_CONTENTS = """
SELECT 1 FROM attachment_pieces WHERE user_id = %s AND sha256 = ANY(%s) AND number = 0 ORDER BY sha256 FOR UPDATE
"""
_REMOVE_CONTENTS = """
DELETE FROM attachment_pieces AS piece
 WHERE piece.user_id = %(user_id)s AND piece.sha256 = ANY(%(contents)s)
   AND NOT EXISTS (SELECT FROM attachments AS attachment
                    WHERE attachment.user_id = %(user_id)s AND attachment.sha256 = piece.sha256)
"""
BOUND_SENDS_NO_FILES = _(
    "A token that is bound to a project sends no files, also not with another version of a message."
)
_CLAIM = """
UPDATE attachments SET conversation_id = %(conversation)s, turn_number = %(number)s,
       position = array_position(%(ids)s::uuid[], id) - 1
 WHERE user_id = %(user_id)s AND id = ANY(%(ids)s::uuid[]) AND conversation_id IS NULL
"""


def store(
    *,
    caller: Caller,
    file: IO[bytes],
    name: str,
    media_type: str = "",
    kind: Attachment.Kind = Attachment.Kind.FILE,
    now: datetime,
    take_room: Callable[[int], None] | None = None,
) -> Attachment:
    """Store a file that no message names yet. `media_type` is the sender's word for it; the content decides.

    `take_room`: checks the quota before so many new bytes are stored (`memory.quotas.take_file`).

    Raises `TooLarge` for a file above the limit, `QuotaExceeded`, `InvalidInput` without a file.
    """
    assert caller.user_id is not None, "who writes is known"  # noqa: S101 - tells the types what the code around has seen to
    size, content, head = measured(file)
    _refuse_without_room(caller, size)
    with transaction.atomic():
        _store_content(caller.user_id, file, content, size, take_room)
        attachment = Attachment.objects.create(
            user_id=caller.user_id,
            name=clean_name(name),
            media_type=media_type_of(head, name=name, declared=media_type),
            size=size,
            sha256=content,
            kind=kind,
            created_at=now,
            next_attempt_at=now,
        )
    transaction.on_commit(partial(files_waiting.send, Attachment), robust=True)
    return attachment


def _refuse_without_room(caller: Caller, size: int) -> None:
    """Raises `Unavailable` when the disk is full, and `QuotaExceeded` for more of a visitor who has said nothing."""
    folder = settings.DATABASE_FOLDER
    if folder and shutil.disk_usage(folder).free - size < FREE_BYTES:
        raise Unavailable(DISK_FULL)
    # Who has a chat is bounded by the quota of visitors, and chats are bounded by their rate.
    if not caller.is_visitor or Conversation.objects.for_caller(caller).exists():
        return
    if size > FIRST_FILE_BYTES or Attachment.objects.for_caller(caller).exists():
        raise QuotaExceeded(FIRST_FILE, size=filesizeformat(FIRST_FILE_BYTES).replace("\xa0", " "))


def get(*, caller: Caller, attachment_id: str) -> Attachment:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    try:
        return Attachment.objects.for_caller(caller).get(pk=parse_id(attachment_id))
    except ObjectDoesNotExist:
        raise NotFound from None


def pieces_of(attachment: Attachment) -> Iterator[bytes]:
    """The bytes in order, each piece by a query of its own. Raises `NotFound` if they went meanwhile."""
    pieces = AttachmentPiece.objects.filter(user=attachment.user_id, sha256=attachment.sha256)
    for number in range(number_of_pieces(attachment.size)):
        data = pieces.filter(number=number).values_list("data", flat=True).first()
        if data is None:
            raise NotFound
        yield bytes(data)


def number_of_pieces(size: int) -> int:
    return max(1, -(-size // PIECE_BYTES))


def bytes_of(attachment: Attachment) -> bytes:
    return b"".join(pieces_of(attachment))


def keep_pictures(attachment: Attachment, pictures: Sequence[bytes]) -> None:
    """Keep what the reader made of a picture after the pieces of its content, with which it goes."""
    first = number_of_pieces(attachment.size)
    made = [
        AttachmentPiece(user_id=attachment.user_id, sha256=attachment.sha256, number=number, data=data)
        for number, data in enumerate(pictures, start=first)
    ]
    AttachmentPiece.objects.bulk_create(made, ignore_conflicts=True)


def scaled(attachment: Attachment, *, for_models: bool = False) -> tuple[bytes, str]:
    """The thumbnail of a picture, or the size that models read, and its media type.

    Raises `InvalidInput` with the reason if the picture could not be read, and `NotFound` until it is.
    """
    if attachment.state == Attachment.State.UNREADABLE:
        raise InvalidInput(restored(attachment.error or {"message": ""}, "message"))
    made = AttachmentPiece.objects.filter(user=attachment.user_id, sha256=attachment.sha256)
    data = made.filter(number=number_of_pieces(attachment.size) + for_models).values_list("data", flat=True).first()
    if data is None or attachment.media_type not in PICTURES:
        raise NotFound
    return bytes(data), media_type_of(bytes(data[:64]), name="", declared="")


def _refuse_bound() -> None:
    """Raises `InsufficientScope`: a file is of no project until a message names it, and its bytes may be shared."""
    if binding_of(None):
        raise InsufficientScope(BOUND_SENDS_NO_FILES)


def claim(turn: Turn, ids: Sequence[UUID]) -> None:
    """Give these files, in this order, to a new turn, in its transaction.

    Raises `NotFound`, so that the transaction leaves nothing, if one is not the user's or belongs to a message already.
    """
    _refuse_bound()
    with connection.cursor() as cursor:
        parameters = {
            "user_id": turn.user_id,
            "conversation": turn.conversation_id,
            "number": turn.turn_number,
            "ids": list(ids),
        }
        cursor.execute(_CLAIM, parameters)
        if cursor.rowcount != len(ids):
            raise NotFound(_("A file of this message is not here any more. Attach it again."))
    # What was read before is indexed from now on.
    transaction.on_commit(partial(files_waiting.send, Attachment), robust=True)


def copy(source: Turn, turn: Turn) -> None:
    """Give a version of a message the same files: rows of their own, with the same bytes and the texts read so far.

    The conversation's row is locked, so no file of the source goes meanwhile.
    """
    for attachment in attachments_of([source])[source.pk]:
        _refuse_bound()
        texts = list(AttachmentText.objects.filter(user=turn.user_id, attachment=attachment.pk))
        attachment.pk, attachment._state.adding = uuid7(), True
        attachment.conversation_id, attachment.turn_number = turn.conversation_id, turn.turn_number
        attachment.save(force_insert=True)
        for text in texts:
            text.attachment_id = attachment.pk
        AttachmentText.objects.bulk_create(texts, batch_size=TEXTS_AT_ONCE)
    transaction.on_commit(partial(files_waiting.send, Attachment), robust=True)


def attachments_of(turns: Iterable[Turn]) -> dict[int, list[Attachment]]:
    """The files of each of these turns by its key, in the order of the message. Without files it asks nothing."""
    with_files = {(turn.conversation_id, turn.turn_number): turn for turn in turns if turn.attachment_count}
    found: dict[int, list[Attachment]] = defaultdict(list)
    if not with_files:
        return found
    users = {turn.user_id for turn in with_files.values()}
    rows = Attachment.objects.exclude(kind=Attachment.Kind.PAGE).filter(
        user__in=users,
        conversation_id__in={conversation_id for conversation_id, _ in with_files},
        turn_number__in={number for _, number in with_files},
    )
    for row in rows.order_by("position", "id"):
        # Two conversations may both have a turn of this number, and only one of them be asked for.
        if row.conversation_id and row.turn_number and (key := (row.conversation_id, row.turn_number)) in with_files:
            found[with_files[key].pk].append(row)
    return found


def pages_of(turn: Turn) -> list[Attachment]:
    """The pages that were read for the answer. Without a call that reads one it asks nothing."""
    if not any(call.get("name") == OPEN_PAGE for call in turn.tool_calls):
        return []
    mine = Attachment.objects.filter(user=turn.user_id, kind=Attachment.Kind.PAGE)
    return list(mine.filter(conversation_id=turn.conversation_id, turn_number=turn.turn_number).order_by("id"))


def first_name(caller: Caller, ids: Sequence[UUID]) -> str:
    """The name of the first of these files, for the title of a chat without words; empty if none is there."""
    names = Attachment.objects.for_caller(caller).filter(pk__in=ids[:1]).values_list("name", flat=True)
    return names.first() or ""


def listed(*, user: User, words: str = "") -> "QuerySet[Attachment]":
    """The files of a user's messages whose name contains each of the words.

    Without those of temporary chats. The versions of a message have the same files, so a chat has one of each.
    """
    mine = Attachment.objects.for_user(user)
    turn = Turn.objects.filter(
        user=user, conversation=OuterRef("conversation_id"), turn_number=OuterRef("turn_number"), is_temporary=False
    )
    same = {name: OuterRef(name) for name in ("conversation_id", "sha256", "name")}
    earlier = mine.filter(**same, pk__lt=OuterRef("pk"))
    found = mine.filter(Exists(turn), ~Exists(earlier), conversation_id__isnull=False)
    # More words cannot narrow a name further.
    for word in words.split()[:8]:
        found = found.filter(name__icontains=word)
    return found


def remove_unclaimed(*, caller: Caller, attachment: Attachment) -> None:
    """Remove a file that no message names. Raises `NotFound` if a message has named it since."""
    with transaction.atomic():
        mine = Attachment.objects.for_caller(caller).filter(pk=attachment.pk, conversation_id=None)
        if not mine.delete()[0]:
            raise NotFound
        release(attachment.user_id, [attachment.sha256])


def contents_of(
    user_id: int | None, conversation_ids: Collection[UUID], numbers: Collection[int] | None = None
) -> list[str]:
    """The contents attached to these conversations, or to these turns of one: for `release`, after they are removed."""
    rows = Attachment.objects.filter(user=user_id, conversation_id__in=conversation_ids)
    if numbers is not None:
        rows = rows.filter(turn_number__in=numbers)
    return list(rows.values_list("sha256", flat=True).distinct())


def release(user_id: int | None, contents: Collection[str]) -> None:
    """Remove the bytes of these contents of a user, except of those that an attachment still has."""
    if not contents:
        return
    parameters = {"user_id": user_id, "contents": sorted(contents)}
    with connection.cursor() as cursor:
        # Two statements: only one that begins after the wait for the lock sees what was attached meanwhile.
        cursor.execute(_LOCK_CONTENTS, [user_id, parameters["contents"]])
        cursor.execute(_REMOVE_CONTENTS, parameters)


def remove_forgotten(*, now: datetime) -> int:
    """Remove files that no message named within a day, or an hour for a visitor, as a worker; returns their number."""
    of_visitor = Q(user__in=User.objects.filter(is_visitor=True).values("pk"), created_at__lt=now - timedelta(hours=1))
    # How long a file may wait for its message. A policy keeps a worker from removing anything newer.
    forgotten = Attachment.objects.filter(of_visitor | Q(created_at__lt=now - timedelta(days=1)), conversation_id=None)
    contents: dict[int, dict[UUID, str]] = defaultdict(dict)
    rows = forgotten.order_by("created_at").values_list("user_id", "id", "sha256")[:1_000]
    for user_id, attachment_id, content in rows:
        contents[user_id][attachment_id] = content
    removed = 0
    for user_id, of_user in contents.items():
        with transaction.atomic():
            removed += forgotten.filter(user=user_id, pk__in=list(of_user)).delete()[0]
            release(user_id, set(of_user.values()))
    return removed


def measured(file: IO[bytes]) -> tuple[int, str, bytes]:
    """The size, the SHA-256 and the beginning of a file. Raises `TooLarge` as soon as it is."""
    digest, size, head = hashlib.sha256(), 0, b""
    file.seek(0)
    for piece in iter(partial(file.read, PIECE_BYTES), b""):
        head = head or piece[:64]
        digest.update(piece)
        size += len(piece)
        if size > settings.ATTACHMENT_BYTES:
            raise too_large()
    return size, digest.hexdigest(), head


def too_large() -> TooLarge:
    return TooLarge(
        _("The file is too large: at most %(size)s. Send a smaller one, or only the part that matters."),
        size=filesizeformat(settings.ATTACHMENT_BYTES).replace("\xa0", " "),
    )


def _store_content(
    user_id: int, file: IO[bytes], content: str, size: int, take_room: Callable[[int], None] | None
) -> None:
    """The bytes, if the user has none of this content yet; holds a share of them until the transaction ends."""
    while not _holds(user_id, content):
        if take_room is not None:
            take_room(size)
        file.seek(0)
        for number in range(number_of_pieces(size)):
            # Another transaction that stores the same content is waited for; if it fails, these are the bytes.
            data = file.read(PIECE_BYTES)
            piece = AttachmentPiece(user_id=user_id, sha256=content, number=number, data=data)
            AttachmentPiece.objects.bulk_create([piece], ignore_conflicts=True)


def _holds(user_id: int, content: str) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_HOLD_CONTENT, [user_id, content])
        return cursor.fetchone() is not None


def clean_name(name: str) -> str:
    """The last part of a path, without signs that hide what it is; with its ending if it is too long."""
    last = re.split(r"[/\\]", _NOT_IN_A_NAME.sub("", pg_text(name)))[-1].strip(" .")
    if len(last) <= NAME_LENGTH:
        return last or "file"
    ending = PurePosixPath(last).suffix
    ending = ending if len(ending) <= 20 else ""
    return cut(last.removesuffix(ending), NAME_LENGTH - len(ending)) + ending


def media_type_of(head: bytes, *, name: str, declared: str) -> str:
    """What a file is: by its first bytes if a browser would show it, or else by its name, or by the sender's word."""
    shown = next((media_type for signature, media_type in _SIGNATURES if signature.match(head)), None)
    if shown is not None:
        return shown
    guessed = mimetypes.guess_type(clean_name(name))[0] or declared.partition(";")[0].strip().lower()
    is_one = len(guessed) <= MEDIA_TYPE_LENGTH and _MEDIA_TYPE.fullmatch(guessed)
    return guessed if is_one and guessed not in SHOWN else UNKNOWN
