"""The caller, as isolation knows them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, from the session or token: a user's id, or None before one is known.

    `is_visitor`: the user has not registered, so the tools answer that an identity is required. The flag grants no
    access.
    """

    user_id: int | None
    is_visitor: bool = False

    @property
    def is_registered(self) -> bool:
        return self.user_id is not None and not self.is_visitor
