"""Every expected failure as a caller sees it: a code, a sentence, and whether trying again helps."""

from typing import ClassVar


class RecollectError(Exception):
    """The base of every expected failure; edges turn it into a problem document, a tool result or a stream event."""

    code: ClassVar[str]
    default_detail: ClassVar[str]
    retryable: ClassVar[bool] = False

    def __init__(self, detail: str | None = None, *, errors: dict[str, list[str]] | None = None) -> None:
        self.detail = detail or self.default_detail
        self.errors = errors
        super().__init__(self.detail)


class InvalidInput(RecollectError):
    code = "validation_error"
    default_detail = "The input is not valid."


class AuthenticationRequired(RecollectError):
    code = "authentication_required"
    default_detail = "Log in, or send a valid token."


class InsufficientScope(RecollectError):
    """The token is good, but not for this."""

    code = "insufficient_scope"
    default_detail = "This token may not do that."


class NotFound(RecollectError):
    """For what does not exist and for what is somebody else's: a caller cannot tell the two apart."""

    code = "not_found"
    default_detail = "Not found."


class Conflict(RecollectError):
    """Somebody else's write came first: to read again, and decide again, is up to the caller."""

    code = "conflict"
    default_detail = "It has been changed since it was read. Read it again, and write again."


class PreconditionRequired(RecollectError):
    """A write to something that exists must say which version was read."""

    code = "precondition_required"
    default_detail = "Say which version is to be changed."


class StillRunning(RecollectError):
    """The same request came before and has no answer yet."""

    code = "still_running"
    default_detail = "The same request is still running. Try again shortly."
    retryable = True


class IdempotencyKeyReused(RecollectError):
    code = "idempotency_key_reused"
    default_detail = "This Idempotency-Key came with another request before. Use a new one for a new request."


class TooLarge(RecollectError):
    code = "too_large"
    default_detail = "The request is too large."


class RateLimited(RecollectError):
    code = "rate_limited"
    default_detail = "Too many requests. Try again in a moment."
    retryable = True

    def __init__(self, detail: str | None = None, *, retry_after: int | None = None) -> None:
        """`retry_after`: seconds, where they are known."""
        self.retry_after = retry_after
        super().__init__(detail)


class TooSlow(RecollectError):
    code = "timeout"
    default_detail = "The request took too long to arrive."
    retryable = True


class Broken(RecollectError):
    """A fault of this program, which has been written to the log."""

    code = "internal_error"
    default_detail = "Something went wrong here. It has been written to the log."


class SearchFailed(RecollectError):
    code = "search_error"
    default_detail = "Search failed."


class Unavailable(RecollectError):
    code = "unavailable"
    default_detail = "The service is away for the moment. Try again shortly."
    retryable = True
