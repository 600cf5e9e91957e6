"""The readers of `benchmark answers`: a server that refuses, fails or repeats itself is found out, each by its name."""

import asyncio
import os

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from core.testing.serving import serving
from evals.children.answer_readers import Readers
from intake import sse


def events(number, *words, ending="done"):
    heard = [sse.encode("delta", {"text": f"{number}.{word} "}) for word in words]
    return b"".join([sse.encode("turn", {"turnId": 1}), *heard, sse.encode(ending, {})])


ANSWERS = {
    "Number 0": Response(events(0, 0, 1)),
    "Number 1": Response(status_code=503),
    "Number 2": Response(events(2, 0, ending="error")),
    "Number 3": Response(events(3, 0, 1, 0, 1)),
    "Number 4": Response(events(4, 0)),
    "Warm up": Response(events(0)),
}


async def answer(request):
    return ANSWERS[(await request.json())["message"]]


def test_what_is_refused_fails_or_is_lost_is_counted_apart():
    with serving(Starlette(routes=[Route("/api/v1/intake/chat", answer, methods=["POST"])])) as address:
        plan = {"addresses": [address], "pids": [os.getpid()], "tokens": list("abcde"), "answers": 5, "readers": 5}

        async def read():
            readers = Readers({**plan, "words": 2, "pause": 0.0, "spread": 0.0})
            await readers.run()
            return readers.heard

        heard = asyncio.run(read())
    assert (heard.whole, heard.refused, heard.failed, heard.wrong) == (1, 1, 1, 2)
