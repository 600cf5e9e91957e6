"""What a turn keeps of the prompt of its answer: the ids, digests and tokens of its parts, and none of their words.

One line for the conditions under which the prompt was made, and one for each part in order: its kind, its id, its
digest, its tokens, and a hyphen if it was found and not sent.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import Self

from django.utils.crypto import salted_hmac

from intake.llm.tokens import tokens_of

# The kinds of parts that come from the user's memory; the others are the conversation and the product's own words.
# A page is a passage of the attachment that keeps what was read on the web.
PAGE = "page"
OF_MEMORY = ("about", "notes", "instructions", "record", "turn", "file", PAGE)


@dataclass(frozen=True, slots=True)
class PromptPart:
    """`id`: of its source, and of some characters of it (`@first-last`). `used`: whether it was sent. `number`: by
    which an answer cites it, from 1. `text`: while a prompt is made; it is not kept.
    """

    kind: str
    id: str = ""
    digest: str = ""
    tokens: int = 0
    used: bool = True
    number: int = 0
    text: str = field(default="", repr=False)

    @classmethod
    def of(cls, kind: str, text: str, id: str = "", *, tokens: int | None = None) -> Self:
        """`tokens`: as they are counted already."""
        counted = tokens_of(text) if tokens is None else tokens
        return cls(kind, id, digest=digest_of(text), tokens=counted, text=text)

    @property
    def source(self) -> str:
        return self.id.partition("@")[0]


@dataclass(frozen=True, slots=True)
class Prompt:
    """`at`: its time, in seconds; `mark`: that of untrusted data. `window` and `room`: the tokens of the model's
    window, and those for what is recalled. `sent`: how many earlier turns it has, the nearest one cut to `cut` tokens.
    `kept`: the characters of the answer that it continues. `traits`: `t` has tools, `p` sees pictures, `m` uses memory.
    """

    at: int = 0
    mark: str = ""
    window: int = 0
    room: int = 0
    sent: int = 0
    cut: int = 0
    kept: int = 0
    traits: str = "-"
    parts: tuple[PromptPart, ...] = ()

    @classmethod
    def of(cls, row: str) -> Self:
        """Without parts for a turn that has none, such as an imported one."""
        if not row:
            return cls()
        first, *lines = row.split("\n")
        at, mark, *numbers, traits = first.split(" ")
        parts = []
        for kind, id_, digest, tokens, *rest in (line.split(" ") for line in lines):
            size, _, number = tokens.partition("#")
            parts.append(PromptPart(kind, id_, digest, int(size), not rest, int(number or 0)))
        return cls(int(at), mark, *map(int, numbers), traits, tuple(parts))  # type: ignore[arg-type, call-arg]

    def as_row(self) -> str:
        numbers = self.window, self.room, self.sent, self.cut, self.kept
        row = " ".join(map(str, (self.at, self.mark, *numbers, self.traits or "-")))
        for part in self.parts:
            number = f"#{part.number}" if part.number else ""
            line = f"\n{part.kind} {part.id} {part.digest} {part.tokens}{number}{'' if part.used else ' -'}"
            # A row holds no more; the last parts, which tools brought, are left out of it.
            if len(row) + len(line) > 1_500:
                break
            row += line
        return row

    @property
    def sources(self) -> list[PromptPart]:
        """Of the user's memory and of the web: each once. First pages, which a full row must not lose, then what was
        sent.
        """
        found: dict[tuple[str, str], PromptPart] = {}
        for part in self.parts:
            key = (part.kind, part.source)
            if part.kind in OF_MEMORY and (key not in found or (part.used and not found[key].used)):
                found[key] = part
        return sorted(found.values(), key=lambda part: (part.kind != PAGE, not part.used))


def digest_of(text: str) -> str:
    """Eight bytes, keyed: the words cannot be guessed from them."""
    return urlsafe_b64encode(salted_hmac("recollect.prompt", text, algorithm="sha256").digest()[:8]).decode()[:11]
