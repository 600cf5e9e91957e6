"""Where a list, newest first, was left: what an address carries from one page of it to the next."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self
from uuid import UUID

from django.db.models import Q

from core.errors import InvalidInput, NotFound
from core.validation import LONGEST_REFERENCE


@dataclass(frozen=True, slots=True)
class Position:
    """After the row of this moment and this id; of rows of one moment the greater id comes first."""

    moment: datetime
    row_id: UUID

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what `str` writes; raises `ValueError` for anything else."""
        written, _, row_id = text.partition("_")
        moment = datetime.fromisoformat(written)
        if moment.tzinfo is None:
            raise ValueError(text)
        try:
            # The database does not take every offset that Python does.
            return cls(moment.astimezone(UTC), UUID(row_id))
        except OverflowError:
            raise ValueError(text) from None

    def __str__(self) -> str:
        # With a Z, for a plus sign in an address is read as a space.
        moment = self.moment.astimezone(UTC).replace(tzinfo=None)
        return f"{moment.isoformat()}Z_{self.row_id}"

    def later_in_list(self, by: str) -> Q:
        """The rows after this one, in a list that goes `by` this field and then by id."""
        same_moment = Q(**{by: self.moment, "id__gte": self.row_id})
        return Q(**{f"{by}__lte": self.moment}) & ~same_moment


def position_in_address(text: str | None) -> Position | None:
    """Raises `NotFound` for what is none: nobody typed it, they followed a link; `InvalidInput` for an endless one."""
    if text and len(text) > LONGEST_REFERENCE:
        raise InvalidInput(errors={"after": [f"At most {LONGEST_REFERENCE} characters."]})
    try:
        return Position.parse(text) if text else None
    except ValueError:
        raise NotFound from None
