"""What search asks of a reranker: a model that reads the query and a text together, and says whether it answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence


class RerankerError(Exception):
    """No scores could be had. The message is for people: it never holds text of theirs, nor a key."""


class RerankerMisconfigured(RerankerError):
    """Trying again changes nothing: a file or a setting, named in the message, has to change first."""


class Reranker(ABC):
    """One instance serves all threads of a process."""

    name: str

    @abstractmethod
    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """Return how well each text answers the query, as log odds: 0 is as likely as not.

        When the time is up it returns the scores of the first texts only, at worst none. Raise a RerankerError.
        """

    def warm_up(self) -> None:  # noqa: B027 (an endpoint loads nothing here)
        """Load what the first query would otherwise wait for. Raise RerankerMisconfigured."""
