"""What the evals' tests may use: the real embedding model, and data sets that they write themselves."""

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections

from core.isolation.connecting import parameters
from evals import scratch
from evals.benchmarks.search import histories
from evals.reliability import product
from testing.cluster import cluster_urls
from testing.servers import DATABASE
from testing.templates import template_of


def built_in_model():
    """Of the settings: the embedder where the suite's fake would not do."""
    return {
        "BACKEND": "memory.backends.minilm.MiniLMEmbedder",
        "OPTIONS": {"cache_dir": settings.MODEL_CACHE_DIR},
    }


@pytest.fixture
def real_embedder(settings):
    """The built-in model: meaning is what these tests are about."""
    settings.EMBEDDER = built_in_model()


@pytest.fixture
def copied_scratch(django_db_setup, monkeypatch):
    """A scratch database begins as a copy of what the migrations made, and `migrate` finds nothing left to do there.

    The migrations take four seconds of a processor; test_throwaway_servers.py goes through them.
    """
    if not cluster_urls():
        template = template_of(connections.settings[DEFAULT_DB_ALIAS]["NAME"])
        monkeypatch.setattr(scratch, "_made", partial(scratch._made, template=template))


@pytest.fixture
def calls_in_this_process():
    """A stand-in for `processes.call_at_once`: threads of this process, with what JSON makes of orders and results.

    A process takes two seconds of a processor to start. That functions can run in one is tested in test_benchmark.py
    and test_benchmark_overload.py.
    """

    def call_at_once(function, environment, orders):
        with ThreadPoolExecutor(len(orders)) as pool:
            return as_json(list(pool.map(lambda order: function(**as_json(order)), orders)))

    return call_at_once


@pytest.fixture
def flushed_in_this_process(monkeypatch):
    """The terms of a made-up history, which the benchmarks leave to processes of workers."""

    def as_the_worker(function, environment, orders):
        with scratch.as_worker():
            return [function(**order) for order in orders]

    monkeypatch.setattr(histories, "call_at_once", as_the_worker)


@pytest.fixture
def people_made_in_this_process(django_db_blocker, monkeypatch):
    """A product's people come from a thread with a connection to its database, as the role of its web process."""

    def make(function, environment, order):
        made = type(connections[DEFAULT_DB_ALIAS])(
            parameters(environment["DATABASE_URL"], name=DATABASE), DEFAULT_DB_ALIAS
        )
        connections[DEFAULT_DB_ALIAS] = made
        try:
            return as_json(function(**order))
        finally:
            made.close()

    def call(function, environment, **order):
        with django_db_blocker.unblock(), ThreadPoolExecutor(1) as pool:
            return pool.submit(make, function, environment, order).result()

    monkeypatch.setattr(product, "call", call)


def as_json(value):
    return json.loads(json.dumps(value))


@pytest.fixture
def write_dataset(tmp_path):
    """Writes rows (or raw lines) as a data set and gives its folder."""

    def write(turns, queries):
        for name, rows in (("turns.jsonl", turns), ("queries.jsonl", queries)):
            lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
            (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path

    return write


@pytest.fixture
def a_dataset(write_dataset):
    """Two people who talk about different things, one question each."""
    return write_dataset(
        [
            turn("alice", "travel", 1, "The ferry to the island leaves at noon"),
            turn("alice", "travel", 2, "Remember my passport number"),
            turn("bob", "travel", 1, "The ferry was late again"),
        ],
        [
            query("alice", "When does the ferry leave?", ["travel", 1]),
            query("bob", "Was the ferry late?", ["travel", 1]),
        ],
    )


def turn(user, conversation, number, message, answer="Noted.", at="2026-01-05T09:30:00"):
    return {
        "user": user,
        "conversation": conversation,
        "turn": number,
        "at": at,
        "user_message": message,
        "assistant_message": answer,
    }


def query(user, text, *gold, category="single-hop"):
    return {"user": user, "id": text, "category": category, "text": text, "gold": list(gold)}


def violations(checks):
    return [check.violation for check in checks if not check.holds]
