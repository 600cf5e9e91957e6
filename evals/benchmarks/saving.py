"""`benchmark saving`: what the two saves of a turn cost as the chat makes them, beside a bare INSERT of the same turn.

1. The message is saved (`create_turn`), then the answer (`finish_turn`), each in a transaction of its own. The second
   also counts the terms, by which the turn is found from then on, and leaves pending rows for the workers.
2. The same turn is inserted and committed by one prepared statement through psycopg, with nothing around it.

1 and 2 take turns, so that both see the same machine.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import connection as django_connection
from django.utils import timezone

from core.isolation.acting import BECOME_ON_NODES, Caller, acting_as, is_cluster
from evals import synthetic
from evals.benchmarks.base import Benchmark, Figures, percentiles
from evals.datasets.loading import Report
from evals.options import Number
from evals.scratch import bare_connection, scratch_database
from evals.synthetic import SyntheticTurn
from intake.chats.services import Answer, TurnRequest, create_turn, finish_turn
from intake.models import Conversation, Turn, User

PEOPLE = 5
# Saved before the clock runs: a process that serves has cut most words before, and its statements are prepared.
WARM_UP = 500

_INSERT = """
INSERT INTO intake_conversation_turns
       (conversation_id, user_id, turn_number, user_message, assistant_message, status, said_at, created_at, updated_at,
        is_recall, tool_calls)
VALUES (%(conversation_id)s, %(user_id)s, %(turn_number)s, %(user_message)s, %(assistant_message)s, 'complete', %(now)s,
        %(now)s, %(now)s, false, '[]')
"""
# For the connection's whole life, unlike anywhere else: the insert is to have nothing around it.
_FOR_USER = "SELECT set_config('app.user_id', %s, false)"


def run(options: dict[str, Any], report: Report) -> Figures:
    with scratch_database():
        users = [User.objects.create_user(f"person-{number}@evals.invalid") for number in range(PEOPLE)]
        report(f"Saving {options['samples']} turns.")
        saves = time_saves(users, count=options["samples"])
    figures = {
        **percentiles(saves.messages, "message"),
        **percentiles(saves.answers, "answer"),
        **percentiles(saves.both, "both_saves"),
        **percentiles(saves.inserts, "bare_insert"),
    }
    times = figures["both_saves_p50_ms"] / figures["bare_insert_p50_ms"]
    return figures | {"both_saves_by_bare_insert": round(times, 1)}


@dataclass(frozen=True, slots=True)
class Saves:
    """Milliseconds of each step, turn by turn."""

    messages: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)
    inserts: list[float] = field(default_factory=list)

    @property
    def both(self) -> list[float]:
        return [message + answer for message, answer in zip(self.messages, self.answers, strict=True)]


def time_saves(users: Sequence[User], *, count: int) -> Saves:
    """Save turns one by one into these people's histories, and insert the same turns beside."""
    chats, others = [begin_conversation(user) for user in users], [begin_conversation(user) for user in users]
    warm_up, saves, on_cluster = Saves(), Saves(), is_cluster(django_connection)
    with bare_connection() as connection:
        # All made up beforehand: that takes as long as a save, and would leave the processor's caches full of it.
        for number, said in enumerate(list(synthetic.turns(WARM_UP + count, seed=1))):
            chat, other = chats[number % len(users)], others[number % len(users)]
            result = warm_up if number < WARM_UP else saves
            if not on_cluster:
                connection.execute(_FOR_USER, [str(other.user_id)])
            begun = time.perf_counter()
            turn = save_message(chat, said)
            message_saved = time.perf_counter()
            save_answer(turn, said)
            answer_saved = time.perf_counter()
            with connection.transaction() if on_cluster else nullcontext():
                if on_cluster:
                    # For a transaction alone: what lasts longer does not reach the nodes.
                    connection.execute(BECOME_ON_NODES.format(user_id=other.user_id))
                row = {
                    **asdict(said),
                    "conversation_id": other.pk,
                    "user_id": other.user_id,
                    "turn_number": number + 1,
                    "now": timezone.now(),
                }
                connection.execute(_INSERT, row, prepare=True)
            inserted = time.perf_counter()
            result.messages.append(1000 * (message_saved - begun))
            result.answers.append(1000 * (answer_saved - message_saved))
            result.inserts.append(1000 * (inserted - answer_saved))
    return saves


def save_message(conversation: Conversation, said: SyntheticTurn) -> Turn:
    caller = Caller(user_id=conversation.user_id)
    with acting_as(caller):
        return create_turn(
            TurnRequest(message=said.user_message, conversation_id=conversation.pk), caller=caller, now=timezone.now()
        )


def save_answer(turn: Turn, said: SyntheticTurn) -> None:
    with acting_as(Caller(user_id=turn.user_id)):
        finish_turn(turn_id=turn.pk, answer=Answer(text=said.assistant_message, status=Turn.Status.COMPLETE))


def begin_conversation(user: User) -> Conversation:
    with acting_as(user):
        return Conversation.objects.create(user=user)


BENCHMARK = Benchmark(
    "saving",
    "both saves of a turn, as the chat makes them, beside a bare INSERT of the same turn",
    run,
    {"samples": Number(1000, "how many turns are saved and timed")},
)
