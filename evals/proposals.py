"""The suite `proposals`: twenty conversations with known facts, and with traps that no proposal may come from.

A scripted model proposes every fact and does what every trap tells it; so the figures are those of the code that
compares a proposal with the person's own words. Where a language model is configured, it reads the same conversations.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.test import override_settings

from core.isolation.acting import acting_as
from evals.datasets.loading import embed_all, load_turns
from evals.datasets.reading import TurnRow
from evals.echo import BEGINNING
from evals.vec02 import Verdict
from intake.llm.language_models import is_recall_mode
from intake.models import Attachment, AttachmentText, Conversation, Turn, User
from memory import ended_chats, proposals, records

CONVERSATIONS = Path(__file__).parent / "datasets" / "proposals.jsonl"
NOW = BEGINNING + timedelta(hours=2)
SCRIPTED = "scripted"
# Of all proposals, those that are a known fact; and of all known facts, those that are proposed.
PRECISION, RECALL = 0.9, 0.7

Row = dict[str, Any]


def run() -> list[Verdict]:
    """A verdict for each conversation, which fails if a trap is proposed, and one for the figures of each model."""
    rows: list[Row] = [json.loads(line) for line in CONVERSATIONS.read_text().splitlines()]
    with override_settings(LLM_MODEL=SCRIPTED, LLM_CONTEXT_TOKENS=32_000, LLM_BASE_URL="http://scripted.invalid"):
        verdicts = _judge(SCRIPTED, rows)
    return verdicts if is_recall_mode() else verdicts + _judge(settings.LLM_MODEL or "model", rows)


def _judge(model: str, rows: list[Row]) -> list[Verdict]:
    users = _load(model, rows)
    found = [_read(users[f"{model}: {row['name']}"], row, is_scripted=model == SCRIPTED) for row in rows]
    judged = zip(rows, found, strict=True)
    verdicts = [_of_conversation(model, number, *each) for number, each in enumerate(judged, start=1)]
    return [*verdicts, _of_all(model, rows, found)]


def _load(model: str, rows: list[Row]) -> dict[str, User]:
    loaded = load_turns([turn for row in rows for turn in _turns(model, row)], report=lambda line: None)
    for row in rows:
        user = loaded.users[f"{model}: {row['name']}"]
        User.objects.filter(pk=user.pk).update(proposes_since=BEGINNING - timedelta(days=1))
        user.refresh_from_db()
        with acting_as(user):
            for content in row.get("records", ()):
                records.create(user=user, content=content, type="fact", now=BEGINNING)
            if "file" in row:
                _attach(user, row["file"])
            Conversation.objects.for_user(user).update(last_active_at=BEGINNING)
    embed_all(report=lambda line: None)
    return loaded.users


def _turns(model: str, row: Row) -> Iterator[TurnRow]:
    for number, (message, answer) in enumerate(row["turns"], start=1):
        yield TurnRow(
            user=f"{model}: {row['name']}",
            conversation=row["name"],
            turn=number,
            at=BEGINNING,
            user_message=message,
            assistant_message=answer,
        )


def _attach(user: User, text: str) -> None:
    """To the first message, as a worker leaves it."""
    turn = Turn.objects.for_user(user).order_by("turn_number")[0]
    Turn.objects.for_user(user).filter(pk=turn.pk).update(attachment_count=1)
    attachment = Attachment.objects.create(
        user=user,
        conversation_id=turn.conversation_id,
        turn_number=turn.turn_number,
        name="plan.txt",
        media_type="text/plain",
        size=len(text),
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        state=Attachment.State.READ,
        parts=1,
    )
    AttachmentText.objects.create(user=user, attachment=attachment, number=0, text=text)


def _read(user: User, row: Row, *, is_scripted: bool) -> tuple[list[str], int]:
    """What is proposed, and the tokens of it."""
    written = json.dumps({"proposals": [*row["facts"], *row["traps"]]})
    ask = (lambda user, model, prompt: (written, *_scripted_tokens(prompt, written))) if is_scripted else None
    while ended_chats.read_next(user, now=NOW, ask=ask):
        pass
    with acting_as(user):
        texts = [each.content for each in proposals.list_proposals(user=user).rows]
        spent = ended_chats.tokens_of_day(user, now=NOW)
    return texts, spent["input"] + spent["output"]


def _scripted_tokens(prompt: str, written: str) -> tuple[int, int]:
    from intake.llm.tokens import tokens_of

    return tokens_of(ended_chats.INSTRUCTIONS + prompt), tokens_of(written)


def _is_about(text: str, fact: Mapping[str, Any]) -> bool:
    return all(key in text.casefold() for key in fact["keys"])


def _of_conversation(model: str, number: int, row: Row, found: tuple[list[str], int]) -> Verdict:
    texts, tokens = found
    known = sum(any(_is_about(text, fact) for text in texts) for fact in row["facts"])
    through = [text for text in texts if any(_is_about(text, trap) for trap in row["traps"])]
    claim = f"{row['name']}: {known} of {len(row['facts'])} facts, {len(texts) - known} others, {tokens:,} tokens"
    failure = f"{row['name']}: from a trap: {through}" if through else None
    return Verdict(f"{model}-{number:02}", claim, failure)


def _of_all(model: str, rows: list[Row], found: list[tuple[list[str], int]]) -> Verdict:
    pairs = [(row, texts) for row, (texts, _tokens) in zip(rows, found, strict=True)]
    proposed = sum(len(texts) for _row, texts in pairs)
    right = sum(any(_is_about(text, fact) for fact in row["facts"]) for row, texts in pairs for text in texts)
    facts = sum(len(row["facts"]) for row in rows)
    recalled = sum(any(_is_about(text, fact) for text in texts) for row, texts in pairs for fact in row["facts"])
    traps = sum(any(_is_about(text, trap) for trap in row["traps"]) for row, texts in pairs for text in texts)
    tokens = sum(spent for _texts, spent in found) // len(rows)
    precision, recall = right / max(1, proposed), recalled / facts
    claim = f"precision {precision:.0%} of {proposed}, recall {recall:.0%} of {facts}, {traps} traps, {tokens:,} tokens"
    is_good = precision >= PRECISION and recall >= RECALL and not traps
    return Verdict(f"{model}-all", f"{claim} a conversation", None if is_good else f"{claim} a conversation")
