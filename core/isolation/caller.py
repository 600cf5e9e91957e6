"""Who is asking, as isolation knows it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking, by their session or token: a user's id, or None before anybody is known.

    `is_visitor`: the user has not registered, so their tools answer that an identity is required. It opens no row.
    """

    user_id: int | None
    is_visitor: bool = False

    @property
    def is_registered(self) -> bool:
        return self.user_id is not None and not self.is_visitor
