"""Defines every expected failure: a code, a sentence for the caller, and whether a retry may help."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import ClassVar

from core.text import Sentence, Value
from core.text import gettext_noop as _


class RecollectError(Exception):
    """The base of all expected failures. Endpoints turn it into a problem document, a tool result or a stream event.

    `detail` is a message with named fields, whose values follow by name: `TooLong("At most %(count)s.", count=3)`. It
    is then the English sentence, which a page says in its own language (`core/text.py`).
    """

    code: str
    status: ClassVar[HTTPStatus]
    default_detail: ClassVar[str]
    retryable = False
    # What a page offers ways out of: the model, or the `message` or the whole prompt (`window`) that are too long.
    about = ""

    def __init__(
        self, detail: str | None = None, *, errors: dict[str, list[str]] | None = None, **values: Value
    ) -> None:
        message = detail or self.default_detail
        self.detail = Sentence(message, **values) if values else message
        self.errors = errors
        # Additional members of the problem document that the caller needs to continue.
        self.more: dict[str, int] = {}
        # The words of another server, for staff alone.
        self.reason = ""
        super().__init__(self.detail)


class InvalidInput(RecollectError):
    code = "validation_error"
    status = HTTPStatus.BAD_REQUEST
    default_detail = _("The input is not valid.")


class AuthenticationRequired(RecollectError):
    code = "authentication_required"
    status = HTTPStatus.UNAUTHORIZED
    default_detail = _("Log in, or send a valid token.")


class InsufficientScope(RecollectError):
    """The token is valid but lacks the scope."""

    code = "insufficient_scope"
    status = HTTPStatus.FORBIDDEN
    default_detail = _("This token may not do that.")


class NotFound(RecollectError):
    """The row does not exist or belongs to another user: a caller cannot distinguish the two."""

    code = "not_found"
    status = HTTPStatus.NOT_FOUND
    default_detail = _("Not found.")


class Conflict(RecollectError):
    """Another write came first. The caller must read again and decide again."""

    code = "conflict"
    status = HTTPStatus.PRECONDITION_FAILED
    default_detail = _("It has been changed since it was read. Read it again, and write again.")


class PreconditionRequired(RecollectError):
    """A write to something that exists must say which version was read."""

    code = "precondition_required"
    status = HTTPStatus.PRECONDITION_REQUIRED
    default_detail = _("Say which version is to be changed.")


class StillRunning(RecollectError):
    """The first request with this key is still running."""

    code = "still_running"
    status = HTTPStatus.CONFLICT
    default_detail = _("The same request is still running. Try again shortly.")
    retryable = True


class IdempotencyKeyReused(RecollectError):
    code = "idempotency_key_reused"
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    default_detail = _("This Idempotency-Key came with another request before. Use a new one for a new request.")


class TooLarge(RecollectError):
    code = "too_large"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    default_detail = _("The request is too large.")


class RateLimited(RecollectError):
    code = "rate_limited"
    status = HTTPStatus.TOO_MANY_REQUESTS
    default_detail = _("Too many requests. Try again in a moment.")
    retryable = True

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None, **values: Value) -> None:
        """`retry_after` is in seconds, if known."""
        self.retry_after = retry_after
        super().__init__(detail, errors=None, **values)


class TooSlow(RecollectError):
    code = "timeout"
    status = HTTPStatus.REQUEST_TIMEOUT
    default_detail = _("The request took too long to arrive.")
    retryable = True


class Broken(RecollectError):
    """An unexpected error; it has been logged."""

    code = "internal_error"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    default_detail = _("Something went wrong. The error has been logged.")


class SearchFailed(RecollectError):
    code = "search_error"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    default_detail = _("Search failed.")


class Unavailable(RecollectError):
    code = "unavailable"
    status = HTTPStatus.SERVICE_UNAVAILABLE
    default_detail = _("The service is not available right now. Try again shortly.")
    retryable = True


class WrongState(RecollectError):
    """The import's state does not allow this call."""

    code = "wrong_state"
    status = HTTPStatus.CONFLICT
    default_detail = _("This cannot be done with the import at the moment.")


class AlreadyDecided(RecollectError):
    code = "already_decided"
    status = HTTPStatus.CONFLICT
    default_detail = _("This call was answered already, here or on another device.")


class NoLongerWaits(RecollectError):
    code = "gone"
    status = HTTPStatus.GONE
    default_detail = _("This call no longer waits: a day has passed, or the chat went on without it.")


class WrongOffset(RecollectError):
    """The chunk does not start where the last one ended."""

    code = "wrong_offset"
    status = HTTPStatus.CONFLICT
    default_detail = _("This chunk does not begin where the upload stands. Go on from `bytes_received`.")

    def __init__(self, bytes_received: int) -> None:
        super().__init__()
        self.more = {"bytes_received": bytes_received}


class ContinuedSince(RecollectError):
    """Undoing would remove turns that were continued since."""

    code = "continued_since"
    status = HTTPStatus.CONFLICT
    default_detail = _("Some of these conversations were continued here since.")

    def __init__(self, conversations: int) -> None:
        super().__init__(
            "%(count)s of what was imported has been continued or changed here since. With `force` it is "
            "undone all the same: what was said here stays, and what was imported goes.",
            count=conversations,
        )
        self.more = {"continued_since": conversations}


class TooManyImports(RecollectError):
    code = "too_many_imports"
    status = HTTPStatus.CONFLICT
    default_detail = _("Other imports are still open. Finish, cancel or delete one first.")


class QuotaExceeded(TooLarge):
    """The user has reached a quota."""

    code = "quota_exceeded"
    default_detail = _("The file is larger than this server takes.")


class NoRoom(RecollectError):
    code = "no_room"
    status = HTTPStatus.INSUFFICIENT_STORAGE
    default_detail = _("The server's disk has no room for this file at the moment. Ask the server's administrator.")


def _kinds_of(kind: type[RecollectError]) -> Iterator[type[RecollectError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds_of(each)


STATUSES: dict[str, HTTPStatus] = {kind.code: kind.status for kind in _kinds_of(RecollectError)}
