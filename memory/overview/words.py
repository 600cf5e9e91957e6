"""Finds the words that are typical of a group of a user's texts (a month or a cluster), compared with all texts.

1. The postings of the inverted index give the number of texts of each group with a term. A text with the term only in
   the answer counts half.
2. A term's weight in a group is its share of the group's texts, times its ratio to the share of all texts:

       weight = share * (max(0, ln(share / share_of_all)) + 0.1 * ln(1 / share_of_all))

   The first part is the term's contribution to the Kullback-Leibler divergence of the group from the whole. The second
   ranks the terms of a group that is most or all of the history, where the first is zero.
3. The postings contain stems. The word is spelled as in one of the group's texts, and refers to that text. Stop words
   of every language that PostgreSQL knows are left out, because people write in several.

Source: S. Kullback and R. Leibler, On Information and Sufficiency (1951).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from django.db import connection

from memory.index.segments import Postings, frequent_terms, postings_of
from memory.index.sources import SourceKey, load
from memory.index.terms import PAIRED_RUN, indexed_form
from memory.models import IndexedText
from memory.models.documents import Corpus

Floats = npt.NDArray[np.float32]
TextIds = npt.NDArray[np.int64]

WORDS = 8
# The number of candidate terms: some are stop words in other languages, or occur too late in a text.
CANDIDATES = 24
# The number of the group's texts in which a term's word is searched.
SAMPLES = 3
# In a larger group, a term of only one text is a name or a typing error; in a small group every term counts.
RARE = ((200, 1), (2_000, 2))
LEAST_TEXTS = 3
MAX_TERMS = 50_000
ONE_GROUP = 0.1
ASSISTANT_WEIGHT = 0.5
# The length of a text that is searched for words.
READ_CHARACTERS = 50_000
_WORDLIKE = re.compile(r"[^\W\d_]{2,40}")

_LEXEMES = """
SELECT configuration, word, term.lexeme
  FROM unnest(%(configurations)s::text[], %(words)s::text[], %(forms)s::text[]) AS each(configuration, word, form)
 CROSS JOIN LATERAL unnest(to_tsvector(configuration::regconfig, form)) AS term
"""
_STOP_WORDS = r"""
SELECT word
  FROM unnest(%(words)s::text[]) AS each(word)
 WHERE EXISTS (SELECT FROM pg_ts_dict WHERE dictname LIKE '%%\_stem' AND ts_lexize(oid::regdictionary, word) = '{}')
"""


@dataclass(frozen=True, slots=True)
class GroupWord:
    """A word as in `text_id`, and the number of the group's texts with its term."""

    word: str
    texts: int
    text_id: int


class TellingTerm(NamedTuple):
    """A term of a group, with some of the group's texts that contain it."""

    group: int
    lexeme: str
    texts: int
    samples: list[int]


GroupOfText = Mapping[int, int]
"""The group of each text, by the text's id."""


def telling_words(user_id: int, groupings: Sequence[GroupOfText]) -> list[dict[int, list[GroupWord]]]:
    """For each way of grouping a user's texts, the words that are typical of its groups, the best first."""
    postings = _Counted.of(user_id)
    found = [postings.candidates(groups) for groups in groupings]
    words = _words_in({text_id for each in found for one in each for text_id in one.samples})
    return [_words_of_groups(each, words) for each in found]


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """A person's postings, of the terms that may tell something: term k is `lexemes[k]`, posting i is
    (`terms[i]`, `texts[i]`, `weights[i]`), the text by its place in `text_ids`."""

    lexemes: list[str]
    text_ids: TextIds
    terms: npt.NDArray[np.int32]
    texts: npt.NDArray[np.int32]
    weights: Floats

    @classmethod
    def of(cls, user_id: int) -> "_Counted":
        text_ids = np.array(
            IndexedText.objects.filter(user_id=user_id).order_by("pk").values_list("pk", flat=True), dtype=np.int64
        )
        least = next((least for most, least in RARE if len(text_ids) < most), LEAST_TEXTS)
        frequent = frequent_terms(user_id, least=least, most=MAX_TERMS)
        kept = [lexeme for lexeme in frequent if _WORDLIKE.fullmatch(lexeme)]
        numbers = {lexeme: number for number, lexeme in enumerate(kept)}
        pieces = [piece for block in postings_of(user_id) if (piece := _piece(block, numbers, text_ids)) is not None]
        if not pieces:
            nothing = np.zeros(0, dtype=np.int32)
            return cls(kept, text_ids, nothing, nothing, nothing.astype(np.float32))
        terms, texts, weights = (np.concatenate(column) for column in zip(*pieces, strict=True))
        return cls(kept, text_ids, terms, texts, weights)

    def candidates(self, groups: GroupOfText) -> list[TellingTerm]:
        names = sorted(set(groups.values()))
        if not names or not len(self.terms):
            return []
        places = {name: place for place, name in enumerate(names)}
        group_of = np.array([places.get(groups.get(text_id, -1), -1) for text_id in self.text_ids.tolist()])
        in_groups = group_of[self.texts]
        counted = in_groups >= 0
        terms, in_groups = self.terms[counted], in_groups[counted]
        shape = (len(self.lexemes), len(names))
        flat = terms.astype(np.int64) * len(names) + in_groups
        weights = self.weights[counted].astype(np.float64)
        weighed = np.asarray(np.bincount(flat, weights, minlength=shape[0] * shape[1]), dtype=np.float64).reshape(shape)
        sizes = np.bincount(group_of[group_of >= 0], minlength=len(names))
        best = _best(weighed, sizes)
        samples = _samples(flat, self.texts[counted], {t * len(names) + g for g, ts in enumerate(best) for t in ts})
        having = np.bincount(flat, minlength=shape[0] * shape[1])
        return [
            TellingTerm(
                names[group],
                self.lexemes[term],
                int(having[term * len(names) + group]),
                [int(self.text_ids[place]) for place in samples[term * len(names) + group]],
            )
            for group, terms_of in enumerate(best)
            for term in terms_of
        ]


def _piece(
    block: Postings, numbers: Mapping[str, int], text_ids: TextIds
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Floats] | None:
    """A block's postings by the numbers of terms and texts, without deleted texts."""
    of_terms = np.array([numbers.get(lexeme, -1) for lexeme in block.lexemes], dtype=np.int32)
    terms = np.repeat(of_terms, np.diff([0, *block.ends]))
    requested = np.array(block.text_ids, dtype=np.int64)
    texts = np.searchsorted(text_ids, requested)
    is_kept = (terms >= 0) & (texts < len(text_ids))
    is_kept[is_kept] = text_ids[texts[is_kept]] == requested[is_kept]
    if not is_kept.any():
        return None
    weights = np.where(np.array(block.said) > 0, 1, ASSISTANT_WEIGHT).astype(np.float32)
    return terms[is_kept], texts[is_kept].astype(np.int32), weights[is_kept]


def _best(weighed: npt.NDArray[np.float64], sizes: TextIds) -> list[list[int]]:
    """For each group the terms with the highest weight, from the number of its texts with each term (terms, groups)."""
    # Adds one text without any term: otherwise a term of every text would have no information.
    of_all = np.maximum(weighed.sum(axis=1) / (sizes.sum() + 1), 1e-9)[:, None]
    # Subtracts a half, because chance in one text counts more in a small group.
    share = np.maximum(weighed - 0.5 * (sizes > LEAST_TEXTS), 0) / np.maximum(sizes, 1)
    ratio = np.log(np.where(share > 0, share, 1) / of_all)
    weight = share * (np.maximum(ratio, 0) - ONE_GROUP * np.log(of_all))
    ranked = np.argsort(-weight, axis=0, kind="stable")[:CANDIDATES].T
    return [[int(term) for term in terms if weight[term, group] > 0] for group, terms in enumerate(ranked)]


def _samples(flat: TextIds, texts: npt.NDArray[np.int32], requested: set[int]) -> dict[int, list[int]]:
    """For each pair of a term and a group some texts that contain it, the latest first."""
    chosen = np.isin(flat, np.fromiter(requested, dtype=np.int64, count=len(requested)))
    found: dict[int, list[int]] = defaultdict(list)
    order = np.argsort(-texts[chosen], kind="stable")
    for pair, text in zip(flat[chosen][order].tolist(), texts[chosen][order].tolist(), strict=True):
        if len(found[pair]) < SAMPLES and text not in found[pair]:
            found[pair].append(text)
    return found


WordsByText = Mapping[int, Mapping[str, Counter[str]]]
"""By text and lexeme: the words that it stands for there, and how often each does."""


def _words_in(text_ids: Iterable[int]) -> WordsByText:
    rows = IndexedText.objects.filter(pk__in=list(text_ids)).in_bulk()
    keys = {SourceKey(Corpus(row.corpus), row.source_id, row.chunk_index): row for row in rows.values()}
    counted = {keys[text.key].pk: Counter(_words_of(text.said, text.answered)) for text in load(keys)}
    languages = {text_id: rows[text_id].configuration for text_id in counted}
    lexemes = _lexemes_of(sorted({(languages[text_id], word) for text_id in counted for word in counted[text_id]}))
    found: dict[int, dict[str, Counter[str]]] = {}
    for text_id, counts in counted.items():
        of_text = found.setdefault(text_id, defaultdict(Counter))
        for word, count in counts.items():
            for lexeme in lexemes.get((languages[text_id], word), ()):
                of_text[lexeme][word] += count
    return found


def _words_of(*sides: str) -> Iterator[str]:
    for side in sides:
        yield from _WORDLIKE.findall(side[:READ_CHARACTERS])


def _lexemes_of(words: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """The terms of the index for each (configuration, word); none for a stop word."""
    lexemes: dict[tuple[str, str], list[str]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(_STOP_WORDS, {"words": sorted({word.lower() for _, word in words})})
        stop_words = {word for (word,) in cursor.fetchall()}
        kept = [(language, word) for language, word in words if word.lower() not in stop_words]
        parameters = {
            "configurations": [language for language, _ in kept],
            "words": [word for _, word in kept],
            "forms": [indexed_form(word) for _, word in kept],
        }
        cursor.execute(_LEXEMES, parameters)
        for language, word, lexeme in cursor.fetchall():
            lexemes[language, word].append(lexeme)
    return lexemes


def _words_of_groups(candidates: Sequence[TellingTerm], words: WordsByText) -> dict[int, list[GroupWord]]:
    words_of: dict[int, list[GroupWord]] = defaultdict(list)
    for one in candidates:
        of_group = words_of[one.group]
        # A word with accents has a second term, without them.
        known = {other.word.casefold() for other in of_group}
        if len(of_group) < WORDS and (found := _word_for(one, words)) and found.word.casefold() not in known:
            of_group.append(found)
    return words_of


def _word_for(one: TellingTerm, words: WordsByText) -> GroupWord | None:
    """The commonest word for the term in its samples, capitalised only if it never occurs in lower case."""
    if PAIRED_RUN.fullmatch(one.lexeme):
        # A pair of characters, in scripts without spaces, is a word.
        return GroupWord(one.lexeme, one.texts, one.samples[0])
    forms: Counter[str] = Counter()
    for text_id in one.samples:
        forms.update(words.get(text_id, {}).get(one.lexeme, {}))
    if not forms:
        return None
    spelled = Counter[str]()
    for form, count in forms.items():
        spelled[form.lower()] += count
    common = max(spelled, key=lambda form: (spelled[form], form))
    written = max((form for form in forms if form.lower() == common), key=lambda form: (form == common, forms[form]))
    text_id = next(each for each in one.samples if written in words.get(each, {}).get(one.lexeme, {}))
    return GroupWord(written, one.texts, text_id)
