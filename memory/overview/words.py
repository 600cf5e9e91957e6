"""Finds the words and phrases that are typical of a group of a user's texts (a month or a cluster).

1. The postings of the inverted index give the number of texts of each group with a term. A text with the term only in
   the answer counts half.
2. A term's weight in a group is its share of the group's texts, times its ratio to the share of all texts:

       weight = share * (max(0, ln(share / share_of_all)) + 0.1 * ln(1 / share_of_all))

   The first part is the term's contribution to the Kullback-Leibler divergence of the group from the whole. The second
   ranks the terms of a group that is most or all of the history, where the first is zero.
3. The postings contain stems. The word is spelled as in one of the group's texts, and refers to that text. Stop words
   of every language that PostgreSQL knows are left out, because people write in several; so are numbers and units.
4. A label should be a noun. Without a tagger, the neighbours of a word decide: nouns follow articles, possessives and
   prepositions, or are capitalised within a sentence; verbs follow pronouns, and precede articles. A word that nearly
   always has the same neighbour is named with it: "peanut sauce".
5. In scripts without spaces a term is a pair of characters. It grows while the texts agree on the next character.
   Pairs of hiragana are particles and endings.

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
from memory.index.sources import key_of, load
from memory.index.terms import PAIRED_RUN, indexed_form
from memory.index.trigrams import without_accents
from memory.models import IndexedText
from memory.time_words import FILLER, MONTHS, NUMBERS, ORDINAL_DAYS, UNITS, WEEKDAYS

Floats = npt.NDArray[np.float32]
TextIds = npt.NDArray[np.int64]

WORDS = 8
# The number of candidate terms: many are no nouns, some are stop words in other languages, or occur late in a text.
CANDIDATES = 40
LEAST_TEXTS = 3
_WORDLIKE = re.compile(r"[^\W\d_]{2,40}")
# A word or number, and whether the one before it is beside it: nothing but a space or a hyphen is between them.
_TOKEN = re.compile(r"(?P<beside>(?<=\w)[ -])?(?P<word>[^\W_]+)")

_ARTICLES = """
the a an my your our his her their this that these those some any each every another other
der die das den dem des ein eine einen einem einer eines mein meine meinen dein deine unser unsere sein ihr kein jede
el la los las un una unos unas mi tu su mis tus sus nuestro nuestra este esta cada
le les une mon ma mes ton ta tes son sa ses notre votre ce cette il lo gli i uno mio mia del della
o os as um uma meu minha do da dos das het een mijn onze
"""
_PREPOSITIONS = """
of in on at with without for from by about into under over between around behind before after near since until during
von im am mit ohne für aus bei beim zum zur vom über unter zwischen hinter vor nach seit
de en con sin por para desde sobre entre hasta du des au aux dans avec sans pour sur com sem em no na van met voor
"""
_PRONOUNS = """
i you he she it we they will would can could should must may might not never don doesn didn
ich du er sie es wir man nicht wird werde kann muss soll
yo él ella nosotros se je elle nous vous ne pas eu ele ela você ik hij zij wij niet
"""
BEFORE_A_NOUN = frozenset((_ARTICLES + _PREPOSITIONS).split())
AFTER_A_VERB = frozenset(_ARTICLES.split())
BEFORE_A_VERB = frozenset(_PRONOUNS.split())
_MEASURES = """
second seconds minute minutes hour hours half percent euro euros dollar dollars
sekunde sekunden stunde stunden minuten prozent segundo segundos minuto minutos hora horas seconde secondes heure heures
"""
# They tell nothing of the subject of a month or group.
_NEVER = BEFORE_A_NOUN | BEFORE_A_VERB | {*NUMBERS, *MONTHS, *WEEKDAYS, *UNITS, *ORDINAL_DAYS, *FILLER}
_NEVER |= {*_MEASURES.split()}
# "cello tuned", "cat sleeping": no phrase ends with these.
_PARTICIPLE = re.compile(r"\w{3}(?:ed|ing)$")
# The share of a word's places that have the same neighbour, and the number of texts, that make the two a phrase.
PHRASE_SHARE, PHRASE_TEXTS = 0.5, 2
# The share of the texts with a pair of characters that must go on with the same character.
RUN_SHARE, MAX_RUN = 0.6, 6
_KATAKANA, _HIRAGANA = re.compile(r"[\u30a0-\u30ff\uff66-\uff9f]"), re.compile(r"[\u3040-\u309f]")

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
    """A word or phrase as in `text_id`, and the number of the group's texts with its term."""

    word: str
    texts: int
    text_id: int


class TellingTerm(NamedTuple):
    """A term of a group, with some of the group's texts that contain it."""

    group: int
    lexeme: str
    texts: int
    samples: list[int]
    weight: float


GroupOfText = Mapping[int, int]
"""The group of each text, by the text's id."""


def telling_words(user_id: int, groupings: Sequence[GroupOfText]) -> list[dict[int, list[GroupWord]]]:
    """For each way of grouping a user's texts, the words that are typical of its groups, the best first."""
    postings = _Counted.of(user_id)
    found = [postings.candidates(groups) for groups in groupings]
    samples = _samples_of({text_id for each in found for one in each for text_id in one.samples})
    words = []
    for candidates in found:
        by_group: dict[int, list[TellingTerm]] = defaultdict(list)
        for one in candidates:
            by_group[one.group].append(one)
        words.append({group: _words_of_group(ones, samples) for group, ones in by_group.items()})
    return words


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
        # In a larger group, a term of only one text is a name or a typing error; in a small group every term counts.
        least = next((least for most, least in ((200, 1), (2_000, 2)) if len(text_ids) < most), LEAST_TEXTS)
        frequent = frequent_terms(user_id, least=least)
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
        samples = _samples(flat, self.texts[counted], {t * len(names) + g for g, ts in enumerate(best) for t, _ in ts})
        having = np.bincount(flat, minlength=shape[0] * shape[1])
        return [
            TellingTerm(
                names[group],
                self.lexemes[term],
                int(having[term * len(names) + group]),
                [int(self.text_ids[place]) for place in samples[term * len(names) + group]],
                weight,
            )
            for group, terms_of in enumerate(best)
            for term, weight in terms_of
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
    weights = np.where(np.array(block.said) > 0, 1, 0.5).astype(np.float32)
    return terms[is_kept], texts[is_kept].astype(np.int32), weights[is_kept]


def _best(weighed: npt.NDArray[np.float64], sizes: TextIds) -> list[list[tuple[int, float]]]:
    """For each group the terms with the highest weights, from the number of its texts with each (terms, groups)."""
    # Adds one text without any term: otherwise a term of every text would have no information.
    of_all = np.maximum(weighed.sum(axis=1) / (sizes.sum() + 1), 1e-9)[:, None]
    # Subtracts a half, because chance in one text counts more in a small group.
    share = np.maximum(weighed - 0.5 * (sizes > LEAST_TEXTS), 0) / np.maximum(sizes, 1)
    ratio = np.log(np.where(share > 0, share, 1) / of_all)
    weight = share * (np.maximum(ratio, 0) - 0.1 * np.log(of_all))
    ranked = np.argsort(-weight, axis=0, kind="stable")[:CANDIDATES].T
    return [
        [(int(term), float(weight[term, group])) for term in terms if weight[term, group] > 0]
        for group, terms in enumerate(ranked)
    ]


def _samples(flat: TextIds, texts: npt.NDArray[np.int32], requested: set[int]) -> dict[int, list[int]]:
    """For each pair of a term and a group some texts that contain it, the latest first."""
    chosen = np.isin(flat, np.fromiter(requested, dtype=np.int64, count=len(requested)))
    found: dict[int, list[int]] = defaultdict(list)
    order = np.argsort(-texts[chosen], kind="stable")
    for pair, text in zip(flat[chosen][order].tolist(), texts[chosen][order].tolist(), strict=True):
        # The number of the group's texts in which a term's word is searched.
        if len(found[pair]) < 4 and text not in found[pair]:
            found[pair].append(text)
    return found


Samples = Mapping[int, tuple[str, Mapping[str, Counter[str]]]]
"""By text: how it begins, and the words of each lexeme with how often each stands there."""


def _samples_of(text_ids: Iterable[int]) -> Samples:
    rows = IndexedText.objects.filter(pk__in=list(text_ids)).in_bulk()
    keys = {key_of(row): row for row in rows.values()}
    texts = {keys[text.key].pk: text for text in load(keys)}
    # The length of a side that is searched for words.
    counted = {
        text_id: Counter(word for side in (text.said, text.answered) for word in _WORDLIKE.findall(side[:50_000]))
        for text_id, text in texts.items()
    }
    languages = {text_id: rows[text_id].configuration for text_id in counted}
    lexemes = _lexemes_of(sorted({(languages[text_id], word) for text_id in counted for word in counted[text_id]}))
    found: dict[int, tuple[str, Mapping[str, Counter[str]]]] = {}
    for text_id, counts in counted.items():
        of_text: dict[str, Counter[str]] = defaultdict(Counter)
        for word, count in counts.items():
            for lexeme in lexemes.get((languages[text_id], word), ()):
                of_text[lexeme][word] += count
        # The length of each side that is searched for neighbours.
        beginning = "\n".join(side[:4_000] for side in (texts[text_id].said, texts[text_id].answered))
        found[text_id] = beginning, of_text
    return found


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


class _Neighbours:
    """What stands beside each word of a group's samples, by the word in lower case."""

    def __init__(self, samples: Samples) -> None:
        self.seen, self.noun, self.verb = Counter[str](), Counter[str](), Counter[str]()
        self.numbered, self.modifies = Counter[str](), Counter[str]()
        self.phrases: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.texts_of: dict[tuple[str, str], set[int]] = defaultdict(set)
        for text_id, (text, words) in samples.items():
            tokens = [(token["word"], token["beside"] is not None) for token in _TOKEN.finditer(text)]
            self._read(tokens, {word.lower() for forms in words.values() for word in forms}, text_id)

    def _read(self, tokens: Sequence[tuple[str, bool]], content: set[str], text_id: int) -> None:
        for (word, beside), before, after in zip(
            tokens, [("", False), *tokens], [*tokens[1:], ("", False)], strict=False
        ):
            low, previous = word.lower(), before[0].lower() if beside else ""
            if low not in content:
                continue
            self.seen[low] += 1
            self.numbered[low] += previous.isdigit()
            is_name = bool(previous) and word[0].isupper() and not before[0][0].isupper()
            self.noun[low] += previous in BEFORE_A_NOUN or is_name
            self.verb[low] += previous in BEFORE_A_VERB or (after[1] and after[0].lower() in AFTER_A_VERB)
            if previous in content and not _is_never(previous) and not _is_never(low) and not _PARTICIPLE.search(low):
                self.modifies[previous] += 1
                self.phrases[previous, low][f"{before[0]} {word}"] += 1
                self.texts_of[previous, low].add(text_id)

    def worth(self, word: str) -> float:
        """How much of a noun a word is: 1, or less, or nothing."""
        low = word.lower()
        is_short = len(low) < 3 and not word.isupper()
        if is_short or _is_never(low) or self.numbered[low] * 2 > self.seen[low] or self.noun[low] < self.verb[low]:
            return 0
        # What a word without evidence for a noun is worth, beside one with it.
        return 1 if self.noun[low] > self.verb[low] else 0.4

    def _is_modifier(self, low: str) -> bool:
        return self.modifies[low] * 2 > self.seen[low]

    def phrase_with(self, word: str) -> tuple[str, int] | None:
        """The phrase that the word nearly always is a part of, with a text that has it."""
        low = word.lower()
        pairs = [pair for pair in self.phrases if low in pair and self._is_phrase(pair, low)]
        if not pairs:
            return None
        best = max(pairs, key=lambda pair: (self.phrases[pair].total(), pair))
        written = max(self.phrases[best], key=lambda form: (self.phrases[best][form], form))
        if best[0] == low and word.islower():
            written = written[0].lower() + written[1:]
        return (written, max(self.texts_of[best])) if len(written) <= 40 else None

    def _is_phrase(self, pair: tuple[str, str], low: str) -> bool:
        """A modifier is named with any word that it precedes; a noun with a word that it is nearly always beside."""
        first, last = pair
        if first == last or self.verb[first] or self._is_modifier(last) or self.noun[last] <= self.verb[last]:
            return False
        if low == first and self._is_modifier(low):
            return True
        is_usual = self.phrases[pair].total() >= PHRASE_SHARE * self.seen[low]
        return is_usual and len(self.texts_of[pair]) >= PHRASE_TEXTS


def _is_never(word: str) -> bool:
    return without_accents(word) in _NEVER


def _words_of_group(candidates: Sequence[TellingTerm], samples: Samples) -> list[GroupWord]:
    neighbours = _Neighbours({id_: samples[id_] for one in candidates for id_ in one.samples if id_ in samples})
    found: list[tuple[float, GroupWord]] = []
    for one in candidates:
        if PAIRED_RUN.fullmatch(one.lexeme):
            run = _grown(one.lexeme, [(id_, samples[id_][0]) for id_ in one.samples if id_ in samples])
            found += [(one.weight, GroupWord(run[0], one.texts, run[1]))] if run else []
        elif word := _word_for(one, samples):
            found.append((one.weight * neighbours.worth(word.word), word))
    found.sort(key=lambda each: -each[0])
    # A group whose words are all verbs has a few of them.
    nouns = [word for worth, word in found if worth] or [word for _, word in found][:3]
    labels: list[GroupWord] = []
    for word in nouns:
        phrase = neighbours.phrase_with(word.word)
        label = GroupWord(phrase[0], word.texts, phrase[1]) if phrase else word
        # A word with accents has a second term, without them. A pair of characters is a part of a longer run.
        known = {part for other in labels for part in (*other.word.casefold().split(), other.word.casefold())}
        is_new = not known & {word.word.casefold(), *label.word.casefold().split()}
        if is_new and not any(PAIRED_RUN.fullmatch(word.word) and word.word in other.word for other in labels):
            labels.append(label)
    return labels[:WORDS]


def _grown(pair: str, texts: Sequence[tuple[int, str]]) -> tuple[str, int] | None:
    """The run of characters around a pair on which most of the texts agree, with a text that has it."""
    if all(map(_HIRAGANA.match, pair)):
        return None
    run = pair
    while len(run) < MAX_RUN:
        longer = Counter(
            other
            for _, text in texts
            for other in set(_one_longer(run, text))
            if all(_script_of(character) == _script_of(pair[0]) for character in other)
        )
        best, count = max(longer.items(), key=lambda each: (each[1], each[0]), default=("", 0))
        if count < max(PHRASE_TEXTS, RUN_SHARE * len(texts)):
            break
        run = best
    return next(((run, text_id) for text_id, text in texts if run in text), None)


def _one_longer(run: str, text: str) -> Iterator[str]:
    """The run with the character before or after it, wherever it stands."""
    start = text.find(run)
    while start >= 0:
        end = start + len(run)
        if start:
            yield text[start - 1 : end]
        if end < len(text):
            yield text[start : end + 1]
        start = text.find(run, end)


def _script_of(character: str) -> str:
    if _KATAKANA.match(character):
        return "katakana"
    if _HIRAGANA.match(character):
        return "hiragana"
    return "other" if PAIRED_RUN.fullmatch(character) else ""


def _word_for(one: TellingTerm, samples: Samples) -> GroupWord | None:
    """The commonest word for the term in its samples, capitalised only if it never occurs in lower case."""
    words: dict[int, Mapping[str, int]] = {
        text_id: samples[text_id][1].get(one.lexeme) or {} for text_id in one.samples if text_id in samples
    }
    forms: Counter[str] = Counter()
    for of_text in words.values():
        forms.update(of_text)
    if not forms:
        return None
    spelled = Counter[str]()
    for form, count in forms.items():
        spelled[form.lower()] += count
    common = max(spelled, key=lambda form: (spelled[form], form))
    written = max((form for form in forms if form.lower() == common), key=lambda form: (form == common, forms[form]))
    text_id = next(text_id for text_id, of_text in words.items() if written in of_text)
    return GroupWord(written, one.texts, text_id)
