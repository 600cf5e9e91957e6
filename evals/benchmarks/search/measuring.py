"""Everything that is measured on a filled database: ours, the peers, and the same questions over HTTP."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent_tools.models import AccessToken
from evals.benchmarks.search.asking import (
    LIMIT,
    OURS,
    AskedQuestions,
    Question,
    Timing,
    figures,
    search_semantic,
    timed,
)
from evals.benchmarks.search.peers import PEERS, Exact, Peer, read
from evals.client import Client
from evals.datasets.loading import Report, embed_all, load_turns
from evals.datasets.reading import read_dataset
from evals.processes import Environment, call, web
from evals.scratch import scratch_database
from intake.models import User
from memory.backends.embedders import TUNED, get_embedder
from memory.models.documents import Key

# Among so many of the nearest passages are more than `LIMIT` turns.
PASSAGES = 1_000
CLIENTS = 8
SECONDS = 10
PATH = "/api/v1/tools/search_chat_history/"
# By the name of the search over HTTP.
MODES = {"semantic_http": "semantic", "hybrid_http": "hybrid"}

Groups = dict[int, list[AskedQuestions]]
"""The questions for each user, by how many turns they have."""
Results = dict[int, dict[str, Timing]]
"""By the same, and by the name of the search."""
SearchCall = tuple[str, dict[str, Any]]
"""A search over HTTP: whose token, and the body."""


class Measured:
    """Timings by the size of a history and the search; `recall` by search: the share of the exact answer it found.

    `beside` is by peer how long the semantic search took where the two were asked in turns, the largest histories.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.asked = [one for asked in groups.values() for one in asked]
        self.results: Results = {size: {} for size in groups}
        self.recall: dict[str, float] = {}
        self.beside: dict[str, Timing] = {}
        self.missing: list[str] = []
        self._exact: list[set[Key]] = []

    def ours(self, report: Report) -> None:
        """In the database, the queries' vectors being there; and the semantic one's recall."""
        found: list[list[Key]] = []
        for size, asked in self.groups.items():
            for name, search in OURS.items():
                report(f"Asking {name}, {size:,} turns a person.")
                (done,) = timed(asked, search)
                self.results[size][name] = done.figures
                if name == "semantic_db":
                    found += done.answers
        self.recall["semantic_db"] = _share_of_exact(self.asked, found)

    def peers(self, everybody: Sequence[User], report: Report) -> None:
        """Each that is installed, one after the other, so that only one of them takes room on the disk."""
        for kind in PEERS:
            with TemporaryDirectory(prefix=f"recollect-{kind.name}-") as folder:
                try:
                    peer = kind(Path(folder))
                except ImportError as error:
                    self.missing.append(f"{kind.name}: {error}")
                    report(f"Without {kind.name}: {error}")
                    continue
                with closing(peer):
                    self._peer(peer, everybody, report)

    def _peer(self, peer: Peer, everybody: Sequence[User], report: Report) -> None:
        report(f"Loading {peer.name}.")
        is_exact = isinstance(peer, Exact)
        # The floor holds in memory only the vectors that it searches.
        peer.load(map(read, [one.user for one in self.asked] if is_exact else everybody))
        answers: list[list[Key]] = []

        def look_up(user: User, question: Question) -> list[Key]:
            return peer.search(user, question.vector, limit=LIMIT)

        for size, asked in self.groups.items():
            report(f"Asking {peer.name}, {size:,} turns a person.")
            if size < max(self.groups):
                (done,) = timed(asked, look_up)
            else:
                done, beside = timed(asked, look_up, search_semantic)
                self.beside[peer.name] = beside.figures
            self.results[size][peer.name] = done.figures
            answers += done.answers
        if is_exact:
            self._exact = [set(answer) for answer in answers]
        self.recall[peer.name] = _recall(answers, self._exact)

    def over_http(self, given: Environment, report: Report) -> tuple[float, dict[int, float]]:
        """Requests a second with the largest histories, and the web process's MB by the size of what it searched.

        As agents ask: with a token, a real web process with its real model.
        """
        held: dict[int, float] = {}
        tokens = {one.user.pk: AccessToken.objects.issue(user=one.user)[1] for one in self.asked}
        with web(given) as (address, program):
            for size, asked in self.groups.items():
                for name, mode in MODES.items():
                    report(f"Asking {name}, {size:,} turns a person.")
                    warm_up = [_request(tokens, one, question, mode) for one in asked for question in one.warm_up]
                    requests = [_request(tokens, one, question, mode) for one in asked for question in one.questions]
                    taken = call(ask_in_order, given, address=address, warm_up=warm_up, requests=requests)
                    self.results[size][name] = figures(taken)
                held[size] = program.megabytes()[0]
            report(f"Asking over HTTP with {CLIENTS} clients.")
            # The last ones: hybrid, the largest histories.
            order = {"address": address, "requests": requests, "clients": CLIENTS, "seconds": SECONDS}
            return float(round(call(ask_at_once, given, **order), 1)), held


def recall_of_one_person(folders: Sequence[Path], report: Report) -> float:
    """The semantic search's, with the real model: somebody who said all turns of these data sets asks all questions."""
    datasets = [read_dataset(folder) for folder in folders]
    turns = [
        turn.model_copy(update={"user": "all", "conversation": f"{number}/{turn.user}/{turn.conversation}"})
        for number, dataset in enumerate(datasets)
        for turn in dataset.turns
    ]
    with scratch_database():
        user = load_turns(turns, report=report).users["all"]
        embed_all(report=report)
        texts = [query.text for dataset in datasets for query in dataset.queries]
        asked = AskedQuestions(user, [], [Question(text, get_embedder().embed_query(text)) for text in texts])
        return _share_of_exact([asked], [search_semantic(user, question) for question in asked.questions])


def _request(tokens: dict[int, str], one: AskedQuestions, question: Question, mode: str) -> SearchCall:
    return tokens[one.user.pk], {"query": question.text, "limit": LIMIT, "mode": mode}


def ask_in_order(*, address: str, warm_up: list[SearchCall], requests: list[SearchCall]) -> list[float]:
    """Runs in a process of its own: the milliseconds of each request, by one client on one connection."""
    with Client(address) as client:
        for request in warm_up:
            _milliseconds(client, request)
        return [_milliseconds(client, request) for request in requests]


def ask_at_once(*, address: str, requests: list[SearchCall], clients: int, seconds: float) -> float:
    """Runs in a process of its own: answers a second, to clients who ask again and again, each on one connection."""
    begun = time.perf_counter()

    def count_answers(number: int) -> int:
        # Each begins with another request.
        first, answers = number * (len(requests) // clients), 0
        with Client(address) as client:
            for request in cycle(requests[first:] + requests[:first]):
                if time.perf_counter() >= begun + seconds:
                    return answers
                _milliseconds(client, request)
                answers += 1
        return answers

    with ThreadPoolExecutor(max_workers=clients) as pool:
        answers = sum(pool.map(count_answers, range(clients)))
    return answers / (time.perf_counter() - begun)


def _milliseconds(client: Client, request: SearchCall) -> float:
    """Raises `RuntimeError` for any other answer than something that was found."""
    token, body = request
    begun = time.perf_counter()
    answer = client.ask("POST", PATH, body, {"Authorization": f"Token {token}"})
    taken = 1000 * (time.perf_counter() - begun)
    if not answer.is_ok or not answer.data["results"]:
        raise RuntimeError(f"A search over HTTP was answered {answer}")
    return taken


def _share_of_exact(asked: Sequence[AskedQuestions], found: Sequence[Sequence[Key]]) -> float:
    exact = Exact(Path(), further=(get_embedder().calibration or TUNED).further)
    exact.load(read(one.user) for one in asked)
    best = [
        _first_turns(exact.search(one.user, question.vector, limit=PASSAGES))
        for one in asked
        for question in one.questions
    ]
    return _recall(found, best)


def _first_turns(parts: Sequence[Key]) -> set[Key]:
    """A turn may have several parts among the nearest."""
    return set(list(dict.fromkeys(parts))[:LIMIT])


def _recall(found: Sequence[Sequence[Key]], requested: Sequence[set[Key]]) -> float:
    shares = [len(set(one) & best) / len(best) for one, best in zip(found, requested, strict=True)]
    return round(sum(shares) / len(shares), 4)
