"""Where the sources meet the engine: what it finds by words and meaning, without what only chance put there."""

from django.conf import settings

from memory.models.corpora import Scope
from memory.search.chat_history import Found, by_terms_and_meaning
from memory.search.history.requests import ENGINE_LENGTH
from memory.search.history.sources import Asked

# What a text is worth that is near in meaning where too little is known to say what is far.
FAINT = 0.01


def related(scope: Scope, asked: Asked) -> list[Found]:
    """The texts that share words with the query, and those that are near it in meaning.

    The engine gives the nearest texts however far they are. Here that would be the end of "no matching results": what
    shares no word with the query and is farther than `settings.HISTORY_UNRELATED_DISTANCE` is left out.
    """
    found = by_terms_and_meaning(scope, query=asked.query[:ENGINE_LENGTH], vector=asked.vector, model=asked.model)
    return [each._replace(relevance=each.relevance or _faint(each)) for each in found.texts if _is_related(each)]


def _is_related(found: Found) -> bool:
    near = found.distance is not None and found.distance <= settings.HISTORY_UNRELATED_DISTANCE
    return near or found.shares_terms


def _faint(found: Found) -> float:
    return FAINT * max(0.0, 1 - found.distance) if found.distance is not None else 0.0
