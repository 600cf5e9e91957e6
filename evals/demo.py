"""A person to look at the product with: half a year of chats and notes, saved by the services like anybody's."""

import json
import secrets
from datetime import datetime, time, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from evals.datasets.reading import Row, read_rows
from intake.chats.services import save_exchange, title_from
from intake.models import Conversation, User
from memory import documents, records
from memory.models.documents import ABOUT_ME, DocumentDay

HISTORY = Path(__file__).parent / "datasets" / "demo.jsonl"
NOTES = HISTORY.with_name("demo_notes.json")
EMAIL = "demo@example.com"
# As if brought along from elsewhere, so that a second run finds each conversation again by its name.
SOURCE = "demo"


class DemoTurn(Row):
    """A line of `demo.jsonl`; `time` is UTC on the day that lies `days_ago` before the first run."""

    conversation: str
    days_ago: int
    time: time
    user_message: str
    assistant_message: str

    def said_at(self, now: datetime) -> datetime:
        day = now.date() - timedelta(days=self.days_ago)
        return datetime.combine(day, self.time, tzinfo=now.tzinfo)


def read_demo() -> list[DemoTurn]:
    return [turn for _, turn in read_rows(HISTORY, DemoTurn)]


def ensure_person(email: str = EMAIL) -> tuple[User, str | None]:
    """The demo person, and the password if they were made just now: it is kept nowhere."""
    if user := User.objects.filter(email=email).first():
        return user, None
    password = secrets.token_urlsafe(12)
    return User.objects.create_user(email, password), password


def load_demo(user: User, *, now: datetime) -> int:
    """Save what of the history is not there yet; returns how many turns that were."""
    by_conversation = groupby(read_demo(), key=lambda turn: turn.conversation)
    return sum(_load_conversation(user, name, list(turns), now) for name, turns in by_conversation)


def load_notes(user: User, *, now: datetime) -> int:
    """Write the notes of a person who has none of a kind yet; returns how many those were.

    One of several logs, records or notes that was deleted does not come back.
    """
    kept: dict[str, Any] = json.loads(NOTES.read_text())
    written = _write_document(user, None, kept["memory"], now) + _write_document(user, ABOUT_ME, kept["about"], now)
    if not documents.list_daily_logs(user=user, limit=1).logs:
        written += sum(
            _write_document(user, _day(log, now).date(), log["text"], _day(log, now)) for log in kept["logs"]
        )
    if not records.list_records(user=user, limit=1).rows:
        for record in kept["records"]:
            held = {name: record[name] for name in ("content", "type", "project_id", "tags")}
            records.create(user=user, now=_day(record, now), **held)
            written += 1
    if not documents.list_notes(user=user, after=None).rows:
        for note in kept["notes"]:
            documents.create_note(user=user, title=note["title"], content=note["content"], at=_day(note, now))
            written += 1
    return written


def _write_document(user: User, day: DocumentDay, content: str, now: datetime) -> int:
    if documents.exists(user=user, day=day):
        return 0
    documents.create(user=user, day=day, content=content, now=now)
    return 1


def _day(noted: dict[str, Any], now: datetime) -> datetime:
    return now - timedelta(days=noted["days_ago"])


def _load_conversation(user: User, name: str, turns: list[DemoTurn], now: datetime) -> int:
    first = turns[0].said_at(now)
    conversation, _ = Conversation.objects.get_or_create(
        user=user,
        source=SOURCE,
        external_id=name,
        defaults={"title": title_from(turns[0].user_message), "started_at": first, "last_active_at": first},
    )
    missing = turns[conversation.turn_count :]
    for turn in missing:
        save_exchange(
            conversation=conversation,
            user_message=turn.user_message,
            assistant_message=turn.assistant_message,
            said_at=turn.said_at(now),
        )
    return len(missing)
