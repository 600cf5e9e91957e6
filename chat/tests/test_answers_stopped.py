"""An answer that is stopped at any moment ends, and its turn is closed."""

import asyncio

import pytest

from chat.answers.writer import AnswerWriter
from core.isolation.acting import Caller
from intake.chats import services
from intake.models import Turn
from intake.tests.factories import NOW, a_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_an_answer_stopped_before_its_tasks_first_steps_ends(steps):
    caller = Caller(user_id=a_person().pk)
    turn = services.create_turn(services.TurnRequest(message="Hi"), caller=caller, now=NOW)

    async def write_and_stop():
        writing = AnswerWriter(turn, caller)
        for _ in range(steps):
            await asyncio.sleep(0)
        writing.stop()
        await asyncio.wait_for(writing.ended(), timeout=10)
        return writing.log.is_over

    assert asyncio.run(write_and_stop())
    turn.refresh_from_db()
    assert turn.status == Turn.Status.INTERRUPTED
