"""Streams files while they are created, in pieces, without holding a database connection in between."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header
from rest_framework.request import Request

from core import rate_limits
from core.errors import InvalidInput
from core.isolation.acting import acting_as
from core.rate_limits import StreamLease
from intake.accounts import activity
from intake.attachments.services import pieces_of
from intake.models import Activity, Attachment, User
from intake.revocation import check_of, while_authorized


def download(
    *, request: Request, user: User, pieces: Iterator[bytes], name: str, content_type: str
) -> StreamingHttpResponse:
    """The pieces as a file. Each is made as this user, when the reader has taken the previous one.

    Raises `RateLimited`. Breaks off when the caller of the request loses access.
    """
    lease = rate_limits.begin_stream(request, user_id=user.pk)
    activity.note(user, Activity.EXPORTED)
    headers = {
        "Content-Disposition": content_disposition_header(True, name) or "attachment",
        "X-Accel-Buffering": "no",
    }
    stream = _stream(request, user, pieces, lease)
    return StreamingHttpResponse(stream, content_type=content_type, headers=headers)


def download_of(
    attachment: Attachment, *, request: Request, user: User, content_type: str, headers: dict[str, str]
) -> StreamingHttpResponse:
    """The bytes of an attached file, like `download`; no line in the user's activity."""
    lease = rate_limits.begin_stream(request, user_id=user.pk)
    stream = _stream(request, user, pieces_of(attachment), lease)
    return StreamingHttpResponse(stream, content_type=content_type, headers=headers)


def _stream(request: Request, user: User, pieces: Iterator[bytes], lease: StreamLease) -> StreamLease:
    # Each piece takes its own connection: a slow reader must not hold one.
    connections.close_all()
    return lease.over(while_authorized(_piecewise(user, pieces), check_of(request), breaks_off=True))


def choice(values: list[str], choices: tuple[str, ...]) -> str:
    """The value of `as` in a query; the first of the choices by default. Raises `InvalidInput`."""
    chosen = values or [choices[0]]
    if len(chosen) != 1 or chosen[0] not in choices:
        raise InvalidInput(errors={"as": [f"One of: {', '.join(choices)}."]})
    return chosen[0]


async def _piecewise(user: User, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is made in a thread."""
    while piece := await sync_to_async(_step, thread_sensitive=False)(user, pieces):
        yield piece


def _step(user: User, pieces: Iterator[bytes]) -> bytes:
    """The connection is returned at once: a slow reader must not hold one."""
    try:
        with acting_as(user):
            return next(pieces, b"")
    finally:
        connections.close_all()
