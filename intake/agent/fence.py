"""What is recalled reaches the model between marks that it cannot contain: whatever it says, it is data."""

import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fence:
    """One answer's own mark: nothing that was written before knows it, and what is written meanwhile loses it."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def opening(self) -> str:
        return f"<data {self.mark}>"

    @property
    def closing(self) -> str:
        return f"</data {self.mark}>"

    def around(self, text: str) -> str:
        # Repeatedly, for what is left when a mark is taken out may be one.
        while self.mark in text:
            text = text.replace(self.mark, "")
        return f"{self.opening}\n{text}\n{self.closing}"
