"""After failures of a hook: a pause, and one notice."""

import time
from contextlib import suppress
from typing import Any

from recollect_cli.state import read, write

FAILURES_BEFORE_PAUSE, PAUSE_SECONDS, DAY_SECONDS = 3, 60, 86_400
_STATE, _UNREAD = "hooks", "unread"


def is_paused() -> bool:
    return bool(read(_STATE).get("paused_until", 0) > time.time())


def note_failure(reason: str) -> None:
    state, now = read(_STATE), time.time()
    count = int(state.get("failures", 0)) + 1
    state |= {"failures": count, "failing_since": state.get("failing_since", now), "reason": reason[:300]}
    if count % FAILURES_BEFORE_PAUSE == 0:
        state["paused_until"] = now + PAUSE_SECONDS
    with suppress(OSError):
        write(_STATE, state)


def note_unread(session: str, reason: str) -> None:
    """That a session's log could not be read, or that it has been read since."""
    unread = read(_UNREAD)
    if reason or session in unread:
        kept = {name: why for name, why in unread.items() if name != session}
        with suppress(OSError):
            write(_UNREAD, {**dict(list(kept.items())[-19:]), **({session: reason[:300]} if reason else {})})


def note_success() -> None:
    with suppress(OSError):
        state, now = read(_STATE), time.time()
        # To the minute: a write for every prompt would cost more than it is worth.
        if "failures" in state or now - state.get("succeeded", 0) > PAUSE_SECONDS:
            write(_STATE, {"succeeded": now})


def due_notice() -> str:
    """Once, after a day without success."""
    state = read(_STATE)
    since = state.get("failing_since")
    if since is None or state.get("noticed") or time.time() - since < DAY_SECONDS:
        return ""
    with suppress(OSError):
        write(_STATE, {**state, "noticed": True})
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(since))
        return f"Recollect could not be reached since {day}. Run `recollect status` to see why."
    return ""


def hook_state() -> dict[str, Any]:
    """For `recollect status`."""
    unread = read(_UNREAD)
    return {**read(_STATE), **({"unread": unread} if unread else {})}
