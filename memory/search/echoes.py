"""Questions that were asked before: the stored question has the words of today's, and answers nothing.

A turn is an echo if its user only asks what the query asks. Of an echo, the answer alone is ranked, by its own terms
and by its part of the nearness, and it counts less than a text that needed no question. So a question that was never
answered is below every text that answers it. An answer for which an agent searched this memory repeats what is found
anyway, and counts a little less too.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import islice, pairwise

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Left

from intake.models import Turn, User
from memory.chunking import UNSPACED
from memory.index.terms import FUNCTION_WORDS
from memory.index.trigrams import fold
from memory.models import Corpus
from memory.models.documents import Hit, Key
from memory.search.excerpts import Segment
from memory.time_words import MONTHS

# A longer message says more than a question does.
LONGEST_QUESTION = 400
# So much of the query's words are in an echo, and of its own words at most two, or so much, are others.
SHARED, MOST_OTHERS, SHARE_OF_OTHERS = 0.8, 2, 0.5
# What the relevance of an echo's answer counts, and that of an answer for which this memory was searched.
ECHO, SEARCHED = 0.3, 0.8
# What a line of a note counts that has so many terms at most.
NAMED, TERMS_OF_A_NAME = 0.2, 2
# What an echo counts at least, of the relevance that it has with its question.
ASKED = 0.1

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
# What is left of a word in "where's" and "we'll".
_CONTRACTED = re.compile(r"(?<=\w)['\u2019](?:s|t|d|m|ll|re|ve)\b")
_QUESTION_MARK = re.compile(r"[?\uff1f\u061f]\W*$")
# The first words of a question, or of a request for an answer.
_ASKING_WORDS = """
who whom whose what when where which why how did do does is are was were can could should would will has have tell
remind show find look search check list give recall wer wem wen was wann wo wohin woher welche welcher welches welchen
wieviel warum wie hat habe haben ist sind kannst sag zeig such erinner que quien cuando cuanto donde cual como por
dime busca recuerdame qui quand ou quel quelle combien comment pourquoi est dis cherche rappelle chi cosa dove quale
quanto perche dimmi cerca quem onde qual diga wat wanneer waar welke hoe hoeveel waarom zeg zoek
"""
_ASKING = frozenset(_ASKING_WORDS.split())
# Inflected forms have this much in common.
STEM, _ENDING = 4, 2
_CALLS_THIS_MEMORY = r'$[*].name ? (@ like_regex "(search_chat_history|search_history|search_memory|get_context)$")'


Echoes = dict[Key, str]
"""The messages of the turns that are echoes."""


def find_echoes(user: User, query: str, hits: Sequence[Hit]) -> tuple[Echoes, set[Key]]:
    """The echoes among the best hits, and the turns for which an agent searched this memory: one statement, if any of
    the hits is a turn.
    """
    keys = [hit.key for hit in hits[:50] if hit.corpus == Corpus.CHAT]
    if not keys or not _WORD.search(query):
        return {}, set()
    searches = RawSQL("jsonb_path_exists(tool_calls, %s::jsonpath)", [_CALLS_THIS_MEMORY], output_field=BooleanField())
    turns = Turn.objects.for_user(user).with_keys(keys)
    rows = turns.annotate(asked=Left("user_message", LONGEST_QUESTION + 1), searches=searches)
    messages: Echoes = {}
    searched: set[Key] = set()
    for source, number, asked, is_searched in rows.values_list("conversation_id", "turn_number", "asked", "searches"):
        if repeats(query, asked):
            messages[source, number] = asked
        if is_searched:
            searched.add((source, number))
    return messages, searched


def repeats(query: str, message: str) -> bool:
    """Whether a message only asks what the query asks: nearly all of its words, and hardly any others."""
    if len(message) > LONGEST_QUESTION or not is_question(message):
        return False
    of_query, of_message = telling_words(query), telling_words(message)
    shared = sum(_has(word, of_message) for word in of_query)
    others = sum(not _has(word, of_query) for word in of_message)
    most = max(MOST_OTHERS, SHARE_OF_OTHERS * len(of_query))
    return bool(of_query) and shared >= SHARED * len(of_query) and others <= most


def is_question(message: str) -> bool:
    words = _WORD.findall(fold(message[:LONGEST_QUESTION]))
    return bool(words) and (words[0] in _ASKING or bool(_QUESTION_MARK.search(message)))


def answers_alone(hits: Iterable[Hit], echoes: Echoes, *, unrelated: float) -> list[Hit]:
    """The hits, of echoes without what their question adds."""
    alone = []
    for hit in hits:
        if hit.key not in echoes:
            alone.append(hit)
            continue
        # A vector of both sides is mostly the longer one's: of an answer as long as the question, nothing is known.
        question = len(telling_words(echoes[hit.key]))
        answer = max(0, hit.length - question)
        part = max(0, answer - question) / (answer + question) if answer else 0.0
        distance = None if hit.distance is None else unrelated - part * max(0.0, unrelated - hit.distance)
        user_distance = None if distance is None else unrelated
        measured = hit._replace(distance=distance, user_distance=user_distance)
        alone.append(measured._replace(lexical=hit.assistant_lexical, user_lexical=0.0))
    return alone


def with_question(alone: Hit, whole: Hit) -> Hit:
    """The hit of an answer, with at least `ASKED` of what the whole turn counts: a short answer in other words is found
    after the texts that answer, and before those that have nothing to do with it.
    """
    return alone._replace(distance=whole.distance, relevance=max(alone.relevance, ASKED * whole.relevance))


def discounted(hits: Collection[Hit], echoes: Echoes, searched: Collection[Key]) -> list[Hit]:
    """The most relevant first.

    A line of a note with two terms, such as an item that is ticked off, only names a subject. It is as near to a
    question about that as the question itself, so it counts less where a longer text has the question's words too.
    """
    has_longer = any(hit.shares_terms and hit.length > TERMS_OF_A_NAME and hit.key not in echoes for hit in hits)
    again = (
        hit._replace(relevance=hit.relevance * ECHO, is_echo=True)
        if hit.key in echoes
        else hit._replace(relevance=hit.relevance * NAMED)
        if has_longer and hit.corpus in (Corpus.MEMORY, Corpus.DAILY_LOG) and 0 < hit.length <= TERMS_OF_A_NAME
        else hit._replace(relevance=hit.relevance * SEARCHED)
        if hit.key in searched
        else hit
        for hit in hits
    )
    return sorted(again, key=lambda hit: -hit.relevance)


def telling_sides(hit: Hit, segments: list[Segment]) -> list[Segment]:
    """The sides of a turn that are read and shown: of an echo the answer, if that has any of the query's terms."""
    return segments[1:] if hit.is_echo and hit.lexical > 0 and len(segments) > 1 else segments


def words_of(text: str) -> dict[str, None]:
    return dict.fromkeys(_WORD.findall(_CONTRACTED.sub("", fold(text))))


def telling_words(text: str) -> list[str]:
    """Without function words and those that ask."""
    words = words_of(text)
    return [word for word in words if word not in FUNCTION_WORDS and word not in _ASKING]


def _has(word: str, words: Iterable[str]) -> bool:
    return any(are_forms(word, other) for other in words)


def are_forms(one: str, other: str) -> bool:
    if one == other:
        return True
    shorter = min(len(one), len(other))
    stem = max(STEM, shorter - _ENDING)
    return shorter >= STEM and abs(len(one) - len(other)) <= _ENDING + 1 and one[:stem] == other[:stem]


# Of two messages among the results, the earlier one is marked if the later one states another value of the same thing,
# or if one says that something never happened and the other that it did. Only two signs are right often enough, and
# both are words (docs/decisions/0009): likeness in meaning, and a reranker's score of the pair, tell nothing.
#
# 1. A number: the same unit, another figure, and a word of change in the later clause ("now", "updated"). The query
#    asks for that unit and both messages have its words; or both clauses share three words and have the same names.
# 2. "Never": most of the words after it are in a clause of the other message, by which the user has done it.

Clause = tuple[list[str], set[str], set[str], list[tuple[str, set[str]]]]
"""A part of a sentence: its words, the telling ones, the capitalised ones, and its numbers with their units."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The results among which statements are compared, the part of each message that is read, and the clauses in it.
COMPARED, READ, MOST_CLAUSES = 20, 600, 12
# The share, and the least number, of the words after "never" that the other clause has.
NEVER_SHARE, NEVER_WORDS = 0.6, 2

# What others wrote, or no language: code, quoted lines, quotations.
_NOT_OWN = re.compile(
    r"(?s:```.*?(?:```|\Z))|^[ \t]*+>[^\n]*+"
    r"|[\"\u201c\u201e\u00ab][^\"\u201c-\u201e\u00ab\u00bb\n]++[\"\u201d\u201c\u00bb]",
    re.MULTILINE,
)
_BETWEEN_CLAUSES = re.compile(
    r"(?<=[.!?;:])\s+|\n+|,\s+|\s(?:but|so|aber|pero|[-\u2013\u2014])\s|\sand\s(?=I\b)|\sund\s(?=ich\b)"
)
# A number that is no time, fraction, sum or part of an identifier; a word; a sign with which a number is a value.
_TOKEN = re.compile(
    r"(?<![\w/:=.,-])(?<![=+*/^\u00d7] )[0-9]++(?:[.,][0-9]++)*+(?![/:=]|[^\W\d_][0-9])|[^\W\d_]+|[$\u20ac\u00a3%]"
)
_THOUSANDS = re.compile(r"[.,'\u2019](?=[0-9]{3}(?![0-9]))")
_UNITS = {
    **dict.fromkeys(("$", "dollar", "dollars", "usd"), "dollar"),
    **dict.fromkeys(("\u20ac", "euro", "euros", "eur"), "euro"),
    **dict.fromkeys(("\u00a3", "pound", "pounds", "gbp"), "pound"),
    **dict.fromkeys(("%", "percent", "prozent"), "percent"),
}
_OF_NO_UNIT = _words("am pm uhr th st nd rd")
_CHANGE = _words(
    """
    now actually instead currently recently updated update changed increased reduced adjusted raised lowered
    reached extended longer anymore jetzt inzwischen mittlerweile nun aktuell statt geandert
    erhoht gesenkt ahora actualmente ya cambiado subido bajado
    """
)
_NEVER = _words("never nie niemals nunca jamas")
_NOT = _words("not no t nicht kein keine keinen never nie niemals nunca jamas sin")
_FIRST_PERSON = _words("i we ich wir yo nosotros")
# Spanish verbs that name their person.
_DID = _words("hemos hice hicimos fui fuimos tuve tuvimos estuve")
_DONE = _words(
    """
    ve have had was were did got felt met went made took wrote feeling been habe hab haben hatte hatten bin war
    waren
    """
)
_NOT_DONE = _words(
    """
    goal deadline want wants need plan planning planned trying going gonna hope hoping would will ll could should
    may might thinking start starting wonder wondering understand struggling ziel will wollen mochte mochten plane
    vorhabe werde wurde konnte sollte objetivo quiero quisiera planeo espero voy podria
    """
)
_LIGHT = _words(
    """
    ve re ll am im just also been get got really before ever already schon noch mal muy algo
    """
)
_NOT_TELLING = FUNCTION_WORDS | _ASKING | _LIGHT


def restated(query: str, turns: Sequence[tuple[Key, datetime, str]]) -> dict[Key, tuple[Key, datetime]]:
    """Of these turns, each with its time and its user's message, those that their user contradicts in another of them:
    for each the newest turn that does, and its time. Plain arithmetic over the words, of the first turns alone.
    """
    turns = [(key, at, message[:READ]) for key, at, message in turns[:COMPARED]]
    # Most messages have none of the signs, which takes no time to see.
    if not any(
        _NEVER & words or (_CHANGE & words and any(map(str.isdigit, message)))
        for *_, message in turns
        for words in [set(_WORD.findall(fold(message)))]
    ):
        return {}
    of_query = telling_words(query[:LONGEST_QUESTION])
    read = []
    for key, at, message in sorted(turns, key=lambda turn: (turn[1], turn[0][1])):
        # No questions, and nothing that others wrote.
        parts = _BETWEEN_CLAUSES.split(_NOT_OWN.sub(" ", message))
        stating = (part for part in parts if part.strip() and not is_question(part))
        clauses = [_clause(_TOKEN.findall(part)) for part in islice(stating, MOST_CLAUSES)]
        read.append((key, at, clauses, [named for clause in clauses if (named := _never_done(clause))]))
    later: dict[Key, tuple[Key, datetime]] = {}
    for place, (key, _, earlier, earlier_never) in enumerate(read):
        for newer, at, clauses, never in read[place + 1 :]:
            if (
                any(_has_done(other, named) for named in never for other in earlier)
                or any(_has_done(other, named) for named in earlier_never for other in clauses)
                or _state_other_numbers(earlier, clauses, of_query)
            ):
                later[key] = (newer, at)
    return later


def _state_other_numbers(earlier: Sequence[Clause], later: Sequence[Clause], of_query: Sequence[str]) -> bool:
    pairs = [(one, other) for other in later if other[3] and _CHANGE & set(other[0]) for one in earlier if one[3]]
    if not pairs:
        return False
    everything = [set().union(*(words for _, words, *_ in clauses)) for clauses in (earlier, later)]
    asked = sum(all(_has(word, words) for words in everything) for word in of_query)
    # The share of the query's words that both messages have.
    is_asked = asked >= 0.4 * len(of_query) > 0
    return any(_states_another_number(one, other, of_query, is_asked=is_asked) for one, other in pairs)


def _states_another_number(one: Clause, other: Clause, of_query: Sequence[str], *, is_asked: bool) -> bool:
    shared = {word for word in one[1] if _has(word, other[1])}
    if one[2].difference(other[0]) and other[2].difference(one[0]):
        return False
    # Two clauses with so many words in common, the unit included, are about the same thing.
    is_alike = len(shared) >= 3 and any(_has(word, of_query) for word in shared)
    return any(
        number != another
        and any(is_alike or (is_asked and _has(unit, of_query)) for unit in units if _has(unit, others))
        for number, units in one[3]
        for another, others in other[3]
        # The later clause may name the earlier number too: "from 240 to 265".
        if not any(another == each and any(_has(unit, beside) for unit in others) for each, beside in one[3])
    )


def _never_done(clause: Clause) -> list[str]:
    """The telling words of what its user says that they never did; few words could mean anything."""
    words = clause[0]
    place = next((place for place, word in enumerate(words) if word in _NEVER), None)
    if place is None or not (_FIRST_PERSON & set(words[:place]) or _names_its_person(words)):
        return []
    # The words after "never" that are compared.
    named = list(dict.fromkeys(word for word in words[place + 1 :] if word in clause[1]))[:7]
    return named if len(named) >= NEVER_WORDS else []


def _has_done(clause: Clause, named: Sequence[str]) -> bool:
    words = set(clause[0])
    found = sum(_has(word, clause[1]) for word in named)
    if found < max(NEVER_WORDS, NEVER_SHARE * len(named)) or words & (_NOT | _NOT_DONE):
        return False
    is_past = words & _DONE or any(len(word) > STEM and word.endswith("ed") for word in words)
    return bool(words & _FIRST_PERSON and is_past) or _names_its_person(clause[0])


def _names_its_person(words: Sequence[str]) -> bool:
    """As Spanish verbs do: `fui`, `he visitado`."""
    return bool(_DID & set(words)) or any(
        one == "he" and other.endswith(("ado", "ido")) for one, other in pairwise(words)
    )


def _clause(tokens: Sequence[str]) -> Clause:
    words = [fold(token) for token in tokens]
    names = {word for word, token in zip(words, tokens, strict=True) if token[0].isupper() and _is_telling(word)}
    numbers = [
        (_number(token), units)
        for place, token in enumerate(tokens)
        if token[0].isdigit() and (units := _units(words, place))
    ]
    return words, {word for word in words if _is_telling(word)}, names, numbers


def _number(token: str) -> str:
    """Without separators of thousands, and with a point: 1,234.50 and 1.234,50 are one number."""
    return _THOUSANDS.sub("", token).replace(",", ".")


def _is_telling(word: str) -> bool:
    return len(word) > 1 and word not in _NOT_TELLING and word.isalpha()


def _units(words: Sequence[str], place: int) -> set[str]:
    """The sign or the two words after a number, or else three before it; none of a day, a year or a version."""
    # The words before a number among which its unit may be.
    before, after = words[max(0, place - 12) : place][::-1], words[place + 1 : place + 5]
    number = _number(words[place])
    is_year = len(number) == 4 and number[:2] in ("19", "20")
    if number.count(".") > 1 or is_year or {*before[:2], *after[:2]} & MONTHS.keys():
        return set()
    if after[:1] and after[0] in _OF_NO_UNIT:
        return set()
    if before[:1] and before[0] in _UNITS:
        return {_UNITS[before[0]]}
    units: list[str] = []
    for word in after:
        if word in _UNITS:
            return {_UNITS[word]}
        if word in _CHANGE or not _is_telling(word):
            if word in ("a", "an", "per", "pro", "al", "por"):
                continue
            break
        units.append(word)
    return set(units[:2] or islice(filter(_is_telling, before), 3))
