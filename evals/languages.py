"""The suite `languages`: questions in twelve languages about texts in the same language and about English texts, and
words as people type them: a part of a joined word, a sign, a number in another writing.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from agent_tools.tools.chat_history import search_chat_history
from evals.datasets.loading import embed_all, load_turns
from evals.datasets.reading import TurnRow
from evals.demo import read_demo
from evals.echo import BEGINNING
from evals.vec02 import Verdict
from intake.models import User

QUESTIONS = Path(__file__).parent / "datasets" / "languages.jsonl"
ENGLISH = "english"
SHOWN = 5
# Of the verdicts, and of the questions of one.
AT_LEAST, OF_QUESTIONS = 0.9, 0.8

Row = dict[str, str]


def run() -> list[Verdict]:
    """A verdict for each language and kind: how many of the right turns are among the first five results."""
    rows: list[Row] = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    by_language: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_language[row["language"]].append(row)
    loaded = load_turns(
        [turn for language, of_language in by_language.items() for turn in _life(language, of_language)],
        report=lambda line: None,
    )
    embed_all(report=lambda line: None)
    origins = loaded.origins

    def rank(user: User, question: str, conversation: str) -> int | None:
        found = search_chat_history.call({"query": question, "mode": "hybrid", "limit": SHOWN}, user=user).results
        turns = [origins[each.conversation_id, each.turn_number] for each in found]
        return turns.index((conversation, 1)) if (conversation, 1) in turns else None

    verdicts = []
    for language, of_language in by_language.items():
        user = loaded.users[language]
        own = defaultdict(list)
        for number, row in enumerate(of_language):
            own[row["kind"]].append(rank(user, row["question"], _conversation(language, number)))
        if language != ENGLISH:
            about_english = loaded.users[ENGLISH]
            questions = [row["question"] for row in of_language if row["kind"] == "meaning"]
            own["about English texts"] = [
                rank(about_english, question, _conversation(ENGLISH, number))
                for number, question in enumerate(questions)
            ]
        verdicts += [_verdict(f"{language}, {kind}", ranks) for kind, ranks in own.items()]
    return verdicts


def _verdict(name: str, ranks: list[int | None]) -> Verdict:
    first, shown = ranks.count(0), sum(rank is not None for rank in ranks)
    claim = f"{shown} of {len(ranks)} in the first {SHOWN}, {first} first"
    return Verdict(name, claim, failure=None if shown >= OF_QUESTIONS * len(ranks) else claim)


def _conversation(language: str, number: int) -> str:
    return f"{language}: {number}"


def _life(language: str, rows: list[Row]) -> Iterator[TurnRow]:
    """The texts, among the chats of the demo."""
    for place, other in enumerate(read_demo()):
        at = BEGINNING + timedelta(days=place)
        yield _turn(language, f"{language}: other {place}", at, other.user_message, other.assistant_message)
    for number, row in enumerate(rows):
        yield _turn(language, _conversation(language, number), BEGINNING + timedelta(days=3 * number), row["text"])


def _turn(language: str, conversation: str, at: datetime, message: str, answer: str = "") -> TurnRow:
    return TurnRow(
        user=language, conversation=conversation, turn=1, at=at, user_message=message, assistant_message=answer
    )
