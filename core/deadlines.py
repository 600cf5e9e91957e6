"""The wall-clock deadline of a request: the outermost layer sets it, and every use of the database looks at it."""

from contextvars import ContextVar
from time import monotonic

from core.errors import Unavailable
from core.text import gettext_noop as _

# A thread cannot be stopped from outside. So the layer answers for a request that is too late, and its own thread ends
# at its next query: `config.database` checks the deadline before each, and `acting_as` has the server end a transaction
# that is still running then.

TOO_LATE = _("This took longer than the server allows, and was stopped. Try again in a moment.")


class RequestDeadline:
    """`seconds` from its creation. Tasks that a request leaves behind share the object, so it can be lifted for all."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = monotonic() + seconds
        self._is_lifted = False

    def lift(self) -> None:
        """The response has begun: a stream lasts as long as its reader, and so does an answer that is written."""
        self._is_lifted = True

    @property
    def left(self) -> float | None:
        """Seconds, negative when it has passed; None without a limit."""
        return None if self._is_lifted else self._ends - monotonic()


# None outside a request: a command, a task.
deadline: ContextVar[RequestDeadline | None] = ContextVar("deadline", default=None)


def left() -> float | None:
    """Seconds until the deadline of the present request; None without one. Raises `Unavailable` when it has passed."""
    present = deadline.get()
    seconds = None if present is None else present.left
    if seconds is not None and seconds <= 0:
        raise Unavailable(TOO_LATE)
    return seconds
