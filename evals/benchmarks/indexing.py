"""The costs of the embedding model: `benchmark indexing` and `embedding`.

`indexing`: how fast a worker fills the index, beside the bare model, and how soon a turn is searchable.

1. Turns are saved while the worker is not told of them; then it is, and the time until no part waits is taken.
2. A fresh process embeds the same parts in the same batches with nothing around it. 1 and 2 take turns, so that both
   see the same machine.
3. Turns are saved one by one, as the chat does, and each is searched for until it is found.

`embedding`: what embedding one query costs the person who waits for it, the model being loaded.
"""

import time
from collections.abc import Iterator
from typing import Any

from celery import Celery
from django.conf import settings
from django.utils import timezone

from core.isolation.acting import Caller, acting_as
from evals import synthetic
from evals.benchmarks.base import Benchmark, Figures, percentiles
from evals.benchmarks.saving import begin_conversation, save_answer, save_message
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import Environment, call, environment, own_broker, worker
from evals.scratch import as_worker, scratch_database
from evals.synthetic import SyntheticTurn
from intake.chats.services import save_exchange
from intake.models import Turn, User
from memory.backends.embedders import configured_embedders, get_embedder
from memory.index.sources import cut, turn_entry
from memory.models import Embedding
from memory.search import search_chat_history

# Many short rounds rather than a few long ones: what else the machine does then troubles both alike.
ROUNDS = 6
PEOPLE = 5
WARM_UP_TURNS = 20
WARM_UP_QUERIES = 20
LOOK_SECONDS = 0.05
# Each look for a turn embeds its message and so takes time from the worker.
SEARCH_SECONDS = 0.02
LONGEST_SECONDS = 60


def run(options: dict[str, Any], report: Report) -> Figures:
    with scratch_database() as database, own_broker() as broker:
        given = environment(database=database, broker=broker)
        with worker(given):
            throughput = _throughput(options["turns"], given, report)
            report(f"Timing {options['samples']} turns one by one.")
            waits = call(milliseconds_until_found, given, samples=options["samples"], seed=99)
    return throughput | percentiles(waits, "searchable")


def _throughput(count: int, given: Environment, report: Report) -> Figures:
    list(saving_turns(WARM_UP_TURNS, seed=0))
    work_off(given)
    pipeline_seconds = model_seconds = 0.0
    for round_number in range(1, ROUNDS + 1):
        turns = list(saving_turns(count // ROUNDS, seed=round_number))
        pipeline_seconds += work_off(given)
        model_seconds += call(embedding_seconds, given, batches=_batches(turns))
        report(f"Round {round_number} of {ROUNDS}: pipeline {pipeline_seconds:.1f} s, model {model_seconds:.1f} s.")
    worked_off = count // ROUNDS * ROUNDS
    return {
        "pipeline_turns_per_s": round(worked_off / pipeline_seconds, 2),
        "model_turns_per_s": round(worked_off / model_seconds, 2),
    }


def embedding_seconds(*, batches: list[list[str]]) -> float:
    """Runs in a process of its own: how long the warm model takes for these texts, with nothing around it."""
    embedder = get_embedder()
    embedder.embed_documents(batches[0])
    begun = time.perf_counter()
    for batch in batches:
        embedder.embed_documents(batch)
    return time.perf_counter() - begun


def milliseconds_until_found(*, samples: int, seed: int) -> list[float]:
    """Runs in a process of its own: from the moment that each turn's save returned to the end of the search."""
    user = User.objects.create_user("searcher@evals.invalid")
    return [_milliseconds_until_found(user, said) for said in synthetic.turns(samples, seed=seed)]


def _milliseconds_until_found(user: User, said: SyntheticTurn) -> float:
    turn = save_message(begin_conversation(user), said)
    save_answer(turn, said)
    saved = time.perf_counter()
    while time.perf_counter() - saved < LONGEST_SECONDS:
        with acting_as(user):
            matches = search_chat_history(user=user, query=said.user_message, limit=10).matches
        if any(hit.key[0] == turn.conversation_id for hit in matches):
            return 1000 * (time.perf_counter() - saved)
        time.sleep(SEARCH_SECONDS)
    raise TimeoutError(f"A turn was not found within {LONGEST_SECONDS} s.")


def saving_turns(count: int, *, seed: int, answer_length: int | None = None) -> Iterator[Turn]:
    """So many synthetic turns of some new people, saved by the service as they are taken; they wait for a worker."""
    users = [User.objects.create_user(f"person-{seed}-{number}@evals.invalid") for number in range(PEOPLE)]
    conversations = [begin_conversation(user) for user in users]
    for number, said in enumerate(synthetic.turns(count, seed=seed, answer_length=answer_length)):
        conversation = conversations[number % PEOPLE]
        with acting_as(Caller(user_id=conversation.user_id)):
            turn = save_exchange(
                conversation=conversation,
                user_message=said.user_message,
                assistant_message=said.assistant_message,
                said_at=timezone.now(),
            )
        yield turn


def work_off(given: Environment) -> float:
    """Tell the worker that something waits; returns the seconds until nothing does."""
    begun = time.perf_counter()
    with Celery(broker=given["CELERY_BROKER_URL"], set_as_current=False) as sender:
        sender.send_task("memory.embed_pending", ignore_result=True)
    with as_worker():
        while Embedding.objects.waiting().exists():
            time.sleep(LOOK_SECONDS)
    return time.perf_counter() - begun


def _batches(turns: list[Turn]) -> list[list[str]]:
    """The parts in the order in which the worker takes them, as many at a time."""
    embedder = get_embedder()
    texts = [text for turn in turns for text in turn_entry(turn).texts]
    parts = [part for text in texts for _, part in cut(text, embedder)]
    size = settings.EMBEDDING_BATCH_SIZE
    return [parts[start : start + size] for start in range(0, len(parts), size)]


def time_queries(options: dict[str, Any], report: Report) -> Figures:
    # The model of the settings: which one made an index says only its database.
    embedder, *_ = configured_embedders()
    for query in synthetic.queries(WARM_UP_QUERIES, seed=1):
        embedder.embed_query(query)
    report(f"Embedding {options['samples']} queries one by one.")
    milliseconds = []
    for query in synthetic.queries(options["samples"]):
        begun = time.perf_counter()
        embedder.embed_query(query)
        milliseconds.append(1000 * (time.perf_counter() - begun))
    return percentiles(milliseconds, "query")


INDEXING = Benchmark(
    "indexing",
    "a worker's throughput beside the bare model's, and the time from a save to being found",
    run,
    {
        "turns": Number(600, "how many the worker works off"),
        "samples": Number(60, "how many are timed one by one"),
    },
)
EMBEDDING = Benchmark(
    "embedding",
    "the time to embed one query",
    time_queries,
    {"samples": Number(300, "how many queries of about 12 tokens")},
)
