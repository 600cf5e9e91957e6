"""The lexical leg: BM25F over the person's own postings, their statistics theirs alone, in one statement.

A word weighs `idf = ln(1 + (N - df + 0.5) / (df + 0.5))`: next to nothing when it stands in most of a person's texts.
How often it stands in a text is counted on both sides, each set against that side's usual length, and saturates once:

    tf = sum over sides of  weight * count / (1 - b + b * length / average length)
    score = sum over the query's words of  idf * tf / (k1 + tf)

Source: S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), section 3.6.
"""

from typing import NamedTuple

from django.conf import settings

from core.db.statements import fetch
from memory.search.keys import PlainKey
from memory.search.scope import Scope
from memory.words import searchable

# `k1` has its usual value. A turn is long because its answer explains, not because it says the same again: hence the
# milder half of the usual correction for length.
K1 = 1.2
B = 0.5
# Most questions are about what the person said, so a word there counts as much as two in the answer.
SAID_WEIGHT = 2.0

# A word's own statistics are counted before its postings are read for good: reading an index twice is cheaper than
# keeping what was read.
_BEST = """
WITH mine AS MATERIALIZED (
    -- A side that nobody ever used has no average length; any will do.
    SELECT texts::float8, coalesce(nullif(said_length / texts, 0), 1)::float8 AS said_length,
           coalesce(nullif(answered_length / texts, 0), 1)::float8 AS answered_length
      FROM (SELECT nullif(sum(texts), 0) AS texts, sum(said_length) AS said_length,
                   sum(answered_length) AS answered_length
              FROM (SELECT texts, said_length, answered_length
                      FROM text_totals
                     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                     UNION ALL
                    SELECT 1, said_length, answered_length
                      FROM unposted_words
                     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)) AS counted) AS together
), asked AS MATERIALIZED (
    SELECT lexeme FROM unnest(to_tsvector(%(configuration)s::regconfig, %(query)s))
), unposted AS MATERIALIZED (
    -- Of what was saved a moment ago: seldom any.
    SELECT text_id, word.lexeme, sum(word.said)::int AS said, sum(word.answered)::int AS answered,
           said_length, answered_length
      FROM unposted_words AS words
     CROSS JOIN LATERAL unnest(lexemes, words.said, words.answered) AS word(lexeme, said, answered)
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
       AND lexemes && ARRAY(SELECT lexeme FROM asked) AND word.lexeme = ANY(ARRAY(SELECT lexeme FROM asked))
     GROUP BY text_id, word.lexeme, said_length, answered_length
), term AS MATERIALIZED (
    SELECT lexeme, ln(1 + (texts - having_it + 0.5) / (having_it + 0.5)) AS idf, 1 - %(b)s::float8 AS rest,
           %(b)s / said_length AS a_word_said, %(b)s / answered_length AS a_word_answered
      FROM asked
     CROSS JOIN mine
     CROSS JOIN LATERAL (
        SELECT (SELECT count(*)
                  FROM postings AS p
                 WHERE p.user_id = %(user_id)s AND p.corpus = ANY(%(corpora)s) AND p.lexeme = asked.lexeme)
               + (SELECT count(*) FROM unposted WHERE unposted.lexeme = asked.lexeme) AS having_it
        OFFSET 0) AS counted  -- counted once
), hit AS (
    SELECT text_id, idf,
           %(said_weight)s::float8 * said / (rest + a_word_said * said_length) AS said,
           answered / (rest + a_word_answered * answered_length) AS answered
      FROM (SELECT text_id, said, answered, said_length, answered_length, idf, rest, a_word_said, a_word_answered
              FROM term
              JOIN postings AS p USING (lexeme)
             WHERE p.user_id = %(user_id)s AND p.corpus = ANY(%(corpora)s)
             UNION ALL
            SELECT text_id, said, answered, said_length, answered_length, idf, rest, a_word_said, a_word_answered
              FROM term
              JOIN unposted USING (lexeme)) AS either
    OFFSET 0  -- neither is computed more than once
), best AS (
    SELECT text_id, sum(idf * (said + answered) / (%(k1)s::float8 + said + answered)) AS score,
           sum(idf * said / (%(k1)s::float8 + said)) AS said_score
      FROM hit
     WHERE true {dated}
     GROUP BY text_id
     ORDER BY score DESC, text_id
     LIMIT %(limit)s
)
SELECT source_id::text, chunk_index, score, said_score
  FROM best
 -- A row each by its key: for a hundred of them the planner would rather read everybody's, but for the OFFSET.
 CROSS JOIN LATERAL (SELECT source_id, chunk_index FROM indexed_texts WHERE id = text_id OFFSET 0) AS text
 ORDER BY score DESC, text_id
"""
# Left out where no date is asked for: the postings of a common word are many, and their dates are with the texts. What
# a word is worth does not depend on the dates that are asked for.
_DATED = """
       AND text_id IN (SELECT id
                         FROM indexed_texts
                        WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                          AND said_at >= %(since)s AND said_at < %(until)s)
"""


class LexicalHit(NamedTuple):
    """A text that shares words with the query. `said_score` is what the person's own words alone would earn it."""

    key: PlainKey
    score: float
    said_score: float


def best_by_words(scope: Scope, *, query: str, limit: int) -> list[LexicalHit]:
    """The texts in `scope` that share words with `query`, by score descending. No words, or only stop words: none."""
    rows = fetch(
        _BEST.format(dated=_DATED if scope.is_dated else ""),
        {
            **scope.parameters(),
            "configuration": settings.TEXT_SEARCH_CONFIG,
            "query": searchable(query),
            "said_weight": SAID_WEIGHT,
            "b": B,
            "k1": K1,
            "limit": limit,
        },
    )
    return [LexicalHit((source, place), score, said_score) for source, place, score, said_score in rows]
