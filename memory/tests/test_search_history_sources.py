"""What single sources of `search_history` do: likeness and letters in one score, and conversations within bounds."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.ids import uuid7
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.search import sources
from memory.search.history import HistoryRequest, search_history
from memory.search.literal import with_literal
from memory.search.sources import HistoryScope

ONE, TWO, THREE = (uuid7(), 1), (uuid7(), 1), (uuid7(), 2)


def test_a_turn_with_the_letters_is_worth_as_much_again_as_the_best_of_the_others():
    assert with_literal({ONE: 0.6, TWO: 0.5}, [TWO]) == {ONE: 0.6, TWO: pytest.approx(0.8)}


def test_a_turn_that_only_its_letters_found_stands_above_none_that_has_more_and_below_none_that_is_merely_alike():
    found = with_literal({ONE: 0.6, TWO: 0.5}, [TWO, THREE])
    assert found == pytest.approx({ONE: 0.6, TWO: 0.8, THREE: 0.6})


def test_when_nothing_is_merely_alike_letters_alone_are_worth_something():
    assert with_literal({}, [ONE]) == {ONE: 0.5}
    assert with_literal({ONE: 0.6}, [ONE, TWO]) == pytest.approx({ONE: 0.8, TWO: 0.5})


def test_without_letters_likeness_stays_as_it_is():
    assert with_literal({ONE: 0.9, TWO: 0.0}, []) == {ONE: 0.9, TWO: 0.0}


# -- Sessions ---------------------------------------------------------------------------------------------------------


def titles_found(user, query):
    request = HistoryRequest(query=query, scope=HistoryScope.SESSIONS, max_results=50)
    return [result.reference.session for result in search_history(request, user=user, now=NOW).results]


def conversations(user, *titles, preview=""):
    """The first is the latest. Their turns are told to nobody, so that no message is found."""
    rows = [
        Conversation(user=user, title=title, turn_count=1, started_at=NOW, last_active_at=NOW - timedelta(days=age))
        for age, title in enumerate(titles)
    ]
    Conversation.objects.bulk_create(rows)
    Turn.objects.bulk_create(
        Turn(
            conversation=row, user=user, turn_number=1, user_message=preview or "Hello", said_at=NOW, status="complete"
        )
        for row in rows
    )


@pytest.mark.django_db
def test_a_title_with_the_query_stands_above_one_with_a_word_of_it():
    alice = a_person()
    conversations(alice, "Migration", "The database migration", "Database of birds")
    assert titles_found(alice, "database migration") == ["The database migration", "Migration", "Database of birds"]


@pytest.mark.django_db
def test_a_query_without_words_is_found_as_it_stands():
    alice = a_person()
    conversations(alice, "What the", "100 %", "Other")
    assert titles_found(alice, "the") == ["What the", "Other"]  # stop words are letters, too
    assert titles_found(alice, "%") == ["100 %"]


@pytest.mark.django_db
def test_a_conversation_without_a_title_or_without_a_turn_is_found_by_what_it_has():
    alice = a_person()
    conversations(alice, "", preview="Parsing JSON")
    Conversation.objects.create(user=alice, title="JSON", last_active_at=NOW)
    assert sorted(titles_found(alice, "json")) == ["JSON", "Untitled"]


@pytest.mark.django_db
def test_of_very_many_conversations_the_latest_are_searched(monkeypatch):
    alice = a_person()
    conversations(alice, *(f"Topic {letter}" for letter in "abcd"), preview="Parsing JSON")
    monkeypatch.setattr(sources, "PREVIEWS", 2)
    assert titles_found(alice, "json") == ["Topic a", "Topic b"]
    monkeypatch.setattr(sources, "TITLES", 3)
    assert titles_found(alice, "topic") == ["Topic a", "Topic b", "Topic c"]


@pytest.mark.medium
@pytest.mark.django_db
def test_conversations_are_found_by_the_index_of_their_owner_and_time():
    alice, bob = a_person(), a_person("bob@example.com")
    conversations(alice, *(f"Topic {number}" for number in range(300)))
    conversations(bob, *(f"Topic {number}" for number in range(3000)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE intake_conversations, intake_conversation_turns")
    with CaptureQueriesContext(connection) as queries:
        titles_found(alice, "topic")
    (statement,) = [query["sql"] for query in queries if "previewed AS" in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "idx_ic_user_recent" in plan or "idx_ic_user_id" in plan, plan
    assert "Seq Scan on intake_conversation" not in plan, plan


@pytest.mark.parametrize(
    ("query", "is_foreign"),
    [
        ("Wohin wollte ich im Frühling reisen?", True),
        ("Waar wilde ik in het voorjaar heen?", True),
        ("Gdzie chciałem jechać wiosną?", True),
        ("我们的猫叫什么名字", True),
        ("where did I want to go in spring", False),
        ("blorptang frizzle", False),
        ("\U0001f408 4711", False),
    ],
)
def test_another_language_than_english_is_told_by_function_words_and_letters(query, is_foreign):
    assert (sources.least_likely(query) < sources.LIKELY) is is_foreign


@pytest.mark.django_db
def test_a_question_in_another_language_gets_less_likely_texts_as_well(monkeypatch):
    monkeypatch.setattr(sources, "is_near", lambda *_: False)
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    monkeypatch.setattr(sources, "LIKELY", 1.1)
    monkeypatch.setattr(sources, "LIKELY_ABROAD", 0.0)
    for query, count in (("what was the price of it", 0), ("was ist der Preis von dem", 1)):
        request = HistoryRequest(query=query, scope=HistoryScope.SESSIONS)
        assert len(search_history(request, user=alice, now=NOW).results) == count
