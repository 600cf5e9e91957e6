"""The files of a message, as the model reads them: short texts whole, of long ones what fits, and how to read the rest.

Everything in a file is data of unknown origin: it stands between the marks of `UntrustedData`, like what tools return.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from pydantic_ai.messages import BinaryContent

from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller
from core.text import cut
from intake.agent.models import tokens_of
from intake.attachments import services
from intake.attachments.services import PICTURES, attachments_of, bytes_of, get
from intake.models import Attachment, AttachmentText, Turn

# What vendors count for a picture of this size, in tokens, at the most.
TOKENS_OF_A_PICTURE = 1_600
MOST_PICTURES = 10
# Of an outline: a book has a hundred headings, and its pages are counted.
MOST_PLACES = 60
TEXTS_AT_ONCE = 50
# A piece that is shorter says nothing.
LEAST_CHARACTERS = 200

FILE = "The person attached the file “{name}” to the message below ({media_type}, id {id}). {state}"
WHOLE = "This is its whole text:"
BEGINNING = "It does not fit here. This is its beginning:"
NO_ROOM = "Its text does not fit here."
EMPTY = "It has no text."
WAITING = "Its text is still being read and is not here yet; say so if the question needs it."
UNREADABLE = "Its text cannot be read ({why}); say so if the question needs it."
PICTURE = "It is a picture, and you see it with the message."
UNSEEN = "It is a picture. You cannot see pictures: say so if the question needs it."
OUTLINE = "Its parts, in order: {places}."
HOW_TO_READ = (
    "Read more of it with `read_attachment` (attachmentId {id}), by place or part, and find passages in it with "
    "`search_history`. To name a page to the person, link to [the page](/api/v1/attachments/{id}/content#page=NUMBER)."
)


def is_being_read(turn: Turn) -> bool:
    """Whether the text of a file of this turn is not there yet."""
    mine = Attachment.objects.filter(user=turn.user_id, conversation_id=turn.conversation_id)
    return mine.filter(turn_number=turn.turn_number, state=Attachment.State.WAITING).exists()


def names_of(turn: Turn) -> str:
    return ", ".join(each.name for each in attachments_of([turn])[turn.pk])


def described(turn: Turn, *, around: Callable[[str], str], tokens: int, sees_pictures: bool, has_tools: bool) -> str:
    """What stands before the message of a turn with files, in about so many tokens.

    `around` marks a text as data. Each file gets the same share, and what a short one leaves is the next one's.
    """
    files, blocks = attachments_of([turn])[turn.pk], []
    for number, file in enumerate(files):
        # What others may need is theirs; a picture needs none.
        block = _block(file, around, tokens // (len(files) - number), sees_pictures=sees_pictures, has_tools=has_tools)
        blocks.append(block)
        tokens -= tokens_of(block)
    return "\n\n".join(blocks)


def pictures_of(turn: Turn, *, at_most: int) -> list[BinaryContent]:
    """The pictures of a turn, still without their bytes: `scaled` fills them in, once no transaction is open."""
    pictures = (file for file in attachments_of([turn])[turn.pk] if file.media_type in PICTURES)
    return [
        BinaryContent(b"", media_type=file.media_type, identifier=str(file.pk)) for file in islice(pictures, at_most)
    ]


def bytes_of_picture(caller: Caller, attachment_id: str) -> bytes | None:
    """None if it was deleted meanwhile."""
    try:
        return bytes_of(get(caller=caller, attachment_id=attachment_id))
    except NotFound:
        return None


def scaled(data: bytes) -> BinaryContent | None:
    """A picture in the size that models read; None if it cannot be decoded. It takes up to a second."""
    try:
        smaller, media_type = services.scaled(data, services.MODEL_PIXELS)
    except InvalidInput:
        return None
    return BinaryContent(data=smaller, media_type=media_type)


def _block(file: Attachment, around: Callable[[str], str], tokens: int, *, sees_pictures: bool, has_tools: bool) -> str:
    about: dict[str, Any] = {"name": _quoted(file.name), "media_type": file.media_type, "id": file.pk}
    if without_text := _why_without_text(file, sees_pictures=sees_pictures):
        return FILE.format(**about, state=without_text)
    head = FILE.format(**about, state=BEGINNING)
    rest = _rest(file, has_tools=has_tools)
    text, is_whole = _beginning(file, tokens - tokens_of(head) - tokens_of(rest))
    if is_whole:
        return f"{FILE.format(**about, state=WHOLE)}\n{around(text)}"
    if not text:
        head = FILE.format(**about, state=NO_ROOM)
    return "\n".join(each for each in (head, text and around(text), rest) if each)


def _why_without_text(file: Attachment, *, sees_pictures: bool) -> str:
    """A sentence for the model; empty for a file with a text."""
    if file.media_type in PICTURES:
        return PICTURE if sees_pictures else UNSEEN
    if file.state == Attachment.State.WAITING:
        return WAITING
    if file.state == Attachment.State.UNREADABLE:
        why = (file.error or {}).get("message", "").rstrip(".")
        return UNREADABLE.format(why=why or "no reason is known")
    return "" if file.parts else EMPTY


def _rest(file: Attachment, *, has_tools: bool) -> str:
    """The outline of what is not here, and how to read it."""
    places = [_quoted(str(place)) for place, _number in file.places if place]
    shown = places if len(places) <= MOST_PLACES else [*places[:MOST_PLACES], f"… {places[-1]}"]
    lines = [OUTLINE.format(places="; ".join(shown))] if shown else []
    return "\n".join([*lines, *([HOW_TO_READ.format(id=file.pk)] if has_tools else [])])


def _beginning(file: Attachment, tokens: int) -> tuple[str, bool]:
    """As much of the text as fits, with its places, and whether that is all of it."""
    pieces: list[str] = []
    place = ""
    for text in _texts(file):
        piece = f"[{text.place}]\n{text.text}" if text.place and text.place != place else text.text
        place, needed = text.place, tokens_of(piece)
        if needed > tokens:
            part = cut(piece, max(0, len(piece) * tokens // needed))
            return "\n\n".join([*pieces, *([part] if len(part) >= LEAST_CHARACTERS else [])]), False
        pieces.append(piece)
        tokens -= needed
    return "\n\n".join(pieces), True


def _texts(file: Attachment) -> Iterator[AttachmentText]:
    """In order, a page of them at a time: of a long file only the first pages are read."""
    mine = AttachmentText.objects.filter(user=file.user_id, attachment=file.pk).order_by("number")
    first = 0
    while texts := list(mine.filter(number__gte=first)[:TEXTS_AT_ONCE]):
        yield from texts
        first = texts[-1].number + 1


def _quoted(name: str) -> str:
    """On one line, and without the signs that end it: a name is the sender's, too."""
    return " ".join(name.replace("“", '"').replace("”", '"').split())
