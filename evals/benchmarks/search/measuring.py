"""Everything that is measured on a filled database: ours, the peers, over HTTP, and saving."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from evals.benchmarks.search import ours
from evals.benchmarks.search.asking import AskedQuestions, Question, Timing, timed, timed_beside
from evals.benchmarks.search.ours import LIMIT
from evals.benchmarks.search.over_http import Web
from evals.benchmarks.search.peers import PEERS, Exact, Peer, PeerMissing
from evals.benchmarks.search.stored import Stored, read
from evals.datasets.loading import Report
from evals.processes import Environment, web
from intake.models import User
from memory.embedders import get_embedder
from memory.models.corpora import Key
from memory.search import SearchMode
from memory.search.chat_history import further_of

# Among so many of the nearest passages are more than `LIMIT` turns.
PASSAGES = 1_000

Groups = dict[int, list[AskedQuestions]]
"""The questions for each user, by how many turns they have."""
Results = dict[int, dict[str, Timing]]
"""By the same, and by the name of the search."""


class Measured:
    """Timings by the size of a history and the search; `recall` by search: the share of the exact answer it found.

    `beside` is by peer how long the semantic search took where the two were asked in turns, the largest histories.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.results: Results = {size: {} for size in groups}
        self.recall: dict[str, float] = {}
        self.beside: dict[str, Timing] = {}
        self.missing: list[str] = []
        self._exact: list[set[Key]] = []

    def ours(self, report: Report) -> None:
        """In the database, the queries' vectors being there; and the semantic one's recall."""
        found: list[list[Key]] = []
        for size, asked in self.groups.items():
            for name, search in ours.SEARCHES.items():
                report(f"Asking {name}, {size:,} turns a person.")
                done = timed(asked, search)
                self.results[size][name] = done.figures
                if name == "semantic_db":
                    found += done.answers
        exact = Exact(Path(), further=further_of(get_embedder()))
        exact.load(read(one.user) for asked in self.groups.values() for one in asked)
        best = [
            _first_turns(exact.search(one.user, question.vector, limit=PASSAGES))
            for asked in self.groups.values()
            for one in asked
            for question in one.questions
        ]
        self.recall["semantic_db"] = _recall(found, best)

    def peers(self, everybody: Sequence[User], report: Report) -> None:
        """Each that is installed, one after the other, so that only one of them takes room on the disk."""
        for kind in PEERS:
            with TemporaryDirectory(prefix=f"recollect-{kind.name}-") as folder:
                try:
                    peer = kind(Path(folder))
                except PeerMissing as error:
                    self.missing.append(f"{kind.name}: {error}")
                    report(f"Without {kind.name}: {error}")
                    continue
                with closing(peer):
                    self._peer(peer, everybody, report)

    def over_http(self, given: Environment, report: Report) -> tuple[float, dict[int, float]]:
        """Requests a second with the largest histories, and the web process's MB by the size of what it searched."""
        held: dict[int, float] = {}
        with web(given) as (address, process):
            searched = Web(address, process, given)
            for size, asked in self.groups.items():
                for name, mode in (("semantic_http", SearchMode.SEMANTIC), ("hybrid_http", SearchMode.HYBRID)):
                    report(f"Asking {name}, {size:,} turns a person.")
                    self.results[size][name] = searched.timing(asked, mode)
                held[size] = searched.megabytes()
            report("Asking over HTTP with 8 clients.")
            return searched.requests_per_second(self.groups[max(self.groups)], SearchMode.HYBRID), held

    def _peer(self, peer: Peer, everybody: Sequence[User], report: Report) -> None:
        report(f"Loading {peer.name}.")
        is_exact = isinstance(peer, Exact)
        # The floor holds in memory only the vectors that it searches.
        peer.load(self._asked_people() if is_exact else map(read, everybody))
        answers: list[list[Key]] = []

        def look_up(user: User, question: Question) -> list[Key]:
            return peer.search(user, question.vector, limit=LIMIT)

        for size, asked in self.groups.items():
            report(f"Asking {peer.name}, {size:,} turns a person.")
            if size < max(self.groups):
                done = timed(asked, look_up)
            else:
                done, beside = timed_beside(asked, look_up, ours.semantic)
                self.beside[peer.name] = beside.figures
            self.results[size][peer.name] = done.figures
            answers += done.answers
        if is_exact:
            self._exact = [set(answer) for answer in answers]
        self.recall[peer.name] = _recall(answers, self._exact)

    def _asked_people(self) -> Iterator[Stored]:
        return (read(one.user) for asked in self.groups.values() for one in asked)


def _first_turns(parts: Sequence[Key]) -> set[Key]:
    """A turn may have several parts among the nearest."""
    return set(list(dict.fromkeys(parts))[:LIMIT])


def _recall(found: Sequence[Sequence[Key]], wanted: Sequence[set[Key]]) -> float:
    shares = [len(set(one) & best) / len(best) for one, best in zip(found, wanted, strict=True)]
    return round(sum(shares) / len(shares), 4)
