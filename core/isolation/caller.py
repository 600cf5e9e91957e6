"""Who is asking, as isolation knows it."""

from dataclasses import dataclass

from django.db.models import Q


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking: a person, or a visitor known only by a secret key in their session; never an argument's word."""

    user_id: int | None
    visitor_key: str | None = None

    def owns(self) -> Q:
        """The caller's rows; none for a caller who is neither a person nor a known visitor."""
        if self.user_id is not None:
            return Q(user_id=self.user_id)
        if self.visitor_key:
            return Q(user_id=None, session_key=self.visitor_key)
        return Q(pk__in=[])
