"""Whether turns are found where people look for them: through the search API, with their own tokens."""

import json
import urllib.request
from collections.abc import Sequence

from evals.reliability.saving import Save

PATH = "/api/v1/tools/search_chat_history/"
TIMEOUT_SECONDS = 60


def not_found(address: str, saves: Sequence[Save]) -> list[str]:
    """The words of those that a search for the word does not give."""
    return [save.word for save in saves if save.place not in _places(address, save)]


def _places(address: str, save: Save) -> set[tuple[str, int]]:
    request = urllib.request.Request(  # noqa: S310
        address + PATH,
        json.dumps({"query": save.word, "limit": 5, "mode": "hybrid"}).encode(),
        {"Authorization": f"Token {save.person.token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310
        results = json.load(response)["results"]
    return {(result["conversationId"], result["turnNumber"]) for result in results}
