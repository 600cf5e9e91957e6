"""The results of `search_history` as the text that its specification shows (FEAT-032, "Output Format")."""

from collections.abc import Sequence
from typing import Protocol

from agent_tools.untrusted import as_one_line, without_our_lines

NOTHING_FOUND = "No matching results found. Try broader keywords or a different scope."


class Told(Protocol):
    """The fields of a result that the text shows. `session` is the title of the conversation, if it is in one."""

    @property
    def source(self) -> str: ...
    @property
    def date(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def excerpt(self) -> str: ...
    @property
    def session(self) -> str | None: ...


def history_text(query: str, scope: str, results: Sequence[Told], *, note: str | None = None) -> str:
    """A header, and a block for each result; the note, if any, comes last."""
    header = f'[Search Results for "{" ".join(query.split())}" (scope: {scope}, {len(results)} results)]'
    blocks = [_block(number, result) for number, result in enumerate(results, start=1)] or [NOTHING_FOUND]
    return "\n\n".join([header, *blocks, *([f"Note: {note}."] if note else [])])


def _block(number: int, result: Told) -> str:
    """A stored text writes neither of these lines: a header is one line, and an excerpt has none that is like ours."""
    # A session's title is in its excerpt.
    session = f', session: "{as_one_line(result.session or "")}"' if result.source == "message" else ""
    about = f"score: {result.score:.2f}, source: {result.source}, date: {result.date}{session}"
    return f"--- Result {number} ({about}) ---\n{without_our_lines(result.excerpt)}"
