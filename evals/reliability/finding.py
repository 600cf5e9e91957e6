"""Whether turns are found where people look for them: through the search API, with their own tokens.

By their words with `search_history`, which finds whatever stands in a message as it was written; and by their vectors
with `search_chat_history`, where the message itself is the question.
"""

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

from evals.reliability.saving import Save

PATH = "/api/v1/tools/{}/"
TIMEOUT_SECONDS = 60
LONGEST_QUERY = 500


def not_found(address: str, saves: Sequence[Save]) -> list[str]:
    """The words of those that either search misses."""
    return [save.word for save in saves if not _is_found(address, save)]


def _is_found(address: str, save: Save) -> bool:
    by_words = {"query": save.word, "scope": "sessions", "max_results": 50}
    by_meaning = {"query": save.message[:LONGEST_QUERY], "limit": 20, "mode": "semantic"}
    searches = {"search_history": by_words, "search_chat_history": by_meaning}
    return all(save.place in _places(address, save, name, body) for name, body in searches.items())


def _places(address: str, save: Save, tool: str, body: dict[str, Any]) -> set[tuple[str, int]]:
    request = urllib.request.Request(  # noqa: S310
        address + PATH.format(tool),
        json.dumps(body).encode(),
        {"Authorization": f"Token {save.person.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
        results = json.load(response)["results"]
    return {(result.get("conversationId"), result.get("turnNumber")) for result in results}
