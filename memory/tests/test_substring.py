"""Turns that contain a piece of text as it stands: all of them, the newest first, and nobody else's."""

from datetime import UTC, datetime, timedelta

import pytest

from intake.chats.services import save_exchange
from intake.tests.factories import NOW, a_person, a_turn
from memory.index import trigrams
from memory.index.trigrams import containing
from memory.models import Corpus, IndexedText
from memory.models.documents import Scope

pytestmark = pytest.mark.django_db


def search(user, text, limit=10, **dates):
    return [hit.key for hit in containing(Scope(user, (Corpus.CHAT,), **dates), texts=[text], limit=limit)[0]]


def key(turn):
    return (turn.conversation_id, turn.turn_number)


@pytest.mark.parametrize(
    ("message", "piece"),
    [
        ("We had dinner at a restaurant", "staur"),
        ("Set RETRY_LIMIT=42", "retry_limit=4"),
        ("I am 100% sure", "100%"),
        ("I am 100% sure", "0% S"),
        ("The variable a_b holds it", "a_b"),
        ("It's John's bike", "john's"),
        ('She said "hello there"', '"hello'),
        (r"The folder C:\temp\notes", r"\temp\n"),
        ("'; drop table students; --", "'; drop table"),
        ("Miso 🐈 purrs", "🐈 pu"),
        ("我们明天去北京", "北京"),
        ("Call 0171-42", "42"),
        ("Wir wohnen in der Straße", "STRASSE"),
        ("first line\n    second line", "line second"),
        ('{"tool": "search", "args": {"q": 1}}', '"args": {"q"'),
        ("x" * 9_000 + "needle" + "y" * 9_000, "xneedley"),
        ("ab", "ab"),
    ],
)
def test_a_piece_is_found_as_it_stands(message, piece):
    alice = a_person()
    turn = a_turn(alice, message, "")
    a_turn(alice, "Something quite different", "and nothing like it")
    assert search(alice, piece) == [key(turn)]


@pytest.mark.parametrize("piece", ["a%b", "a_b", "%", "___", "\\", ".*", "", "   ", "\0", "a\0b"])
def test_no_character_stands_for_another(piece):
    alice = a_person()
    a_turn(alice, "aXb and so on", "")
    assert search(alice, piece) == []


def test_both_sides_are_searched_but_no_piece_runs_across_them():
    alice = a_person()
    turn = a_turn(alice, "the left", "right side")
    assert search(alice, "ight si") == [key(turn)]
    assert search(alice, "left right") == []


def test_an_answer_that_only_quotes_the_persons_history_is_not_searched():
    alice = a_person()
    conversation = a_turn(alice, "The beginning").conversation
    turn = save_exchange(
        conversation=conversation, user_message="What was it?", assistant_message="You said: pomegranate", said_at=NOW
    )
    type(turn).objects.filter(pk=turn.pk).update(is_recall=True)
    assert search(alice, "megran") == []


def test_nobody_elses_turns_are_found():
    a_turn(a_person("bob@example.com"), "pomegranate")
    assert search(a_person("alice@example.com"), "megran") == []


def test_the_newest_come_first_and_the_limit_holds():
    alice = a_person()
    conversation = a_turn(alice, "The beginning").conversation
    turns = [
        save_exchange(
            conversation=conversation,
            user_message="pomegranate",
            assistant_message="",
            said_at=NOW - timedelta(days=(number * 7) % 10),
        )
        for number in range(10)
    ]
    newest = sorted(turns, key=lambda turn: turn.said_at, reverse=True)
    assert search(alice, "megran", limit=4) == [key(turn) for turn in newest[:4]]


def test_dates_bound_what_is_found():
    alice = a_person()
    conversation = a_turn(alice, "The beginning").conversation
    days = [datetime(2026, 3, day, tzinfo=UTC) for day in (1, 2, 3)]
    turns = [
        save_exchange(conversation=conversation, user_message="pomegranate", assistant_message="", said_at=day)
        for day in days
    ]
    assert search(alice, "megran", since=days[1]) == [key(turns[2]), key(turns[1])]
    assert search(alice, "megran", until=days[1]) == [key(turns[0])]
    assert search(alice, "megran", since=days[1], until=days[2]) == [key(turns[1])]


def test_more_texts_than_are_read_at_a_time_are_all_looked_at(monkeypatch):
    monkeypatch.setattr(trigrams, "AT_ONCE", 3)
    alice = a_person()
    turns = [a_turn(alice, f"pomegranate {number}", "") for number in range(10)]
    assert set(search(alice, "megran", limit=50)) == {key(turn) for turn in turns}


def test_of_texts_that_cannot_contain_the_piece_none_is_read(django_assert_num_queries):
    alice = a_person()
    for number in range(20):
        a_turn(alice, f"pomegranate {number}", "")
    assert IndexedText.objects.count() == 20
    # One asks whether there are closed projects, one for the texts.
    with django_assert_num_queries(2):
        assert search(alice, "zqxjkvw") == []
