"""Turns in no index are compared with a question by words: rare words count more, echoes less, the newer of equals."""

from datetime import timedelta
from itertools import product

import pytest

from intake.models import Turn
from intake.tests.factories import NOW
from memory.search import unindexed
from memory.search.echoes import are_forms
from memory.search.unindexed import compared

KEY = "The spare key is with our neighbour on the second floor."
QUESTION = "Where is the spare key?"


def turns(*sides, **fields):
    """In this order, each a minute after the one before it."""
    pairs = [side if isinstance(side, tuple) else (side, "") for side in sides]
    return [
        Turn(user_message=said, assistant_message=answer, said_at=NOW + timedelta(minutes=number), **fields)
        for number, (said, answer) in enumerate(pairs)
    ]


def found(question, told):
    return [(turn.user_message, relevance) for relevance, turn in compared(question=question, turns=told)]


def test_a_turn_with_all_of_the_words_is_certain_and_one_without_any_is_none():
    assert found(QUESTION, turns(KEY, "I bake bread")) == [(KEY, pytest.approx(1))]


def test_inflected_words_are_shared():
    told = turns("I decided to learn the cello", "He decidido aprender violonchelo")
    assert found("What did I decide to learn?", told)[0][0] == "I decided to learn the cello"
    assert found("¿Qué decidí aprender?", told)[0] == ("He decidido aprender violonchelo", pytest.approx(1))


def test_a_rare_word_counts_more_than_one_of_many_turns():
    told = turns(*(f"We sail again, day {number}" for number in range(20)), "The lighthouse")
    assert found("When do we sail to the lighthouse?", told)[0][0] == "The lighthouse"


def test_half_of_the_words_count_a_quarter():
    assert found("Where is the spare bicycle?", turns(KEY)) == [(KEY, pytest.approx(0.25))]


def test_a_question_asked_before_counts_by_its_answer_alone():
    told = turns(KEY, (QUESTION, "The spare key: ask your neighbour."), ("Where's the spare key?", "Nowhere."))
    assert [said for said, _ in found(QUESTION, told)] == [KEY, QUESTION]


def test_what_recall_mode_quoted_counts_nothing():
    answer = ("Good morning", f"> {KEY}")
    assert found(QUESTION, turns(answer, is_recall=True)) == []
    assert len(found(QUESTION, turns(answer))) == 1


def test_of_equal_messages_the_newer_is_found():
    told = turns(KEY, "I bake bread", KEY.upper())
    ((_, turn),) = compared(question=QUESTION, turns=told)
    assert turn is told[2]


def test_a_question_without_telling_words_finds_nothing():
    assert found("And what was it?", turns(KEY)) == [] == found("", turns(KEY)) == found(QUESTION, [])


def test_a_questions_words_are_compared_with_few_of_many_words(monkeypatch):
    """Of a visitor with 200 long messages, each question would take half a minute otherwise."""
    compared_words = []
    monkeypatch.setattr(unindexed, "are_forms", lambda *pair: compared_words.append(pair) or are_forms(*pair))
    words = ["".join(letters) for letters in product("abcdefghij", repeat=4)]
    found(" ".join(words[:1000:25]), turns(*(" ".join(words[start : start + 500]) for start in range(0, 10_000, 500))))
    assert 0 < len(compared_words) < 1_000
