"""Pages through lists, newest first. The position after the last row is the cursor in the next address."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, Self, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from core.errors import InvalidInput, NotFound
from core.text import Sentence
from core.text import gettext_noop as _
from core.validation import LONGEST_REFERENCE

ListedRow = TypeVar("ListedRow")
StoredRow = TypeVar("StoredRow", bound=Model)


@dataclass(frozen=True, slots=True)
class Position:
    """The position after the row with this time and id. Among rows of one time the greater id comes first."""

    moment: datetime
    row_id: UUID

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the output of `str`; raises `ValueError` for anything else."""
        written, _, row_id = text.partition("_")
        moment = datetime.fromisoformat(written)
        if moment.tzinfo is None:
            raise ValueError(text)
        try:
            # The database does not accept every offset that Python does.
            return cls(moment.astimezone(UTC), UUID(row_id))
        except OverflowError:
            raise ValueError(text) from None

    def __str__(self) -> str:
        # With a Z, because a plus sign in an address is read as a space.
        moment = self.moment.astimezone(UTC).replace(tzinfo=None)
        return f"{moment.isoformat()}Z_{self.row_id}"

    def later_in_list(self, by: str) -> Q:
        """The rows after this one, in a list ordered by this field and then by id."""
        same_moment = Q(**{by: self.moment, "id__gte": self.row_id})
        return Q(**{f"{by}__lte": self.moment}) & ~same_moment


@dataclass(frozen=True, slots=True)
class ListPage(Generic[ListedRow]):
    """`more` is the beginning of the next page, if there is one."""

    rows: list[ListedRow]
    more: Position | None


def page_of(found: "QuerySet[StoredRow]", *, by: str, after: Position | None, size: int) -> ListPage[StoredRow]:
    """The newest rows by this field, then by id, after `after`."""
    found = found.order_by(f"-{by}", "-id")
    if after is not None:
        found = found.filter(after.later_in_list(by))
    rows = list(found[: size + 1])
    more = None if len(rows) <= size else Position(*(getattr(rows[size - 1], name) for name in (by, "id")))
    return ListPage(rows[:size], more)


def position_in_address(text: str | None) -> Position | None:
    """Raises `NotFound` for an invalid cursor, which comes from a link and not from typing; `InvalidInput` for one that
    is too long.
    """
    if text and len(text) > LONGEST_REFERENCE:
        raise InvalidInput(errors={"after": [Sentence(_("At most %(count)s characters."), count=LONGEST_REFERENCE)]})
    try:
        return Position.parse(text) if text else None
    except ValueError:
        raise NotFound from None
