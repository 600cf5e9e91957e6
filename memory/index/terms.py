"""The terms of each user's texts: stored when a text is saved, and scored by every search (`memory.index.scoring`).

A text's terms are first kept in one pending row, which searches read too.
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
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from django.db import connection

from core.isolation.acting import is_cluster
from core.isolation.inserting import insert_values
from memory.chunking import UNSPACED
from memory.index.sources import Entry, Text, content_hash
from memory.index.trigrams import trigram_filter, without_accents
from memory.models import IndexedText
from memory.models.documents import Place
from memory.models.postings import IndexedTextQuerySet
from memory.time_words import MONTHS

# The number of the rules by which a text becomes terms and a trigram filter: the first bytes of `content_hash`. It is
# incremented with every change of them, and `index_missing` indexes texts of other rules again. None came before 2.
RULES = (2).to_bytes(4)
# PostgreSQL finds words in a megabyte at most, their positions included; a longer text is split.
PIECE_CHARACTERS = 100_000
# A longer "word" is data and not language, and would not fit an index entry.
MAX_LEXEME = 255
HANGUL = "\u1100-\u11ff\uac00-\ud7af"
PAIRED_RUN = re.compile(rf"[{UNSPACED}{HANGUL}]+")
_WORD = re.compile(r"[^\W\d_]+")

# The value of `TEXT_SEARCH_CONFIG` that detects each text's language.
BY_LANGUAGE = "auto"
ENGLISH = "english"

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

FUNCTION_WORDS = frozenset(_LANGUAGES_OF)

_ADD = Path(__file__).with_name("add_terms.sql").read_text()
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


def add(entry: Entry) -> set[int]:
    """Make the terms at a place match its texts; returns the chunks that differed.

    Must run in the transaction that saves the texts.
    """
    if entry.place.chunk_index is None:
        return _add_changed(entry)
    (text,) = entry.texts
    row = row_of(text)
    # Nearly every such text is new, so only an existing one costs a second query.
    if not _insert(row):
        # Of another text, or made by other rules.
        stale = IndexedText.objects.at(entry.place).exclude(
            content_hash=row["text_hash"], configuration=row["configuration"]
        )
        if not (_delete(stale) and _insert(row)):
            return set()
    return {text.key.chunk_index}


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


def fetch(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def searchable(text: str) -> str:
    """A text without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", " ")


def configuration_of(*sides: str) -> str:
    """The configuration for a text, whose sides are one text here."""
    if settings.TEXT_SEARCH_CONFIG != BY_LANGUAGE:
        return str(settings.TEXT_SEARCH_CONFIG)
    # The beginning is enough to detect the language.
    return language_of("\n".join(side[:2_000] for side in sides))


def language_of(text: str) -> str:
    """The language of a text as one of the configurations; English if it cannot be told."""
    if not text.isascii():
        letters = {name: len(script.findall(text)) for name, script in _BY_SCRIPT.items()}
        name = max(letters, key=lambda each: letters[each])
        if letters[name] * 2 > sum(map(str.isalpha, text)):
            return name
    counts = Counter(name for word in set(_WORD.findall(text.lower())) for name in _LANGUAGES_OF.get(word, ()))
    # Two different function words are enough.
    (name, count), *_ = counts.most_common(1) or [(ENGLISH, 0)]
    return name if count >= 2 and count > counts[ENGLISH] else ENGLISH


def configurations() -> list[str]:
    """All configurations of a text, the commonest first."""
    if settings.TEXT_SEARCH_CONFIG != BY_LANGUAGE:
        return [str(settings.TEXT_SEARCH_CONFIG)]
    return [*_FUNCTION_WORDS, *_BY_SCRIPT]


def pieces(form: str) -> list[str]:
    """An indexed form in pieces that the parser accepts, cut between words if there is a space."""
    cut: list[str] = []
    start = 0
    while len(form) - start > PIECE_CHARACTERS:
        end = form.rfind(" ", start + 1, start + PIECE_CHARACTERS) + 1 or start + PIECE_CHARACTERS
        cut.append(form[start:end])
        start = end
    return [*cut, form[start:]]


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
    """The number of the rules, and a hash of both sides."""
    said, answered = searchable(text.said), searchable(text.answered)
    return RULES + content_hash(f"{len(said)}:{said}{answered}")[len(RULES) :]


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
    counted = {number: counts for number, *counts in fetch(_COUNT_TERMS, {**columns, "max_lexeme": MAX_LEXEME})}
    return [tuple(counted.get(number, ("{}", "{}", 0, "{}", 0))) for number in range(len(rows))]


# More parts in one run are data.
MOST_PARTS = 64
_LOWER, _UPPER = "a-zß-öø-ÿа-яё", "A-ZÀ-ÖØ-ÞА-ЯЁ"
_HUMP = re.compile(rf"[{_LOWER}][{_UPPER}]|[{_UPPER}]{{2}}[{_LOWER}]{{2}}")
# A run without any of these is one word, or the parser takes it apart by itself.
_JOINT = re.compile(rf"[./@_+#-]|{_HUMP.pattern}")
# The parser makes one word of these: `foo.bar`, `a/b`, `me@example.org`, `/srv`, `.env`.
_GLUED = re.compile(r"[^\W_][./@]+[^\W_]|(?:(?<!\w)[./~]|_[./@]|[./@]_)\w")
_SNAKE = re.compile(r"(?<!\w)[^\W_]++(?:_++[^\W_]++)++")
# A part of such a run, and a part of a word in CamelCase.
_PART = re.compile(r"[^\W_]+")
_CAMEL_PART = re.compile(rf"[{_UPPER}]+(?=[{_UPPER}][{_LOWER}])|[{_UPPER}]?[{_LOWER}]+|[{_UPPER}]+|\d+|[^\W_]")
_NO_PARTS = frozenset(("http", "https", "www"))
# v1.2 and the beginning of 1.2.3.
_VERSION = re.compile(r"(?<![\w.])(?:[vV](\d{1,5}\.\d{1,5}[\d.]{0,12}(?<=\d))|(\d{1,5}\.\d{1,5})(?=\.\d))")
# C++, C# and A+, .NET, --flag: the parser drops the signs, but they are a part of the name.
_SIGNED = re.compile(
    r"(?<![\w+#])(?P<word>[^\W\d_]{1,12})(?P<signs>\+\+(?![+#])|[+#](?![+#\w]))"
    r"|(?<![\w.])\.(?P<name>[^\W\d_]\w{1,30})(?![\w./@])|(?<![\w-])--(?P<flag>[^\W\d_][\w-]{0,60})"
)
_SIGN_NAMES = str.maketrans({"+": "plus", "#": "sharp"})
_JOINTS = str.maketrans("", "", "-_")
# ORDER-4711 and covid-19.
_NUMBERED = re.compile(r"(?<![\w-])([^\W\d_]{1,20})-(\d{1,12})(?![\w-])")

_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
# A sign before a number is a hyphen more often than not; the parser makes it a part of the number.
_SIGN_OF_NUMBER = re.compile(r"(?<![eE])[-+](?=\d)")
# Digits and what may stand between them; most are a number without any.
_FIGURES = re.compile(r"\d[\d ()./,'\u2019-]*+")
# 84,300 and 84 300 and 84.300 and 84'300 and 1.234,56 and 987,50; not 2024 300, nor an address such as 10.0.0.5.
_AMOUNT = re.compile(
    r"(?<![\d.,])(?P<whole>\d{1,3}(?:(?P<mark>[ ,.'\u2019])\d{3}(?:[ ,.'\u2019]\d{3})*)|\d+)"
    r"(?:(?!(?P=mark))[.,](?P<cents>\d{1,2}))?(?![.,]?\d)"
)
_NO_DIGIT = re.compile(r"\D")
_PHONE = re.compile(
    r"(?<![\d./,-])(?:\+ ?\d{1,3}|\(?0\d+|\(?\d{3}(?=\)? ?[-. ]?\d{3}[-. ]\d{4}(?!\d)))"
    r"(?:(?:\) ?| ?\(|[ ./-])\d{2,}){1,6}"
)
# The century of a year in two digits.

# 2026-03-01, 2026/3/1, 2026年3月1日; 01.03.2026, 1/3/26.
_DAYS = (
    re.compile(
        r"(?<![\d.,])(?P<year>(?:19|20)\d\d) ?[-/.年] ?(?P<month>\d{1,2}) ?[-/.月] ?(?P<day>\d{1,2})(?![.,]?\d)"
    ),
    re.compile(
        r"(?<![\d.,/-])(?P<day>\d{1,2})(?P<mark>[-/.]) ?(?P<month>\d{1,2})(?P=mark) ?"
        r"(?P<year>(?:19|20)\d\d|(?<!-)\d\d)(?![.,/-]?\d)"
    ),
)
_YEAR = re.compile(r"(?:19|20)\d\d(?!\d)")
# 1st of March 2026, 1. März 2026, 1 de marzo de 2026; March 1, 2026.
_DAY_BEFORE_YEAR = re.compile(
    r"(?:(?<![\d.,])(?P<day>\d{1,2})(?:st|nd|rd|th|er|[.º])? {1,2}(?:of |de )?(?P<name>[^\W\d_]{3,10})[.,]? {1,2}"
    r"(?:del? )?|(?<!\w)(?P<name_before>[^\W\d_]{3,10})\.? {1,2}(?P<day_after>\d{1,2})(?:st|nd|rd|th)?,? {1,2})$"
)
_SIGN = re.compile(r"[^\x00-\u00a1\w\s]")


def indexed_form(text: str) -> str:
    """The form of texts and queries for the parser, at its end other spellings of its words, numbers and days."""
    return " ".join(filter(None, indexed_forms(text)))


def indexed_forms(text: str) -> tuple[str, str]:
    """The same in two: the text itself, and the other spellings."""
    text = searchable(text)
    if text.isascii():
        spellings = chain(_parts_of_runs(text.split()), _figures(text))
        return _SIGN_OF_NUMBER.sub(" ", text), " ".join(dict.fromkeys(spellings))
    text = _OTHER_DIGIT.sub(lambda other: str(unicodedata.decimal(other[0])), unicodedata.normalize("NFKC", text))
    # Emoji and other symbols, and currencies.
    signs = (f"u{ord(each):x}" for each in _SIGN.findall(text) if unicodedata.category(each) in ("So", "Sc"))
    spellings = chain(_parts_of_runs(PAIRED_RUN.sub(" ", text).split()), _figures(text), signs)
    return _SIGN_OF_NUMBER.sub(" ", _for_parser(text)), _for_parser(" ".join(dict.fromkeys(spellings)))


def _for_parser(text: str) -> str:
    """With plain forms of words with accents, and with pairs of characters where there are no spaces."""
    # 東京都 becomes 東京 京都; a single character stays.
    return PAIRED_RUN.sub(
        lambda run: f" {' '.join(map(''.join, pairwise(run[0]))) or run[0]} ", _WORD.sub(_with_plain_form, text)
    )


def _parts_of_runs(runs: Sequence[str]) -> Iterator[str]:
    """The parts of joined words, and joined forms of separate ones; `runs` are what stands between spaces."""
    # A longer run of characters is data.
    for run in dict.fromkeys(run[:2_000] for run in runs):
        # Most are plain words, and are passed over at once.
        if not (run.isalpha() and run[1:].islower()) and _JOINT.search(run.rstrip(".,")):
            yield from _glued_parts(run) if _GLUED.search(run) else _camel_parts(run)
            if "_" in run:
                yield from (snake.replace("_", "") for snake in _SNAKE.findall(run)[:MOST_PARTS])
            yield from map(_named, _SIGNED.finditer(run))
            yield from (numbered[1] + numbered[2] for numbered in _NUMBERED.finditer(run))


def _glued_parts(run: str) -> Iterator[str]:
    if "%" in run:
        run = unquote(run, errors="replace")
    amount = _AMOUNT.fullmatch(run.strip("$€£()*.,;:%"))
    if amount is not None and amount["mark"]:
        return
    yield from [part for part in _PART.findall(run) if len(part) > 1 and part not in _NO_PARTS][:MOST_PARTS]
    yield from _camel_parts(run)
    yield from (version[1] or version[2] for version in _VERSION.finditer(run))


def _camel_parts(run: str) -> Iterator[str]:
    if _HUMP.search(run):
        words = [word for word in _PART.findall(run)[:MOST_PARTS] if _HUMP.search(word)]
        parts = [part for word in words for part in _CAMEL_PART.findall(word) if len(part) > 1]
        yield from parts[:MOST_PARTS]


def _named(signed: re.Match[str]) -> str:
    """C# becomes Csharp, .NET becomes dotNET, and --dry-run becomes dashdashdryrun."""
    if signed["flag"]:
        return "dashdash" + signed["flag"].translate(_JOINTS)
    if signed["name"]:
        return "dot" + signed["name"].translate(_JOINTS)
    return signed["word"] + signed["signs"].translate(_SIGN_NAMES)


def _figures(text: str) -> Iterator[str]:
    """Numbers and days in their usual writings, each in one form."""
    for figures in _FIGURES.finditer(text):
        if not figures[0].rstrip().isdigit():
            yield from _plain_figures(figures[0], before=text[max(0, figures.start() - 2) : figures.start()])
    if "年" in text:
        yield from _days(_DAYS[0].finditer(text))
    for year in _YEAR.finditer(text):
        # A day before its year has at most 28 characters.
        if named := _DAY_BEFORE_YEAR.search(text, max(0, year.start() - 28), year.start()):
            name, day = named["name"] or named["name_before"], named["day"] or named["day_after"]
            yield from _day(int(year[0]), MONTHS.get(without_accents(name).lower(), 0), int(day))


def _plain_figures(figures: str, *, before: str) -> Iterator[str]:
    """`before`: the one or two characters before them."""
    days = list(chain.from_iterable(_days(pattern.finditer(figures)) for pattern in _DAYS))
    yield from days
    if not before[-1:].isalpha():
        yield from filter(None, map(_plain_amount, _AMOUNT.finditer(figures)))
    if not days and not before[-1:].isalnum():
        for number in _PHONE.finditer(before[before.find("+") :] + figures if "+" in before else before[-1:] + figures):
            digits = _NO_DIGIT.sub("", number[0])
            if 7 <= len(digits) <= 15:
                yield digits


def _plain_amount(amount: re.Match[str]) -> str:
    """1,234.50 and 1.234,5 become 1234.5; nothing if it is written so."""
    cents = (amount["cents"] or "").rstrip("0")
    plain = _NO_DIGIT.sub("", amount["whole"]) + (f".{cents}" if cents else "")
    return "" if plain == amount[0] else plain


def _days(found: Iterable[re.Match[str]]) -> Iterator[str]:
    """Of 3/4/2026 both readings, because the text does not say which it is."""
    for groups in (match.groupdict() for match in found):
        year, month, day = (int(groups[name]) for name in ("year", "month", "day"))
        yield from _day(year, month, day)
        if groups.get("mark") == "/":
            yield from _day(year, day, month)


def _day(year: int, month: int, day: int) -> Iterator[str]:
    """As 20260301; nothing if there is no such day."""
    try:
        yield f"{date(year if year >= 1900 else 2000 + year, month, day):%Y%m%d}"
    except ValueError:
        return


def _with_plain_form(word: re.Match[str]) -> str:
    if word[0].isascii():
        return word[0]
    plain = without_accents(word[0])
    return word[0] if plain == word[0] else f"{word[0]} {plain}"
