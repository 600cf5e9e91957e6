"""Makes a data set's people real: users, conversations and turns by the services, vectors by the workers' code."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from uuid import UUID

from django.utils import timezone

from core.isolation.acting import acting_as
from evals.datasets.reading import Dataset, DatasetError, TurnRow
from evals.scratch import as_worker
from intake.models import Conversation, User
from intake.services import save_exchange, title_from
from memory import indexing, term_segments
from memory.models import Embedding

Report = Callable[[str], None]
REPORT_EVERY = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Loaded:
    """`users` by their name in the data set; `origins` leads from a stored turn back to its (conversation, turn)."""

    users: dict[str, User]
    origins: dict[tuple[UUID, int], tuple[str, int]]


def load(dataset: Dataset, *, report: Report) -> Loaded:
    return load_turns(dataset.turns, report=report)


def load_turns(turns: Iterable[TurnRow], *, zones: Mapping[str, str] = MappingProxyType({}), report: Report) -> Loaded:
    """Save every turn, in this order, as said at its time. Nothing is embedded yet. `zones`: people's time zones."""
    users: dict[str, User] = {}
    conversations: dict[tuple[str, str], Conversation] = {}
    loaded = Loaded(users=users, origins={})
    for row in turns:
        if row.user not in users:
            zone = zones.get(row.user, "UTC")
            users[row.user] = User.objects.create_user(f"person-{len(users) + 1}@evals.invalid", time_zone=zone)
        with acting_as(users[row.user]):
            conversation = conversations.get((row.user, row.conversation))
            if conversation is None:
                conversation = _begin(row, users[row.user])
                conversations[row.user, row.conversation] = conversation
            turn = save_exchange(
                conversation=conversation,
                user_message=row.user_message,
                assistant_message=row.assistant_message,
                said_at=row.at,
            )
        loaded.origins[conversation.pk, turn.turn_number] = (row.conversation, row.turn)
    report(f"Saved {len(loaded.origins):,} turns of {len(users):,} people.")
    return loaded


def embed_all(*, report: Report) -> None:
    """Fill every vector and flush all terms.

    Raises `DatasetError` if some vectors cannot be made: figures without them would mislead.
    """
    with as_worker():
        while indexing.embed_pending(until=timezone.now() + REPORT_EVERY).embedded:
            embedded = Embedding.objects.exclude(vector=None).count()
            report(f"{embedded:,} of {Embedding.objects.count():,} parts embedded.")
        term_segments.flush()
        unfilled = Embedding.objects.filter(vector=None)
        count = unfilled.count()
        last = unfilled.exclude(last_error="").values_list("last_error", flat=True).first()
    if count:
        raise DatasetError(f"{count:,} parts could not be embedded ({last or 'no reason was recorded'}).")


def _begin(row: TurnRow, user: User) -> Conversation:
    return Conversation.objects.create(
        user=user, title=title_from(row.user_message), started_at=row.at, last_active_at=row.at
    )
