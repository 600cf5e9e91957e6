"""Who is asking, as isolation knows it."""

from dataclasses import dataclass

from django.db.models import Q


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

    def owns(self) -> Q:
        """The caller's rows; none while nobody is known."""
        return Q(pk__in=[]) if self.user_id is None else Q(user_id=self.user_id)
