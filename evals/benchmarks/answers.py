"""`benchmark answers`: how many answers at once a web process writes, with how many readers, from a fake model.

1. People begin their answers one after the other within `--spread` seconds, and each takes longer than that, so
   that all are written at once. Others come to read along at any moment; a third of them leave and come back.
2. A model in this process writes for each question words that no other answer has.
3. Every reader must have got every word of its answer once and in order. Counted apart: readers who were refused (by a
   status, or by silence), those to whom the server said that the answer failed or was cut short, and those with any
   other text, lost or mixed up.
"""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import psutil
from django.core.management import CommandError

from evals.benchmarks.base import Benchmark, Figures, percentiles
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import ModuleProcess, call, looking
from evals.reliability.answering import AnswerReader, NumberingModel, question, whole_answer
from evals.reliability.product import Person, Product, running_product
from testing.serving import serving

MEMORY_EVERY_SECONDS = 0.25
# Of those who read along, so many leave once and come back.
LEAVING_SHARE = 1 / 3
MOST_TRIES = 5
WARM_UP = 10


def run(options: dict[str, Any], report: Report) -> Figures:
    webs = ["web", *(f"web {number}" for number in range(2, options["webs"] + 1))]
    if options["readers"] < options["answers"]:
        raise CommandError("--readers must be at least as many as --answers.")
    plan = {name: options[name] for name in ("answers", "readers", "words", "pause", "spread")}
    with serving(NumberingModel(words=plan["words"], pause=plan["pause"]).application) as model:
        extra = {"LLM_MODEL": "fake", "LLM_BASE_URL": f"{model}/v1", "LLM_TIMEOUT_SECONDS": "120"}
        with running_product(extra=extra, webs=webs) as product:
            report(f"{plan['answers']} answers with {plan['readers']} readers.")
            return _measure(product, [product.programs[name] for name in webs], plan)


def _measure(product: Product, webs: list[ModuleProcess], plan: dict[str, Any]) -> Figures:
    people = [(person.user_id, person.token) for person in product.people(plan["answers"])]
    addresses, pids = list(product.addresses.values()), [web.family()[0].pid for web in webs]
    began, before = time.monotonic(), sum(web.processor_seconds() for web in webs)
    heard = call(follow, product.environment, addresses=addresses, pids=pids, people=people, **plan)
    used, passed = sum(web.processor_seconds() for web in webs) - before, time.monotonic() - began
    return {
        "answers": plan["answers"],
        "readers": plan["readers"],
        **heard["figures"],
        "memory_kb_per_answer": round((heard["peak_bytes"] - heard["rest_bytes"]) / plan["answers"] / 1000, 1),
        "web_processor_ms_per_answer": round(1000 * used / plan["answers"], 1),
        "web_processor_share": round(used / passed, 2),
    }


def follow(
    *,
    addresses: list[str],
    pids: list[int],
    people: list[tuple[int, str]],
    answers: int,
    readers: int,
    words: int,
    pause: float,
    spread: float,
) -> Figures:
    """Runs in a process of its own: all readers at once, each in a thread, and how each of them ended.

    `rest_bytes` and `peak_bytes` are of the memory of the web processes `pids`, before it begins and at most; `at_once`
    among the figures is how many answers were being written, at most.
    """
    webs = [psutil.Process(pid) for pid in pids]
    # In turns, as a balancer would have it.
    places, headers = cycle(addresses), [Person(*person).headers for person in people]
    for _ in range(WARM_UP * len(webs)):
        AnswerReader([next(places)], headers[0], asks={"message": "Warm up"}).read(tries=1)
    askers = [AnswerReader([next(places)], headers[number], asks=question(number)) for number in range(answers)]
    chance = random.Random(1)  # noqa: S311
    longest = spread + words * pause / 2
    joining = [(number % answers, chance.uniform(1, longest)) for number in range(readers - answers)]
    seen = {"rest_bytes": _resident(webs), "peak_bytes": 0, "at_once": 0}

    def look() -> None:
        seen["peak_bytes"] = max(seen["peak_bytes"], _resident(webs))
        written = sum(asker.is_reading and asker.turn_id is not None for asker in askers)
        seen["at_once"] = max(seen["at_once"], written)

    with looking(look, every=MEMORY_EVERY_SECONDS), ThreadPoolExecutor(max_workers=readers) as pool:
        asked = [pool.submit(_ask, asker, spread * number / answers) for number, asker in enumerate(askers)]
        joined = [
            pool.submit(_join, askers[number], after, [next(places) for _ in addresses], headers[number])
            for number, after in joining
        ]
    for future in asked:
        future.result()
    others = [(number, future.result()) for (number, _), future in zip(joining, joined, strict=True)]
    counts = Counter(_ending(reader, whole_answer(number, words)) for number, reader in [*enumerate(askers), *others])
    return {
        "figures": {
            **percentiles([asker.first_event_ms for asker in askers if asker.first_event_ms], "first_event"),
            **percentiles([asker.first_word_ms for asker in askers if asker.first_word_ms], "first_word"),
            **percentiles([one.first_event_ms for _, one in others if one and one.first_event_ms], "joining_reader"),
            **{name: counts[name] for name in ("whole", "refused", "failed", "lost_or_mixed_up")},
            "at_once": seen["at_once"],
        },
        **seen,
    }


def _ask(asker: AnswerReader, after: float) -> None:
    time.sleep(after)
    asker.read(tries=1)
    # Whether it was taken or refused: those who wait for it need wait no longer.
    asker.has_begun.set()


def _join(asker: AnswerReader, after: float, addresses: list[str], headers: dict[str, str]) -> AnswerReader | None:
    """None for an answer that nobody may read, since its question was refused."""
    time.sleep(after)
    asker.has_begun.wait()
    if asker.turn_id is None:
        return None
    leaves = random.random() < LEAVING_SHARE  # noqa: S311
    reader = AnswerReader(addresses, headers, turn_id=asker.turn_id, leaves=leaves)
    reader.read(tries=MOST_TRIES)
    return reader


def _ending(reader: AnswerReader | None, whole: str) -> str:
    if reader is None or reader.ending is None:
        return "refused"
    is_cut_short = reader.ending.name == "error" or reader.ending.data.get("status") == "interrupted"
    if is_cut_short and whole.startswith(reader.text):
        return "failed"
    return "whole" if reader.text == whole else "lost_or_mixed_up"


def _resident(webs: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in webs)


BENCHMARK = Benchmark(
    "answers",
    "many answers at once with many readers, from a fake model: first events, memory, what is lost",
    run,
    {
        "answers": Number(400, "how many are written at once"),
        "readers": Number(1000, "how many read, askers included"),
        "words": Number(100, "of each answer"),
        "pause": Number(0.5, "seconds between two words", may_be_zero=True),
        "webs": Number(1, "how many web processes serve them in turns"),
        "spread": Number(30.0, "seconds in which all are begun"),
    },
)
