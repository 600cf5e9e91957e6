"""`benchmark answers`: how many answers at once a web process writes, with how many readers, from a fake model.

1. People begin their answers one after the other within `--spread` seconds, and each takes longer than that, so
   that all are written at once. Others come to read along at any moment; a third of them leave and come back.
2. A model in this process writes for each question words that no other answer has.
3. Every reader must have got every word of its answer once and in order. Counted apart: readers who were refused, those
   to whom the server said that the answer failed or was cut short, and those with any other text, lost or mixed up.
"""

import asyncio
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from typing import Any

from django.core.management import CommandError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from core.testing.model_server import chunk
from core.testing.serving import serving
from evals.benchmarks.base import Benchmark, Figures, percentiles
from evals.children import answer_readers
from evals.datasets.loading import Report
from evals.processes import call
from evals.reliability.product import Product, RestartedProgram, running_product


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--answers", type=int, default=400, help="how many are written at once (default 400)")
    parser.add_argument("--readers", type=int, default=1000, help="how many read, askers included (default 1000)")
    parser.add_argument("--words", type=int, default=100, help="of each answer (default 100)")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two words (default 0.5)")
    parser.add_argument("--webs", type=int, default=1, help="how many web processes serve them in turns (default 1)")
    parser.add_argument("--spread", type=float, default=30, help="seconds in which all are begun (default 30)")


def run(options: dict[str, Any], report: Report) -> Figures:
    webs = ["web", *(f"web {number}" for number in range(2, options["webs"] + 1))]
    if options["readers"] < options["answers"] or options["answers"] < 1:
        raise CommandError("At least one answer, and a reader for each.")
    plan = {name: options[name] for name in ("answers", "readers", "words", "pause", "spread")}
    with serving(_model(plan["words"], plan["pause"])) as model:
        extra = {"LLM_MODEL": "fake", "LLM_BASE_URL": f"{model}/v1", "LLM_TIMEOUT_SECONDS": "120"}
        with running_product(extra=extra, webs=webs) as product:
            report(f"{plan['answers']} answers with {plan['readers']} readers.")
            return _measure(product, [product.programs[name] for name in webs], plan)


def _measure(product: Product, webs: list[RestartedProgram], plan: dict[str, Any]) -> Figures:
    people = product.people(plan["answers"])
    asked = {**plan, "addresses": list(product.addresses.values()), "pids": [web.family()[0].pid for web in webs]}
    asked["tokens"] = [person.token for person in people]
    began, before = time.monotonic(), sum(web.processor_seconds() for web in webs)
    heard: Any = call(answer_readers.run, product.environment, **asked)
    used, passed = sum(web.processor_seconds() for web in webs) - before, time.monotonic() - began
    return {
        "answers": plan["answers"],
        "readers": plan["readers"],
        **percentiles(heard["first_event_ms"], "first_event"),
        **percentiles(heard["first_word_ms"], "first_word"),
        **percentiles(heard["joined_ms"], "joining_reader"),
        "whole": heard["whole"],
        "refused": heard["refused"],
        "failed": heard["failed"],
        "lost_or_mixed_up": heard["wrong"],
        "at_once": heard["at_once"],
        "memory_kb_per_answer": round((heard["peak_bytes"] - heard["rest_bytes"]) / plan["answers"] / 1000, 1),
        "web_processor_ms_per_answer": round(1000 * used / plan["answers"], 1),
        "web_processor_share": round(used / passed, 2),
    }


def _model(words: int, pause: float) -> Starlette:
    """Answers `Number N` with `N.0 N.1 …`, and anything else at once."""

    async def complete(request: Request) -> StreamingResponse:
        messages = (await request.json())["messages"]
        number = messages[-1]["content"].split()[-1]
        return StreamingResponse(stream(number), media_type="text/event-stream")

    async def stream(number: str) -> AsyncIterator[bytes]:
        for word in range(words if number.isdecimal() else 1):
            yield chunk({"role": "assistant", "content": f"{number}.{word} "})
            await asyncio.sleep(pause)
        yield chunk(finish_reason="stop")
        yield b"data: [DONE]\n\n"

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])])


BENCHMARK = Benchmark(
    name="answers",
    help="many answers at once with many readers, from a fake model: first events, memory, what is lost",
    add_arguments=add_arguments,
    run=run,
)
