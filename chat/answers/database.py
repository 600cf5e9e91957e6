"""Runs database work beside an answer's event loop, each piece in its own thread and transaction."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from core.isolation.acting import Caller, acting_as
from intake.models import Turn

P = ParamSpec("P")
T = TypeVar("T")


async def as_caller(caller: Caller, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    def work() -> T:
        with acting_as(caller):
            return function(*args, **kwargs)

    return await aside(work)


async def aside(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run database work beside the event loop and return its connection at once: streams last longer than a pool can
    wait.
    """

    def work() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return await sync_to_async(work, thread_sensitive=False)()


async def load_turn(turn_id: int, *, caller: Caller) -> Turn | None:
    """The caller's turn as it is now; None if it does not exist or belongs to another user."""

    def load() -> Turn | None:
        return Turn.objects.for_caller(caller).filter(pk=turn_id).first()

    return await as_caller(caller, load)
