"""Texts that were attached to imported messages become files of their turns: found by searches, and readable.

Other files of an export are named and not stored.
"""

import mimetypes
from collections.abc import Sequence
from functools import partial
from io import BytesIO

from django.utils import timezone

from core.errors import RecollectError
from core.ids import id_at
from core.isolation.acting import Caller
from intake.attachments import services as attachments
from intake.attachments.reading.parts import lines_of, reading_of, sections_of
from intake.chats import quotas
from intake.models import Attachment, Turn, User
from memory.index import attachments as index

AttachedText = tuple[str, str]
"""The name of the file, and its text."""


def attach_texts(turn: Turn, texts: Sequence[AttachedText], *, user: User) -> None:
    """In the transaction that saved the turn, as `user`. What does not fit the quota stays folded in the turn."""
    kept: list[tuple[Attachment, str]] = []
    left: list[str] = []
    for name, text in texts:
        attachment = _store(turn, name, text, user) if len(kept) < attachments.MOST_OF_A_MESSAGE else None
        if attachment is None:
            left.append(text)
        else:
            kept.append((attachment, text))
    if left:
        numbers = range(len(turn.tool_calls) + 1, len(turn.tool_calls) + 1 + len(left))
        turn.tool_calls += [
            {"id": f"imported-{number}", "name": "attachment", "input": {"text": text}}
            for number, text in zip(numbers, left, strict=True)
        ]
    turn.attachment_count = len(kept)
    # Not `save`, which would index the turn again.
    Turn.objects.filter(pk=turn.pk).update(tool_calls=turn.tool_calls, attachment_count=turn.attachment_count)
    if kept:
        attachments.claim(turn, [attachment.pk for attachment, _ in kept])
    for attachment, text in kept:
        parts = sections_of(text) if attachment.name.endswith(".md") else lines_of(text)
        index.store(attachment, reading_of(parts), now=timezone.now())


def _store(turn: Turn, name: str, text: str, user: User) -> Attachment | None:
    """None if it is too large or beyond a quota. Its id is of the time of the turn, and so are its texts."""
    caller = Caller(user_id=user.pk)
    try:
        attachment = attachments.store(
            caller=caller,
            file=BytesIO(text.encode()),
            name=_name_of_text(name),
            media_type="text/plain",
            kind=Attachment.Kind.IMPORTED,
            now=turn.said_at,
            take_room=partial(quotas.take_file, caller),
        )
    except RecollectError:
        return None
    at_its_time = id_at(turn.said_at)
    Attachment.objects.for_user(user).filter(pk=attachment.pk).update(id=at_its_time)
    attachment.pk = at_its_time
    return attachment


def _name_of_text(name: str) -> str:
    """What an export has of a PDF is its text alone."""
    is_text = (mimetypes.guess_type(name)[0] or "").startswith("text/")
    return name if is_text else f"{name}.txt"
