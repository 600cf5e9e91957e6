"""Handles a message that is sent again with the same key: it never creates a second turn."""

from dataclasses import dataclass
from datetime import datetime

from core.errors import NotFound
from core.isolation.caller import Caller
from intake import services
from intake.idempotency import once
from intake.models import Turn
from intake.versions import TurnRequest, begin


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn to be answered; or an earlier turn whose answer is followed or replayed."""

    turn: Turn
    is_replay: bool = False


def begin_turn_once(*, caller: Caller, key: str | None, wanted: TurnRequest, now: datetime) -> Begun:
    """`versions.begin`, unless the caller has sent this request with this key before. Then the earlier turn

    1. is followed from the start while it is being answered;
    2. is resumed and answered again, or continued if the request asks for that, if it has no complete answer and no
       later turn;
    3. is replayed as it is, otherwise.

    Raises the errors of `begin` and `once`, and `NotFound` if the turn has been deleted since.
    """

    def run() -> dict[str, int]:
        return {"turn": begin(wanted, caller=caller, now=now).pk}

    if key is None:
        return Begun(begin(wanted, caller=caller, now=now))
    kept = once(caller=caller, key=key, operation="chat", data=wanted.as_data(), run=run, now=now)
    turn_id = kept.answer["turn"]
    if not kept.is_replay:
        return Begun(Turn.objects.for_caller(caller).get(pk=turn_id))
    taken_up = services.take_up_turn(caller=caller, turn_id=turn_id, keeps_text=wanted.resume is not None)
    if taken_up is not None:
        return Begun(taken_up)
    turn = Turn.objects.for_caller(caller).filter(pk=turn_id).first()
    if turn is None:
        raise NotFound("The message was sent before, and has been deleted since.")
    return Begun(turn, is_replay=True)
