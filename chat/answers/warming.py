"""Prepares a web process at its start, so that the first user does not wait for loading and building.

The vendor's package alone takes seconds to import. Then one answer is produced without the vendor, by a model that says
one word, because libraries build data at their first use. And a first message is saved and rolled back, because
PostgreSQL reads its catalogue for the first statements of each connection.
"""

import asyncio
import logging
from importlib import import_module

from django.contrib import auth
from django.db import connections, transaction
from django.utils import timezone
from pydantic_ai.models.test import TestModel

from chat.agent import loop
from chat.agent.context import ChatDeps
from core.isolation.acting import Caller, acting_as
from intake.chats.services import Answer, TurnRequest, create_turn, finish_turn
from intake.llm import models
from intake.markdown import render, render_blocks
from intake.models import Turn, User

logger = logging.getLogger(__name__)

# Renders everything that is loaded at its first use: highlighted code, a formula, a table.
SAMPLE = "# Hello\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n$x^2$ and **more**\n"


async def warm_up() -> None:
    """Runs in the event loop that will serve. A failure is logged; the first answer will report it."""
    try:
        await asyncio.to_thread(_load)
        await models.warm_up()
        model = TestModel(call_tools=[], custom_output_text="Hello.")
        deps = ChatDeps(caller=Caller(user_id=None), now=timezone.now())
        async for _ in loop.answer(message="Hello", history=[], deps=deps, model=model):
            pass
        await asyncio.to_thread(_dry_run_saving)
    except Exception as error:
        logger.warning("The chat could not be warmed up (%s); its first answer will take longer", type(error).__name__)


def _load() -> None:
    auth.get_backends()
    import_module("chat.endpoint.serving")
    render(SAMPLE)
    render_blocks(SAMPLE)


def _dry_run_saving() -> None:
    """Saves a new visitor's first message and its answer, and rolls back, on the pool's only connection."""
    try:
        with transaction.atomic():
            caller = Caller(user_id=User.objects.create_visitor().pk, is_visitor=True)
            with acting_as(caller):
                turn = create_turn(TurnRequest(message="Hello"), caller=caller, now=timezone.now())
                finish_turn(turn_id=turn.pk, answer=Answer(text="Hello.", status=Turn.Status.COMPLETE))
            transaction.set_rollback(True)
    finally:
        connections.close_all()
