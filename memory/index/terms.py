"""The terms of each user's texts: stored when a text is saved, and scored with BM25F by every search.

`add` and `delete` write, `score` reads. A text's terms are first kept in one pending row, which searches read too.
Workers flush these rows into segments, which take a twentieth of the space (`memory.index.segments`).

Before parsing, a text is rewritten so that different spellings match (`indexed_form`). Compatibility forms become equal
(NFKC). A word with accents is repeated without them (`Kraków Krakow`), and a grouped number without separators (`84,300
84300`), so that both spellings find it, the exact one first. Scripts without spaces, and Korean, whose particles are
attached to the word, are cut into pairs of characters, like PGroonga and Lucene's CJKBigramFilter do.

A text is stemmed by its own language, and its configuration is stored with it. A query is stemmed by each configuration
of the user's texts, so that a text with a wrong language is still found by its own words.

1. A script with one language determines the language, if PostgreSQL has a stemmer for it.
2. In Latin script the function words decide, because every text of some length contains several. There must be at least
   two of one language, and more than English ones; else the text counts as English.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection

from core.isolation.acting import insert_values, is_cluster
from memory.chunking import UNSPACED
from memory.index.sources import Entry, Text, content_hash
from memory.index.trigrams import trigram_filter
from memory.models import IndexedText
from memory.models.documents import Hit, Place, Scope
from memory.models.postings import IndexedTextQuerySet

# PostgreSQL finds words in a megabyte at most, their positions included; a longer text is split.
PIECE_CHARACTERS = 100_000
# A longer "word" is data and not language, and would not fit an index entry.
MAX_LEXEME = 255
HANGUL = "\u1100-\u11ff\uac00-\ud7af"
PAIRED_RUN = re.compile(rf"[{UNSPACED}{HANGUL}]+")
_WORD = re.compile(r"[^\W\d_]+")
# 84,300 and 84 300 and 84.300 and 84'300; not 1.5, not 2024 300.
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[ ,.'\u2019]\d{3})+(?![\d.,]?\d)")
_NO_DIGIT = re.compile(r"\D")
# In these scripts a mark is an accent; in others, such as Devanagari or Thai, it is a vowel.
_WITH_ACCENTS = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW")
# Letters of their own that are often written without their mark, because the keyboard lacks them.
_PLAIN = {"ß": "ss", "ẞ": "SS", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D"}
_PLAIN |= {"þ": "th", "Þ": "Th", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ħ": "h", "Ħ": "H"}

# The value of `TEXT_SEARCH_CONFIG` that detects each text's language.
BY_LANGUAGE = "auto"
ENGLISH = "english"
# This length of a text, and this number of different function words, are enough to detect its language.
LOOKED_AT = 2_000
ENOUGH = 2

_BY_SCRIPT = {
    "russian": re.compile(r"[\u0400-\u04ff]"),
    "greek": re.compile(r"[\u0370-\u03ff]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "hindi": re.compile(r"[\u0900-\u097f]"),
}
# The commonest words of each. A word of several languages counts for all of them.
_FUNCTION_WORDS = {
    ENGLISH: (
        "the of and to is that it was for with you this have not are my we what how i be they from at in on a as by or "
        "an he she but his her were which who when there had has been would will can if so do did does your our"
    ),
    "german": (
        "der die das und ist nicht ich ein eine einen einem einer den dem des mit auf für von zu zum zur im in sich "
        "auch wir sie er es wie bei mein meine meinen nach wurde wurden war waren oder aber haben hat hatte werden "
        "wird noch nur wenn kann als an am um aus so durch über was wer wo wann welche welcher welches mir dir du"
    ),
    "spanish": (
        "el la los las de y en una un por con del al para que está como más pero su sus mi muy fue hay este esta "
        "cuando donde sobre yo qué cómo cuál es se no lo le son era ser ha o entre también desde hasta quién "
        "cuándo dónde"
    ),
    "french": (
        "le la les de des et une un dans est pour qui que pas sur je du au aux avec il elle nous vous mais ce cette "
        "sont mon ma ses été où être en ne se par plus comme ou son sa leur quel quelle"
    ),
    "italian": (
        "il la gli di che è per con una un non sono della del nel alla ho mi anche più come questo questa dei ma ci "
        "perché quando e i le in si da al ha lo dove chi"
    ),
    "portuguese": (
        "o os a as um uma não com do da de em para que é mais por foi são eu na no ao dos das minha meu você isso "
        "também onde quando e se como ou qual"
    ),
    "dutch": (
        "het de een van en in is niet ik dat op te voor met zijn er aan ook maar naar bij wij mijn heb hebben wordt "
        "nog deze dit wat hoe die was als om of waar wie"
    ),
}
_LANGUAGES_OF = {
    word: [name for name, words in _FUNCTION_WORDS.items() if word in words.split()]
    for words in _FUNCTION_WORDS.values()
    for word in words.split()
}

# A row if the text was new. A term of both sides, or of several pieces, is stored once for each: merging them takes
# longer than everything else here.
_ADD = """
WITH term AS (
    SELECT coalesce(array_agg(lexeme), '{}') AS lexemes,
           coalesce(array_agg(said), '{}') AS said, coalesce(sum(said), 0) AS said_length,
           coalesce(array_agg(answered), '{}') AS answered, coalesce(sum(answered), 0) AS answered_length
      FROM (SELECT lexeme, cardinality(positions) AS said, 0 AS answered
              FROM unnest(%(said)s::text[]) AS piece, unnest(to_tsvector(%(configuration)s::text::regconfig, piece))
            UNION ALL
            SELECT lexeme, 0, cardinality(positions)
              FROM unnest(%(answered)s::text[]) AS piece,
                   unnest(to_tsvector(%(configuration)s::text::regconfig, piece))) AS side
     WHERE length(lexeme) <= %(max_lexeme)s
), indexed AS (
    INSERT INTO indexed_texts
           (user_id, corpus, source_id, chunk_index, said_at, configuration, content_hash, signature,
            said_length, answered_length)
    SELECT %(user_id)s, %(corpus)s, %(source_id)s, %(chunk_index)s, %(said_at)s, %(configuration)s, %(text_hash)s,
           %(signature)s::varbit, said_length, answered_length
      FROM term
        ON CONFLICT DO NOTHING
    RETURNING *
), pending AS (
    INSERT INTO pending_terms (text_id, user_id, corpus, said_length, answered_length, lexemes, said, answered)
    SELECT id, user_id, corpus, indexed.said_length, indexed.answered_length, lexemes, said, answered
      FROM indexed
     CROSS JOIN term
)
SELECT count(*) FROM indexed
"""
# The same terms, of many texts by their numbers; a text without terms has no row. The arrays come here and go back as
# they are written: taking them apart would double the application's time.
_COUNT_TERMS = """
SELECT number, array_agg(lexeme)::text, array_agg(said)::text, sum(said), array_agg(answered)::text, sum(answered)
  FROM (SELECT number, lexeme,
               CASE WHEN is_said THEN cardinality(positions) ELSE 0 END AS said,
               CASE WHEN is_said THEN 0 ELSE cardinality(positions) END AS answered
          FROM unnest(%(numbers)s::int[], %(configurations)s::text[], %(are_said)s::boolean[], %(pieces)s::text[])
               AS piece(number, configuration, is_said, form),
               unnest(to_tsvector(configuration::regconfig, form))) AS side
 WHERE length(lexeme) <= %(max_lexeme)s
 GROUP BY number
"""
_NO_TERMS: tuple[Any, ...] = ("{}", "{}", 0, "{}", 0)


_TEXT_COLUMNS = (
    "user_id",
    "corpus",
    "source_id",
    "chunk_index",
    "said_at",
    "configuration",
    "content_hash",
    "signature",
    "said_length",
    "answered_length",
)
_PENDING_COLUMNS = (
    "text_id",
    "user_id",
    "corpus",
    "said_length",
    "answered_length",
    "lexemes",
    "said",
    "answered",
)

_DELETE = "DELETE FROM indexed_texts WHERE user_id = %(user_id)s AND id = ANY(%(ids)s)"
# A separate statement, so that it sees a segment that a flush has written while the deletion waited for it.
_MARK_DELETED = """
INSERT INTO deleted_texts (user_id, corpus, text_id)
SELECT segment.user_id, segment.corpus, held.text_id
  FROM term_segments AS segment
 CROSS JOIN LATERAL unnest(text_ids) AS held(text_id)
 WHERE segment.user_id = %(user_id)s AND held.text_id = ANY(%(ids)s)
    ON CONFLICT DO NOTHING
"""


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
LINE_TERMS = 20

# A pending text is a segment of one text here, numbered by the negative of its id. The postings of a term in a segment
# are slices of a block's arrays (`list`), and the length of a slice is how many of its texts have the term: so each
# posting is looked at once.
#
# A query is stemmed by each configuration that the person's texts have (`stemmed`); a text's terms are of one of them.
# `idx_indexed_texts_languages` says which there are beside English.
#
# Deleted texts stand in the segments until a worker rewrites those, for half a minute at the most. So `_SCORE` does
# not look for any, but says whether there are some; then `_SCORE_WITHOUT_DELETED` is asked.
_TEMPLATE = """
WITH {deleted}stemmed AS MATERIALIZED (
    SELECT configuration, lexeme
      FROM unnest(%(configurations)s::text[]) AS one(configuration)
     CROSS JOIN LATERAL unnest(to_tsvector(configuration::regconfig, %(query)s)) AS term(lexeme, positions)
     WHERE (configuration = %(usual)s
            OR EXISTS (SELECT 1
                         FROM indexed_texts AS text
                        WHERE text.user_id = %(user_id)s AND text.configuration = one.configuration
                          AND text.configuration <> 'english'))
       -- The query's own function words are none in any language: a "the" in a German text is rare, and says nothing.
       AND positions && (SELECT array_agg(place)
                           FROM unnest(to_tsvector(%(own)s::regconfig, %(query)s)) AS own(lexeme, places)
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
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND term.lexeme IN (SELECT lexeme FROM asked)
     GROUP BY text_id, term.lexeme
), term AS MATERIALIZED (
    -- A side that nobody ever used has no average length; any will do.
    SELECT lexeme, having_it, ln(1 + (texts - having_it + 0.5) / (having_it + 0.5)) AS idf,
           %(said_weight)s::float8 AS said_weight, 1 - %(b)s::float8 AS rest,
           %(b)s / coalesce(nullif(said_length / texts, 0), 1) AS per_term_said,
           %(b)s / coalesce(nullif(answered_length / texts, 0), 1) AS per_term_answered
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
           bool_or(having_it = 1) AS has_only
      FROM posting
     -- The postings of a common term are many, and their dates are with the texts. What a term is worth does not depend
     -- on the dates that are asked for.
     WHERE NOT %(is_dated)s
        OR text_id IN (SELECT id
                         FROM indexed_texts
                        WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                          AND said_at >= %(since)s AND said_at < %(until)s)
     GROUP BY text_id
     ORDER BY score DESC, text_id
     LIMIT %(limit)s
)
SELECT source_id, chunk_index, corpus, date_part('epoch', said_at), length, score, said_score, has_only,
       -- In its own language a query has the fewest terms: its function words are none, and its others are known.
       (SELECT min(ideal)
          FROM (SELECT sum(idf) AS ideal FROM stemmed JOIN term USING (lexeme) GROUP BY configuration) AS by_language),
       EXISTS (SELECT 1 FROM deleted_texts WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s))
  FROM best
 -- A row each by its key: for a hundred of them the planner would rather read everybody's, but for the OFFSET.
 CROSS JOIN LATERAL (
    SELECT source_id, chunk_index, corpus, said_at, said_length + answered_length AS length
      FROM indexed_texts
     WHERE user_id = %(user_id)s AND id = text_id
    OFFSET 0) AS text
 ORDER BY score DESC, text_id
"""
_SCORE = _TEMPLATE.format(deleted="", having_it="1 + last - first", counted="segment", kept="")
_SCORE_WITHOUT_DELETED = _TEMPLATE.format(
    deleted="""deleted AS MATERIALIZED (
    SELECT text_id FROM deleted_texts WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
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
)


def add(entry: Entry) -> set[int]:
    """Make the terms at a place match its texts; returns the chunks that differed.

    Must run in the transaction that saves the texts.
    """
    if entry.place.chunk_index is None:
        return _add_changed(entry)
    (text,) = entry.texts
    return {text.key.chunk_index} if _add_one(text, entry.place) else set()


def add_many(texts: Sequence[Text]) -> None:
    """Add the terms of one user's new texts, sent to the database together.

    The same transaction saves the texts.
    """
    if is_cluster(connection):
        _insert_on_node(list(map(row_of, texts)))
        return
    with connection.cursor() as cursor:
        # Each is sent as soon as it is ready: the database parses one text while the next one's filter is computed.
        cursor.executemany(_ADD, map(row_of, texts))  # type: ignore[arg-type]  # any iterable will do


def delete(place: Place, *, chunks: Collection[int] | None = None) -> None:
    """From now on no search finds or counts the terms of deleted texts; a worker removes them within a minute.

    `chunks`: only of these chunks of a source.
    """
    texts = IndexedText.objects.at(place)
    _delete(texts if chunks is None else texts.filter(chunk_index__in=chunks))


def score(scope: Scope, *, query: str, limit: int) -> tuple[list[Hit], float]:
    """The best texts in `scope` that share terms with `query`, best first; none if it has only stop words.

    Also returns the ideal, which is the score of a text that contains only the query's terms.
    """
    parameters = {
        **scope.parameters(),
        "is_dated": scope.is_dated,
        "configurations": configurations(),
        "usual": configurations()[0],
        "own": configuration_of(query),
        "query": indexed_form(query),
        "said_weight": USER_WEIGHT,
        "of_lines": LISTS,
        "line_terms": LINE_TERMS,
        "b": B,
        "k1": K1,
        "limit": limit,
    }
    rows = _fetch(_SCORE, parameters)
    if rows and rows[0][-1]:
        rows = _fetch(_SCORE_WITHOUT_DELETED, parameters)
    hits = [
        Hit(
            (source, place),
            corpus,
            datetime.fromtimestamp(at, UTC),
            length,
            lexical,
            user_lexical,
            shares_terms=True,
            has_only=has_only,
        )
        for source, place, corpus, at, length, lexical, user_lexical, has_only, *_ in rows
    ]
    return hits, rows[0][-2] if rows else 0.0


def _fetch(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def searchable(text: str) -> str:
    """A text without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", " ")


def indexed_form(text: str) -> str:
    """The form of texts and queries for the parser."""
    text = searchable(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = _WORD.sub(_with_plain_form, text)
        text = PAIRED_RUN.sub(_in_pairs, text)
    return _GROUPED.sub(_with_ungrouped_form, text)


def configuration_of(*sides: str) -> str:
    """The configuration for a text, whose sides are one text here."""
    if settings.TEXT_SEARCH_CONFIG != BY_LANGUAGE:
        return str(settings.TEXT_SEARCH_CONFIG)
    text = "\n".join(side[:LOOKED_AT] for side in sides)
    return (None if text.isascii() else _by_script(text)) or _by_function_words(text)


def configurations() -> list[str]:
    """All configurations of a text, the commonest first."""
    if settings.TEXT_SEARCH_CONFIG != BY_LANGUAGE:
        return [str(settings.TEXT_SEARCH_CONFIG)]
    return [*_FUNCTION_WORDS, *_BY_SCRIPT]


def _by_script(text: str) -> str | None:
    """The script of most letters."""
    counts = {name: len(letters.findall(text)) for name, letters in _BY_SCRIPT.items()}
    name = max(counts, key=lambda each: counts[each])
    return name if counts[name] * 2 > sum(map(str.isalpha, text)) else None


def _by_function_words(text: str) -> str:
    counts: Counter[str] = Counter()
    for word in set(_WORD.findall(text.lower())):
        counts.update(_LANGUAGES_OF.get(word, ()))
    if not counts:
        return ENGLISH
    name, count = counts.most_common(1)[0]
    return name if count >= ENOUGH and count > counts[ENGLISH] else ENGLISH


def pieces(form: str) -> list[str]:
    """An indexed form in pieces that the parser accepts, cut between words if there is a space."""
    cut: list[str] = []
    start = 0
    while len(form) - start > PIECE_CHARACTERS:
        end = form.rfind(" ", start + 1, start + PIECE_CHARACTERS) + 1 or start + PIECE_CHARACTERS
        cut.append(form[start:end])
        start = end
    return [*cut, form[start:]]


def without_accents(text: str) -> str:
    """For scripts with accents; marks after letters of other scripts stay."""
    return unicodedata.normalize("NFC", "".join(_plain_characters(unicodedata.normalize("NFD", text))))


def _plain_characters(decomposed: str) -> list[str]:
    plain: list[str] = []
    has_accents = False
    for character in decomposed:
        if not unicodedata.combining(character):
            has_accents = unicodedata.name(character, "").startswith(_WITH_ACCENTS)
            plain.append(_PLAIN.get(character, character))
        elif not has_accents:
            plain.append(character)
    return plain


def _with_plain_form(word: re.Match[str]) -> str:
    if word[0].isascii():
        return word[0]
    plain = without_accents(word[0])
    return word[0] if plain == word[0] else f"{word[0]} {plain}"


def _in_pairs(run: re.Match[str]) -> str:
    """東京都 becomes 東京 京都; a single character stays."""
    characters = run[0]
    pairs = [characters[place : place + 2] for place in range(max(1, len(characters) - 1))]
    return f" {' '.join(pairs)} "


def _with_ungrouped_form(number: re.Match[str]) -> str:
    return f"{number[0]} {_NO_DIGIT.sub('', number[0])}"


def row_of(text: Text) -> dict[str, Any]:
    """The parameters of `_ADD`: the data of a text's `IndexedText`, and both sides, whose terms are counted."""
    return {
        **text.columns(),
        "configuration": configuration_of(text.said, text.answered),
        "text_hash": _known_as(text),
        "signature": trigram_filter(text.said, text.answered),
        "said": pieces(indexed_form(text.said)),
        "answered": pieces(indexed_form(text.answered)),
        "max_lexeme": MAX_LEXEME,
    }


def _add_one(text: Text, place: Place) -> bool:
    """Nearly every such text is new, so only an existing one costs a second query."""
    row = row_of(text)
    if _insert(row):
        return True
    known = IndexedText.objects.at(place)
    stale = known.other_than(content_hash=row["text_hash"], configuration=row["configuration"])
    return _delete(stale) and _insert(row)


def _add_changed(entry: Entry) -> set[int]:
    """Most chunks of a document are unchanged: one query finds the others."""
    known = IndexedText.objects.at(entry.place)
    kept = {
        index: (bytes(content_hash), configuration)
        for index, content_hash, configuration in known.values_list("chunk_index", "content_hash", "configuration")
    }
    requested = {
        text.key.chunk_index: (_known_as(text), configuration_of(text.said, text.answered)) for text in entry.texts
    }
    stale = [index for index in kept if kept[index] != requested.get(index)]
    if stale:
        _delete(known.filter(chunk_index__in=stale))
    changed = {index for index in requested if kept.get(index) != requested[index]}
    for text in entry.texts:
        if text.key.chunk_index in changed:
            _insert(row_of(text))
    return changed


def _delete(texts: IndexedTextQuerySet) -> bool:
    """Returns whether there were any. A foreign key deletes pending terms; terms in a segment get a tombstone."""
    owners: dict[int, list[int]] = {}
    for user_id, text_id in texts.values_list("user_id", "pk"):
        owners.setdefault(user_id, []).append(text_id)
    with connection.cursor() as cursor:
        for user_id, ids in owners.items():
            cursor.execute(_DELETE, {"user_id": user_id, "ids": ids})
            cursor.execute(_MARK_DELETED, {"user_id": user_id, "ids": ids})
    return bool(owners)


def _known_as(text: Text) -> bytes:
    said, answered = searchable(text.said), searchable(text.answered)
    return content_hash(f"{len(said)}:{said}{answered}")


def _insert(row: dict[str, Any]) -> bool:
    if is_cluster(connection):
        return bool(_insert_on_node([row]))
    with connection.cursor() as cursor:
        cursor.execute(_ADD, row)
        return bool(cursor.fetchone() == (1,))


def _insert_on_node(rows: Sequence[dict[str, Any]]) -> int:
    """Does the work of `_ADD` for one user's texts on a cluster, and returns the number of new ones.

    Two tables need two statements there, with values. The number of statements does not grow with the number of texts:
    with three statements for each text an import took twice the processor time.
    """
    terms = _terms_of(rows)
    texts = [
        {**row, "content_hash": row["text_hash"], "said_length": said_length, "answered_length": answered_length}
        for row, (_, _, said_length, _, answered_length) in zip(rows, terms, strict=True)
    ]
    inserted = insert_values(
        "indexed_texts",
        _TEXT_COLUMNS,
        [[text[name] for name in _TEXT_COLUMNS] for text in texts],
        ending="ON CONFLICT DO NOTHING RETURNING corpus, source_id, chunk_index, id",
    )
    keys = {tuple(place): key for *place, key in inserted}
    pending = [
        {**text, "text_id": key, "lexemes": lexemes, "said": said, "answered": answered}
        for text, (lexemes, said, _, answered, _) in zip(texts, terms, strict=True)
        if (key := keys.pop((text["corpus"], text["source_id"], text["chunk_index"]), None)) is not None
    ]
    insert_values("pending_terms", _PENDING_COLUMNS, [[one[name] for name in _PENDING_COLUMNS] for one in pending])
    return len(pending)


def _terms_of(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """For each row: its lexemes, their counts in the message and the sum of these, and the same for the answer."""
    pieces = [
        (number, row["configuration"], side == "said", piece)
        for number, row in enumerate(rows)
        for side in ("said", "answered")
        for piece in row[side]
    ]
    names = ("numbers", "configurations", "are_said", "pieces")
    columns = {name: [piece[place] for piece in pieces] for place, name in enumerate(names)}
    counted = {number: counts for number, *counts in _fetch(_COUNT_TERMS, {**columns, "max_lexeme": MAX_LEXEME})}
    return [tuple(counted.get(number, _NO_TERMS)) for number in range(len(rows))]
