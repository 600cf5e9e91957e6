"""What a search may look at: one person's rows, of some corpora, said within a time."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from intake.models import User
from memory.models import Corpus


@dataclass(frozen=True, slots=True)
class Scope:
    """`since` is inclusive, `until` is not; None leaves that side open."""

    user: User
    corpora: tuple[Corpus, ...]
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_dated(self) -> bool:
        return self.since is not None or self.until is not None

    def parameters(self) -> dict[str, Any]:
        """What the statements of both legs ask for by name."""
        return {
            "user_id": self.user.pk,
            "corpora": list(self.corpora),
            "since": self.since or "-infinity",
            "until": self.until or "infinity",
        }
