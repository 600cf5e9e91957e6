"""Files for tests of attachments."""

import io
import struct
import zlib
from collections.abc import Callable
from datetime import datetime

from core.isolation.acting import acting_as
from intake.attachments import services
from intake.models import Attachment, User
from intake.tests.factories import NOW, caller_for

PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n"


def a_file(
    user: User,
    data: bytes = b"Milk, eggs, flour",
    name: str = "list.txt",
    *,
    kind: Attachment.Kind = Attachment.Kind.FILE,
    now: datetime = NOW,
    take_room: Callable[[int], None] = lambda _size: None,
) -> Attachment:
    """Uploaded, and named by no message."""
    caller = caller_for(user)
    with acting_as(user):
        return services.store(
            caller=caller,
            file=io.BytesIO(data),
            name=name,
            kind=kind,
            now=now,
            take_room=take_room,
        )


def a_picture(
    width: int = 4, height: int = 3, *, color: tuple[int, int, int] = (200, 30, 30), is_transparent: bool = False
) -> bytes:
    """A PNG of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    line = b"\0" + bytes((*color, 99) if is_transparent else color) * width
    head = struct.pack(">IIBBBBB", width, height, 8, 6 if is_transparent else 2, 0, 0, 0)
    pixels = zlib.compress(line * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
