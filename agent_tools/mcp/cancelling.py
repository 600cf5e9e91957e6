"""Cancels a call over HTTP in the 2025 revisions: a notification in one request stops the call in another.

Requests share only this table of running calls. A call is identified by its token, its session and its id. If two
clients share all three, the notification is ambiguous, and no call is stopped. The 2026 revision does not need this:
there a client cancels by closing the response.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from mcp_types import RequestId

from core.errors import InvalidInput
from core.validation import parse_json

METHOD = "notifications/cancelled"
CallKey = tuple[str, str, RequestId]


@dataclass
class CallsUnderWay:
    _scopes: dict[CallKey, list[anyio.CancelScope]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def stoppable(self, key: CallKey) -> Iterator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            self._scopes[key].append(scope)
            try:
                yield scope
            finally:
                self._scopes[key].remove(scope)
                if not self._scopes[key]:
                    del self._scopes[key]

    def stop(self, key: CallKey) -> None:
        if len(scopes := self._scopes.get(key, [])) == 1:
            scopes[0].cancel()


def cancelled_id(body: bytes) -> RequestId | None:
    """The call that a message cancels, if it is a cancellation."""
    # Most messages are not, and need not be parsed twice.
    if METHOD.encode() not in body:
        return None
    try:
        message = parse_json(body)
    except InvalidInput:
        return None
    if not isinstance(message, dict) or message.get("method") != METHOD:
        return None
    params = message.get("params")
    request_id = params.get("requestId") if isinstance(params, dict) else None
    return request_id if isinstance(request_id, str | int) else None
