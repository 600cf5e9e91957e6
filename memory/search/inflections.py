"""Which words of a text are the query's, inflected or not, as PostgreSQL stems them."""

from collections.abc import Iterable

from django.conf import settings
from django.db import connection

from memory.search.excerpts import Matcher
from memory.search.turn_texts import SEARCHED_LENGTH
from memory.terms import indexed_form

_SAME = """
WITH asked AS MATERIALIZED (
    SELECT tsvector_to_array(to_tsvector(%(configuration)s::regconfig, %(query)s)) AS lexemes
)
SELECT word
  FROM unnest(%(words)s::text[], %(forms)s::text[]) AS candidate(word, form)
 CROSS JOIN asked
 WHERE tsvector_to_array(to_tsvector(%(configuration)s::regconfig, form)) && lexemes
"""


class Inflections:
    """Learns as it is shown texts; a word is asked about once."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._asked: set[str] = set()
        self._known: set[str] = set()
        self._matcher = Matcher.of(query)

    def matcher_for(self, texts: Iterable[str]) -> Matcher:
        """Knows every word of these texts that is one of the query's, inflected or not."""
        new = self._matcher.candidates(texts) - self._asked
        if new:
            self._asked |= new
            self._known |= self._same(new)
        return self._matcher.knowing(self._known)

    def _same(self, words: set[str]) -> set[str]:
        with connection.cursor() as cursor:
            cursor.execute(
                _SAME,
                {
                    "configuration": settings.TEXT_SEARCH_CONFIG,
                    "query": indexed_form(self._query[:SEARCHED_LENGTH]),
                    "words": list(words),
                    "forms": [indexed_form(word) for word in words],
                },
            )
            return {word for (word,) in cursor.fetchall()}
