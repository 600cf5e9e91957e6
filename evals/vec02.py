"""The suite `vec-02`: the three evals that the chat memory's specification names, put to the tool an agent would call.

V2-01 what one said is found, V2-02 nobody else finds it, V2-03 who never said anything gets an empty answer, no error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent_tools.tools.chat_history import search_chat_history
from evals.datasets.loading import Loaded, embed_all, load_turns
from evals.datasets.reading import Dataset, read_dataset
from intake.models import User

SEEDS = Path(__file__).parent / "datasets" / "vec02"
NEWCOMER = "newcomer@evals.invalid"
MOST = 20
# The specification's words, not the code's: the suite is what notices when the two part.
NO_HISTORY = "no chat history found"
NO_CALLER = "user identity required"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`failure` says what was wrong; None means that the eval passed."""

    id: str
    claim: str
    failure: str | None = None

    def __str__(self) -> str:
        return f"{self.id} {'FAIL' if self.failure else 'pass'}  {self.failure or self.claim}"


def run() -> list[Verdict]:
    """Fill an empty database with the seeds and judge the three claims on it."""
    seeds = read_dataset(SEEDS)
    # The suite's own lines are all there is to read.
    loaded = load_turns(seeds.turns, report=lambda line: None)
    embed_all(report=lambda line: None)
    newcomer = User.objects.create_user(NEWCOMER)
    return [
        _judge("V2-01", "one's own history: the relevant turn comes first", partial(finds_own, seeds, loaded)),
        _judge("V2-02", "somebody else's history: blocked, without an error", partial(blocks_others, seeds, loaded)),
        _judge("V2-03", "no history: an empty answer with a note", partial(answers_emptily, newcomer)),
    ]


def finds_own(seeds: Dataset, loaded: Loaded) -> None:
    """Each person's questions share few words with the turn that answers them; that turn must come first."""
    for query in seeds.queries:
        results = _ask(loaded.users[query.user], query.text).results
        first = [loaded.origins[result.conversation_id, result.turn_number] for result in results[:1]]
        if first != query.gold[:1]:
            raise AssertionError(f"{query.text!r} should find {query.gold[0]} first and found {first or 'nothing'}.")


def blocks_others(seeds: Dataset, loaded: Loaded) -> None:
    """Everybody asks everybody's questions, for as many results as there may be."""
    owners = {key: loaded.users[row.user] for key, row in zip(loaded.origins, seeds.turns, strict=True)}
    for query in seeds.queries:
        for name, user in loaded.users.items():
            found = _ask(user, query.text, limit=MOST).results
            leaked = [one for one in found if owners[one.conversation_id, one.turn_number] != user]
            if leaked:
                raise AssertionError(f"{name} asked {query.text!r} and was shown {len(leaked)} turns of somebody else.")


def answers_emptily(newcomer: User) -> None:
    for user, note in ((newcomer, NO_HISTORY), (None, NO_CALLER)):
        output = _ask(user, "What did I say about the holiday?")
        if output.results or output.total_found or output.note != note:
            raise AssertionError(
                f"Expected nothing and the note {note!r}; got {output.total_found} and {output.note!r}."
            )


def _judge(id_: str, claim: str, expectation: Callable[[], None]) -> Verdict:
    try:
        expectation()
    except AssertionError as failed:
        return Verdict(id_, claim, failure=str(failed))
    except Exception as error:  # an error is what these evals rule out
        return Verdict(id_, claim, failure=f"{type(error).__name__}: {error}")
    return Verdict(id_, claim)


def _ask(user: User | None, query: str, **arguments: Any) -> Any:
    return search_chat_history.call({"query": query, **arguments}, user=user)
