"""Makes the people of a data set real: all they said and wrote by the services, vectors by the workers' code."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

from django.core.management import CommandError
from django.utils import timezone

from core.isolation.acting import acting_as
from evals import synthetic
from evals.datasets.reading import Life, TurnRow
from evals.scratch import as_worker
from intake.chats.services import save_exchange, title_from
from intake.models import Conversation, User
from memory import documents, index, records
from memory.index import segments
from memory.models import Embedding

Report = Callable[[str], None]
REPORT_EVERY = timedelta(seconds=5)
# The kinds of document that the product has.
DOCUMENTS = ("memory", "daily")
DISTRACTORS_IN_A_CONVERSATION = 12


@dataclass(frozen=True, slots=True)
class Loaded:
    """`users` by their name in the data set; `origins` leads from a stored turn back to its (conversation, turn)."""

    users: dict[str, User]
    origins: dict[tuple[UUID, int], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class LoadedLife:
    """`users` by their name; `names` leads from what is stored back to its (kind, id) in the data set."""

    users: dict[str, User]
    names: dict[Any, tuple[str, str]]


def load_turns(turns: Iterable[TurnRow], *, zones: Mapping[str, str] = MappingProxyType({}), report: Report) -> Loaded:
    """Save every turn, in this order, as said at its time. Nothing is embedded yet. `zones`: people's time zones."""
    users: dict[str, User] = {}
    conversations: dict[tuple[str, str], Conversation] = {}
    loaded = Loaded(users=users, origins={})
    for row in turns:
        if row.user not in users:
            zone = zones.get(row.user, "UTC")
            users[row.user] = User.objects.create_user(f"person-{len(users) + 1}@evals.invalid", time_zone=zone)
        user, place = users[row.user], (row.user, row.conversation)
        with acting_as(user):
            if place not in conversations:
                conversations[place] = Conversation.objects.create(
                    user=user, title=title_from(row.user_message), started_at=row.at, last_active_at=row.at
                )
            turn = save_exchange(
                conversation=conversations[place],
                user_message=row.user_message,
                assistant_message=row.assistant_message,
                said_at=row.at,
            )
        loaded.origins[turn.conversation_id, turn.turn_number] = (row.conversation, row.turn)
    report(f"Saved {len(loaded.origins):,} turns of {len(users):,} people.")
    return loaded


def load_life(life: Life, *, distractors: int, report: Report) -> LoadedLife:
    """Save everything as said and written at its time. Nothing is embedded yet.

    `distractors`: so many made-up turns are added to each person's, spread over the time of theirs.
    """
    zones = {query.user: query.timezone for query in life.queries}
    loaded = load_turns([*life.turns, *_distractors(life.turns, distractors)], zones=zones, report=report)
    names: dict[Any, tuple[str, str]] = {
        stored: ("turn", f"{conversation}#{turn}") for stored, (conversation, turn) in loaded.origins.items()
    }
    for row in life.documents:
        if row.kind in DOCUMENTS:
            with acting_as(user := loaded.users[row.user]):
                written = documents.create(user=user, day=row.day, content=row.text, now=life.ends[row.user])
            names[written.id] = ("document", row.id)
    for record in life.records:
        kept = record.model_dump(include={"content", "type", "project_id", "tags"})
        with acting_as(user := loaded.users[record.user]):
            names[records.create(user=user, now=record.created_at, **kept).id] = ("record", record.id)
    report(f"Saved {len(life.documents):,} documents and {len(life.records):,} records.")
    return LoadedLife(loaded.users, names)


def _distractors(turns: list[TurnRow], count: int) -> Iterator[TurnRow]:
    """Made-up conversations in the order of time."""
    times: dict[str, list[datetime]] = defaultdict(list)
    for turn in turns:
        times[turn.user].append(turn.at)
    for seed, (user, said_at) in enumerate(times.items(), start=1):
        said_at.sort()
        for number, made_up in enumerate(synthetic.turns(count, seed=seed)):
            conversation, turn_number = divmod(number, DISTRACTORS_IN_A_CONVERSATION)
            yield TurnRow(
                user=user,
                conversation=f"distractors-{conversation}",
                turn=turn_number + 1,
                at=said_at[number * len(said_at) // count],
                user_message=made_up.user_message,
                assistant_message=made_up.assistant_message,
            )


def embed_all(*, report: Report) -> None:
    """Fill every vector and flush all terms.

    Raises `CommandError` if some vectors cannot be made: figures without them would mislead.
    """
    with as_worker():
        while index.embed_pending(until=timezone.now() + REPORT_EVERY):
            embedded = Embedding.objects.exclude(vector=None).count()
            report(f"{embedded:,} of {Embedding.objects.count():,} parts embedded.")
        segments.flush()
        unfilled = Embedding.objects.filter(vector=None)
        count = unfilled.count()
        last = unfilled.exclude(last_error="").values_list("last_error", flat=True).first()
    if count:
        raise CommandError(f"{count:,} parts could not be embedded ({last or 'no reason was recorded'}).")
