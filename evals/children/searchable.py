"""How long after it was saved a turn is found, for `benchmark indexing`: saves as the chat does, one turn at a time.

Reads `{"samples", "seed"}`, writes a list of milliseconds.
"""

import json
import sys
import time

import django

django.setup()

from django.utils import timezone  # noqa: E402

from core.isolation.acting import acting_as  # noqa: E402
from core.isolation.caller import Caller  # noqa: E402
from evals import synthetic  # noqa: E402
from intake.models import Turn, User  # noqa: E402
from intake.services import Answer, begin_turn, finish_turn  # noqa: E402
from memory.search import search_chat_history  # noqa: E402

# Each look embeds the message and so takes time from the worker.
LOOK_SECONDS = 0.02
LONGEST_SECONDS = 60


def main() -> None:
    given = json.load(sys.stdin)
    user = User.objects.create_user("searcher@evals.invalid")
    said = synthetic.turns(given["samples"], seed=given["seed"])
    json.dump([milliseconds_until_found(user, turn.user_message, turn.assistant_message) for turn in said], sys.stdout)


def milliseconds_until_found(user: User, message: str, answer: str) -> float:
    """From the moment that the save has returned to the end of the search that finds the turn."""
    with acting_as(user):
        turn = begin_turn(caller=Caller(user_id=user.pk), message=message, conversation_id=None, now=timezone.now())
    with acting_as(user):
        finish_turn(turn_id=turn.pk, answer=Answer(text=answer, status=Turn.Status.COMPLETE))
    saved = time.perf_counter()
    while time.perf_counter() - saved < LONGEST_SECONDS:
        with acting_as(user):
            matches = search_chat_history(user=user, query=message, limit=10).matches
        if any(match.conversation_id == turn.conversation_id for match in matches):
            return 1000 * (time.perf_counter() - saved)
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"A turn was not found within {LONGEST_SECONDS} s.")


if __name__ == "__main__":
    main()
