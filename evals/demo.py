"""A person to look at the product with: half a year of conversations, saved by the services like anybody's."""

import secrets
from datetime import datetime, time, timedelta
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from evals.datasets.reading import read_rows
from intake.models import Conversation, User
from intake.services import save_exchange, title_from

HISTORY = Path(__file__).parent / "datasets" / "demo.jsonl"
EMAIL = "demo@example.com"
# As if brought along from elsewhere, so that a second run finds each conversation again by its name.
SOURCE = "demo"


class DemoTurn(BaseModel):
    """A line of `demo.jsonl`; `time` is UTC on the day that lies `days_ago` before the first run."""

    model_config = ConfigDict(frozen=True)

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
