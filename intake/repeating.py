"""The same message sent again under its key: one turn, whatever became of the first answer."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from core.errors import NotFound
from core.isolation.caller import Caller
from intake import services
from intake.idempotency import once
from intake.models import Turn


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn to be answered; or one whose answer was begun before, and is to be followed or told again."""

    turn: Turn
    is_replay: bool = False


def begin_turn_once(
    *, caller: Caller, key: str | None, message: str, conversation_id: UUID | None, now: datetime
) -> Begun:
    """`services.begin_turn`, unless the caller has sent this message with this key before. Then the turn it made then

    1. is followed from the start while it is being answered;
    2. is taken up and answered anew if it has no whole answer and is still the last of its conversation;
    3. is told again as it is, otherwise.

    Raises what `begin_turn` and `once` do, and `NotFound` if the turn has been deleted since.
    """

    def begin() -> Turn:
        return services.begin_turn(caller=caller, message=message, conversation_id=conversation_id, now=now)

    if key is None:
        return Begun(begin())
    data = {"message": message, "conversation_id": None if conversation_id is None else str(conversation_id)}
    kept = once(caller=caller, key=key, operation="chat", data=data, run=lambda: {"turn": begin().pk}, now=now)
    turn_id = kept.answer["turn"]
    if not kept.is_replay:
        return Begun(Turn.objects.for_caller(caller).get(pk=turn_id))
    taken_up = services.take_up_turn(caller=caller, turn_id=turn_id)
    if taken_up is not None:
        return Begun(taken_up)
    turn = Turn.objects.for_caller(caller).filter(pk=turn_id).first()
    if turn is None:
        raise NotFound("The message was sent before, and has been deleted since.")
    return Begun(turn, is_replay=True)
