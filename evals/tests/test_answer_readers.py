"""The readers of `benchmark answers`: a server that refuses, fails or repeats itself is found out, each by its name."""

import os

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from core import responses
from evals.benchmarks.answers import follow
from evals.reliability.answering import AnswerReader
from testing.serving import serving


def events(number, *words, ending="done", begin=True):
    turn = responses.encode("turn", {"turnId": number}) if begin else b""
    heard = [responses.encode("delta", {"text": f"{number}.{word} "}, id=str(word)) for word in words]
    return b"".join([turn, *heard, responses.encode(ending, {}) if ending else b""])


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
        people = [(number, "token") for number in range(5)]
        plan = {"answers": 5, "readers": 5, "words": 2, "pause": 0.0, "spread": 0.0}
        heard = follow(addresses=[address], pids=[os.getpid()], people=people, **plan)
    figures = heard["figures"]
    endings = ("whole", "refused", "failed", "lost_or_mixed_up")
    assert [figures[name] for name in endings] == [1, 1, 1, 2]
    assert figures["first_word_p50_ms"] >= figures["first_event_p50_ms"] > 0


def test_a_reader_whose_line_breaks_goes_on_from_the_last_event_at_the_next_address():
    asked = []

    async def follow_turn(request):
        asked.append(request.headers.get("last-event-id"))
        # Half of the answer, and then the rest.
        return Response(events(7, 0, 1, ending="") if len(asked) == 1 else events(7, 2, begin=False))

    route = Route("/api/v1/intake/turns/7/events", follow_turn)
    with serving(Starlette(routes=[route])) as first, serving(Starlette(routes=[route])) as second:
        reader = AnswerReader([first, second], {}, turn_id=7)
        reader.read()
    assert (reader.text, asked, reader.lost_lines) == ("7.0 7.1 7.2 ", [None, "1"], 1)
    assert reader.ending.name == "done"
