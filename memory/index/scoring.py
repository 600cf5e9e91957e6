"""Scores each user's texts with BM25F: one statement over the segments and the pending terms."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from core.isolation.acting import binding_of
from memory.index.terms import PAIRED_RUN, configuration_of, configurations, fetch, indexed_forms
from memory.models.documents import HIDDEN_SOURCES, Hit, Scope

# BM25F over the person's own postings, their statistics theirs alone:
#
#     idf = ln(1 + (N - df + 0.5) / (df + 0.5))
#     tf = sum over sides of  weight * count / (1 - b + b * length / average length)
#     score = sum over the query's terms of  idf * tf / (k1 + tf)
#
# Source: S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), section 3.6.
#
# `k1` has its usual value. A turn is long because its answer explains, not because it says the same again: hence the
# milder half of the usual correction for length. Most questions are about what the user said, so a term there counts as
# much as two in the answer.
K1 = 1.2
B = 0.5
USER_WEIGHT = 2.0
# A document lists facts, each in its own line. So a chunk of twenty lines counts as no longer than two or three of
# them; by its whole length, any line with the query's words would be worth a third of a message with them.
LISTS = ["memory", "daily_log"]
# A short word, or one of characters without spaces between them, is part of too much to be missed.
WORD = re.compile(r"[^\W\d_]{3,}")

# A pending text is a segment of one text here, numbered by the negative of its id. The postings of a term in a segment
# are slices of a block's arrays (`list`), and the length of a slice is how many of its texts have the term: so each
# posting is looked at once.
#
# A query is stemmed by each configuration that the person's texts have (`stemmed`); a text's terms are of one of them.
# `idx_indexed_texts_languages` says which there are beside English. Other spellings of its words and numbers are looked
# up too, but the ideal is that of the query as it is written: a day that no text names is not a word that it lacks.
#
# Deleted texts stand in the segments until a worker rewrites those, for half a minute at the most. So the first does
# not look for any, but says whether there are some; then the second statement is asked.
_TEMPLATE = """
WITH {deleted}stemmed AS MATERIALIZED (
    SELECT configuration, lexeme, is_own
      FROM unnest(%(configurations)s::text[]) AS one(configuration)
     CROSS JOIN (VALUES (%(query)s, true), (%(spellings)s, false)) AS form(words, is_own)
     CROSS JOIN LATERAL unnest(to_tsvector(configuration::regconfig, words)) AS term(lexeme, positions)
     WHERE (configuration = %(usual)s
            OR EXISTS (SELECT 1
                         FROM indexed_texts AS text
                        WHERE text.user_id = %(user_id)s AND text.configuration = one.configuration
                          AND text.configuration <> 'english'))
       -- The query's own function words are none in any language: a "the" in a German text is rare, and says nothing.
       AND positions && (SELECT array_agg(place)
                           FROM unnest(to_tsvector(%(own)s::regconfig, words)) AS own(lexeme, places)
                          CROSS JOIN unnest(places) AS place)
), asked AS MATERIALIZED (
    SELECT DISTINCT lexeme FROM stemmed
), segment AS MATERIALIZED (
    -- Concatenated with nothing, an array is read once here, not again for each element that is asked of it.
    SELECT id, texts, said_length, answered_length, text_ids || '{{}}'::bigint[] AS text_ids,
           said_lengths || '{{}}'::int[] AS said_lengths, answered_lengths || '{{}}'::int[] AS answered_lengths,
           CASE WHEN corpus = ANY(%(of_lines)s) THEN %(line_terms)s END AS longest
      FROM term_segments
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
     UNION ALL
    SELECT -text_id, 1, said_length, answered_length, ARRAY[text_id], ARRAY[said_length], ARRAY[answered_length],
           CASE WHEN corpus = ANY(%(of_lines)s) THEN %(line_terms)s END
      FROM pending_terms
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
), list AS MATERIALIZED (
    SELECT lexeme, id, ordinals[first:last] AS ordinals, said[first:last] AS said, answered[first:last] AS answered,
           {having_it} AS having_it
      FROM asked
     CROSS JOIN segment
     CROSS JOIN LATERAL (
        SELECT ends[number] AS last, 1 + coalesce(ends[number - 1], 0) AS first, ordinals, said, answered
          FROM (SELECT array_position(lexemes, lexeme) AS number, ends, ordinals, said, answered
                  FROM term_blocks
                 WHERE user_id = %(user_id)s AND segment_id = id AND first_lexeme <= lexeme
                 ORDER BY first_lexeme DESC
                 LIMIT 1) AS block
        OFFSET 0) AS slice  -- worked out once
     WHERE id > 0 AND last IS NOT NULL
     UNION ALL
    SELECT term.lexeme, -text_id, '{{1}}', ARRAY[least(sum(term.said), 32767)::smallint],
           ARRAY[least(sum(term.answered), 32767)::smallint], 1
      FROM pending_terms AS row
     CROSS JOIN LATERAL unnest(lexemes, row.said, row.answered) AS term(lexeme, said, answered)
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND term.lexeme IN (SELECT lexeme FROM asked) {seen}
     GROUP BY text_id, term.lexeme
), term AS MATERIALIZED (
    -- A side that nobody ever used has no average length; any will do.
    SELECT lexeme, having_it, ln(1 + (texts - having_it + 0.5) / (having_it + 0.5)) AS idf,
           %(said_weight)s::float8 AS said_weight, 1 - %(b)s::float8 AS rest,
           %(b)s / coalesce(nullif(said_length / nullif(texts, 0), 0), 1) AS per_term_said,
           %(b)s / coalesce(nullif(answered_length / nullif(texts, 0), 0), 1) AS per_term_answered
      FROM (SELECT lexeme, coalesce(sum(having_it), 0)::float8 AS having_it
              FROM asked LEFT JOIN list USING (lexeme)
             GROUP BY lexeme) AS counted
     CROSS JOIN (
        SELECT sum(texts)::float8 AS texts, sum(said_length)::float8 AS said_length,
               sum(answered_length)::float8 AS answered_length
          FROM {counted}) AS mine
), posting AS (
    -- One side of most postings has nothing, which is said sooner than computed.
    SELECT text_ids[ordinal] AS text_id, idf, having_it,
           CASE said WHEN 0 THEN 0
                ELSE said_weight * said / (rest + per_term_said * least(said_lengths[ordinal], longest)) END AS said,
           CASE answered WHEN 0 THEN 0
                ELSE answered / (rest + per_term_answered * answered_lengths[ordinal]) END AS answered
      FROM (SELECT text_ids, said_lengths, answered_lengths, longest, term.*,
                   unnest(ordinals) AS ordinal, unnest(said) AS said, unnest(answered) AS answered
              FROM list JOIN segment USING (id) JOIN term USING (lexeme)) AS each
     {kept}
    OFFSET 0  -- nothing is computed more than once
), best AS (
    SELECT text_id, sum(idf * (said + answered) / (%(k1)s::float8 + said + answered)) AS score,
           coalesce(sum(idf * said / (%(k1)s::float8 + said)) FILTER (WHERE said > 0), 0) AS said_score,
           coalesce(sum(idf * answered / (%(k1)s::float8 + answered)) FILTER (WHERE answered > 0), 0) AS answered_score,
           bool_or(having_it = 1) AS has_only
      FROM posting
     -- The postings of a common term are many, and their dates are with the texts. What a term is worth does not depend
     -- on the dates that are asked for,
     -- nor on the conversations.
     WHERE (NOT %(is_narrowed)s
            OR text_id IN (SELECT id
                             FROM indexed_texts
                            WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                              AND said_at >= %(since)s AND said_at < %(until)s
                              AND (%(only)s::uuid[] IS NULL OR source_id = ANY(%(only)s::uuid[]))))
           {hidden}
     GROUP BY text_id
     ORDER BY score DESC, text_id
     LIMIT %(limit)s
)
SELECT source_id, chunk_index, corpus, date_part('epoch', said_at), length, score, said_score, answered_score,
       has_only,
       -- In its own language a query has the fewest terms: its function words are none, and its others are known.
       (SELECT coalesce(min(ideal), 0)
          FROM (SELECT sum(idf) AS ideal
                  FROM stemmed JOIN term USING (lexeme)
                 WHERE is_own
                 GROUP BY configuration) AS by_language),
       ARRAY(SELECT word
               FROM unnest(%(words)s::text[]) AS word
              WHERE to_tsvector(%(own)s::regconfig, word) <> ''
                AND NOT EXISTS (SELECT
                                  FROM (SELECT DISTINCT configuration FROM stemmed) AS one
                                 CROSS JOIN unnest(to_tsvector(configuration::regconfig, word)) AS part
                                  JOIN term USING (lexeme)
                                 WHERE having_it > 0)),
       EXISTS (SELECT 1 FROM deleted_texts WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s))
  FROM (VALUES (1)) AS always  -- one row says which words no text has, where there is no text
  LEFT JOIN best ON true
 -- A row each by its key: for a hundred of them the planner would rather read everybody's, but for the OFFSET.
  LEFT JOIN LATERAL (
    SELECT source_id, chunk_index, corpus, said_at, said_length + answered_length AS length
      FROM indexed_texts
     WHERE user_id = %(user_id)s AND id = text_id
    OFFSET 0) AS text ON true
 ORDER BY score DESC, text_id
"""
_NOT_HIDDEN = f"""AND text_id NOT IN (SELECT id
                             FROM indexed_texts
                            WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                              AND source_id = ANY(ARRAY({HIDDEN_SOURCES})))"""  # noqa: S608 - only constants of ours


def _statements(hidden: str) -> tuple[str, str]:
    """The statement, and the one for a user with deleted texts, or a caller who is bound to a project."""
    plain = _TEMPLATE.format(
        hidden=hidden, deleted="", having_it="1 + last - first", counted="segment", kept="", seen=""
    )
    without_deleted = _TEMPLATE.format(
        hidden=hidden,
        # A bound caller sees no text of another project, and learns from no score how common a word is there.
        deleted="""indexed AS MATERIALIZED (
        SELECT text_ids FROM term_segments WHERE %(is_bound)s AND user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
         UNION ALL
        SELECT ARRAY[text_id] FROM pending_terms
         WHERE %(is_bound)s AND user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
    ), deleted AS MATERIALIZED (
        SELECT text_id FROM deleted_texts WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
         UNION
        SELECT text_id FROM indexed CROSS JOIN unnest(text_ids) AS text_id
         WHERE text_id NOT IN (SELECT id FROM indexed_texts WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s))
    ), """,
        having_it="""(SELECT count(*)
                  FROM unnest(ordinals[first:last]) AS ordinal
                 WHERE text_ids[ordinal] NOT IN (SELECT text_id FROM deleted))""",
        counted="""(SELECT texts, said_length, answered_length
                      FROM segment
                     UNION ALL
                    SELECT -1, -held.said_length, -held.answered_length
                      FROM segment
                     CROSS JOIN LATERAL unnest(text_ids, said_lengths, answered_lengths)
                           AS held(text_id, said_length, answered_length)
                     WHERE held.text_id IN (SELECT text_id FROM deleted)) AS counted""",
        kept="WHERE text_ids[ordinal] NOT IN (SELECT text_id FROM deleted)",
        seen="AND text_id NOT IN (SELECT text_id FROM deleted)",
    )
    return plain, without_deleted


# Without and with hidden sources: most searches of chats have none.
_SCORE = (_statements(""), _statements(_NOT_HIDDEN))


class Scored(NamedTuple):
    """The best texts, best first. `ideal`: the score of a text that contains only the query's terms. `absent`: the
    words of a short query that no text of the scope's corpora has, in any form, as far as the caller may see them.
    """

    hits: list[Hit]
    ideal: float
    absent: tuple[str, ...]


def score(scope: Scope, *, query: str, limit: int) -> Scored:
    """The best texts in `scope` that share terms with `query`; none if it has only stop words."""
    own, spellings = indexed_forms(query)
    words = dict.fromkeys(word for word in WORD.findall(query) if not PAIRED_RUN.search(word))
    parameters = {
        **scope.parameters(),
        "is_narrowed": scope.is_dated or scope.only is not None,
        "configurations": configurations(),
        "usual": configurations()[0],
        "own": configuration_of(query),
        "query": own,
        "spellings": spellings,
        # A longer query is a message, and most people never used some of its words.
        "words": [*words] if len(words) <= 20 else [],
        "said_weight": USER_WEIGHT,
        "of_lines": LISTS,
        "line_terms": 20,
        "b": B,
        "k1": K1,
        "limit": limit,
        "is_bound": bool(binding_of(scope.user)),
    }
    plain, without_deleted = _SCORE[scope.hides_any]
    rows = [] if parameters["is_bound"] else fetch(plain, parameters)
    if parameters["is_bound"] or (rows and rows[0][-1]):
        rows = fetch(without_deleted, parameters)
    hits = [
        Hit(
            (source, place),
            corpus,
            datetime.fromtimestamp(at, UTC),
            length,
            lexical,
            user_lexical,
            assistant_lexical,
            shares_terms=True,
            has_only=has_only,
        )
        for source, place, corpus, at, length, lexical, user_lexical, assistant_lexical, has_only, *_ in rows
        if source is not None
    ]
    ideal, absent, _ = rows[0][-3:]
    return Scored(hits, ideal, tuple(absent))
