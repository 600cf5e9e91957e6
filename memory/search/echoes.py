"""Questions that were asked before: the stored question has the words of today's, and answers nothing.

A turn is an echo if its user only asks what the query asks. Of an echo, the answer alone is ranked, by its own terms
and by its part of the nearness, and it counts less than a text that needed no question. So a question that was never
answered is below every text that answers it. An answer for which an agent searched this memory repeats what is found
anyway, and counts a little less too.
"""

import re
from collections.abc import Collection, Iterable, Sequence

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

# The best turns are looked at.
LOOKED_AT = 50
# A longer message says more than a question does.
LONGEST_QUESTION = 400
# So much of the query's words are in an echo, and of its own words at most two, or so much, are others.
SHARED, MOST_OTHERS, SHARE_OF_OTHERS = 0.8, 2, 0.5
# What the relevance of an echo's answer counts, and that of an answer for which this memory was searched.
ECHO, SEARCHED = 0.3, 0.8

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
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
_STEM, _ENDING = 4, 2
_CALLS_THIS_MEMORY = r'$[*].name ? (@ like_regex "(search_chat_history|search_history|search_memory|get_context)$")'


Echoes = dict[Key, str]
"""The messages of the turns that are echoes."""


def find_echoes(user: User, query: str, hits: Sequence[Hit]) -> tuple[Echoes, set[Key]]:
    """The echoes among the best hits, and the turns for which an agent searched this memory: one statement, if any of
    the hits is a turn.
    """
    keys = [hit.key for hit in hits[:LOOKED_AT] if hit.corpus == Corpus.CHAT]
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
    return [_without_question(hit, echoes[hit.key], unrelated) if hit.key in echoes else hit for hit in hits]


def discounted(hits: Iterable[Hit], echoes: Echoes, searched: Collection[Key]) -> list[Hit]:
    """The most relevant first."""
    again = (
        hit._replace(relevance=hit.relevance * ECHO, is_echo=True)
        if hit.key in echoes
        else hit._replace(relevance=hit.relevance * SEARCHED)
        if hit.key in searched
        else hit
        for hit in hits
    )
    return sorted(again, key=lambda hit: -hit.relevance)


def telling_sides(hit: Hit, segments: list[Segment]) -> list[Segment]:
    """The sides of a turn that are read and shown: of an echo the answer, if that has any of the query's terms."""
    return segments[1:] if hit.is_echo and hit.lexical > 0 and len(segments) > 1 else segments


def _without_question(hit: Hit, message: str, unrelated: float) -> Hit:
    """A vector of both sides is mostly the longer one's: of an answer as long as the question, nothing is known."""
    question = len(telling_words(message))
    answer = max(0, hit.length - question)
    part = max(0, answer - question) / (answer + question) if answer else 0.0
    distance = hit.distance
    if distance is not None:
        distance = unrelated - part * max(0.0, unrelated - distance)
    return hit._replace(
        lexical=hit.assistant_lexical,
        user_lexical=0.0,
        distance=distance,
        user_distance=None if distance is None else unrelated,
    )


def telling_words(text: str) -> list[str]:
    """Without function words and those that ask."""
    words = dict.fromkeys(_WORD.findall(fold(text)))
    return [word for word in words if word not in FUNCTION_WORDS and word not in _ASKING]


def _has(word: str, words: Iterable[str]) -> bool:
    return any(_are_forms(word, other) for other in words)


def _are_forms(one: str, other: str) -> bool:
    if one == other:
        return True
    shorter = min(len(one), len(other))
    stem = max(_STEM, shorter - _ENDING)
    return shorter >= _STEM and abs(len(one) - len(other)) <= _ENDING + 1 and one[:stem] == other[:stem]
