"""Searching one's own turns: the right order, one result a turn, nobody else's, by meaning and by words."""

from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.errors import Unavailable
from intake.chats import services
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.backends.embedders import EmbedderError, FakeEmbedder, get_embedder
from memory.models import Embedding, EmbeddingModel
from memory.search import SearchMode, hybrid, search_chat_history
from memory.search.chat_history import UNKNOWN_CHARACTERS
from memory.search.hybrid import MODEL_AWAY
from memory.search.query import identifiers, parse_query
from testing.emptying import delete_past_signals

pytestmark = pytest.mark.django_db


def search(user, query, limit=5):
    return search_chat_history(user=user, query=query, limit=limit)


def test_the_nearest_turn_comes_first_with_its_snippet_and_distance():
    alice = a_person()
    cat = a_turn(alice, "I adopted a cat named Miso")
    a_turn(alice, "The quarterly report is due on Friday")
    index.embed_pending()
    found = search(alice, "adopted a cat")
    assert found.matches[0].snippet == "I adopted a cat named Miso"
    assert found.matches[0].key[0] == cat.conversation_id
    assert 0 <= found.matches[0].distance < found.matches[1].distance <= 2


def test_nobody_elses_turns_are_found():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(bob, "I adopted a cat named Miso")
    index.embed_pending()
    assert search(alice, "adopted a cat").matches == []


def test_a_long_turn_is_one_result_by_its_nearest_part():
    alice = a_person()
    a_turn(alice, "Tell me a story", "Once upon a time there was a fox. " * 300 + "The lighthouse keeper waved.")
    index.embed_pending()
    assert Embedding.objects.count() > 1
    assert len(search(alice, "lighthouse keeper").matches) == 1


def test_a_turn_of_many_near_parts_crowds_nobody_out():
    alice = a_person()
    a_turn(alice, "Tell me about foxes", "The fox sat by the fox and saw a fox. " * 400)
    a_turn(alice, "A fox crossed our garden")
    index.embed_pending()
    assert len(search(alice, "fox", limit=2).matches) == 2


def test_a_snippet_is_the_first_200_characters_of_what_the_person_said():
    alice = a_person()
    a_turn(alice, "cat " * 100)
    index.embed_pending()
    assert search(alice, "cat").matches[0].snippet == ("cat " * 100)[:200]


def test_turns_without_a_vector_are_counted_once_each_however_many_parts_they_have():
    alice = a_person()
    a_turn(alice, "First")
    a_turn(alice, "Second", "A long answer that needs several parts. " * 200)
    assert search(alice, "first").pending == 2
    index.embed_pending()
    assert search(alice, "first").pending == 0


def test_a_turn_deleted_a_moment_ago_is_no_result():
    alice = a_person()
    turn = a_turn(alice, "I adopted a cat")
    index.embed_pending()
    Turn.objects.filter(pk=turn.pk).delete()
    assert search(alice, "cat").matches == []


def test_vectors_of_another_model_are_never_compared():
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    Embedding.objects.update(model=EmbeddingModel.objects.create(name="another", dimensions=384))
    assert search(alice, "cat").matches == []


def test_a_model_that_is_away_is_said_so(monkeypatch):
    def away(_):
        raise EmbedderError("The endpoint answered 503.")

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    with pytest.raises(Unavailable, match=MODEL_AWAY):
        search(a_person(), "cat")


def by_both(user, query, limit=5):
    return search_chat_history(user=user, query=query, limit=limit, mode=SearchMode.HYBRID)


def test_hybrid_finds_a_turn_by_its_words_from_the_moment_it_is_saved():
    alice = a_person()
    a_turn(alice, "I adopted a cat named Miso")
    found = by_both(alice, "Miso")
    assert [(hit.snippet, hit.distance) for hit in found.matches] == [("I adopted a cat named Miso", None)]
    assert found.pending == 1


def test_hybrid_finds_by_meaning_what_shares_no_stemmed_word():
    alice = a_person()
    a_turn(alice, "What is it about?", "")
    index.embed_pending()
    assert len(by_both(alice, "about what").matches) == 1


def test_hybrid_gives_a_distance_also_to_what_only_the_words_found(monkeypatch):
    monkeypatch.setitem(hybrid.gather.__kwdefaults__, "passages", 1)
    alice = a_person()
    a_turn(alice, "adopted", "")
    a_turn(alice, "I adopted a cat named Miso in the rainy spring of that year", "")
    index.embed_pending()
    expected = {hit.snippet: hit.distance for hit in search(alice, "adopted").matches}
    found = {hit.snippet: hit.distance for hit in by_both(alice, "adopted").matches}
    assert len(found) == 2
    assert found == pytest.approx(expected)


def test_hybrid_gives_one_result_a_turn_and_holds_the_limit():
    alice = a_person()
    for number in range(8):
        a_turn(alice, f"Fox number {number}", "The fox sat by the fox. " * 200)
    index.embed_pending()
    keys = [hit.key for hit in by_both(alice, "fox", limit=6).matches]
    assert len(keys) == len(set(keys)) == 6


def test_hybrid_finds_nobody_elses_turns():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(bob, "I adopted a cat named Miso")
    index.embed_pending()
    a_turn(bob, "Miso sleeps")
    assert by_both(alice, "Miso the cat").matches == []


def test_hybrid_shows_no_turn_that_was_deleted_past_every_signal():
    alice = a_person()
    turn = a_turn(alice, "I adopted a cat")
    index.embed_pending()
    delete_past_signals(Turn.objects.filter(pk=turn.pk))
    assert by_both(alice, "cat").matches == []


def test_semantic_asks_the_database_once_beside_the_question_for_closed_projects():
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    with CaptureQueriesContext(connection) as queries:
        search(alice, "cat")
    assert len(of_rows(queries)) == 2


def test_hybrid_asks_the_database_once_a_leg():
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    # Closed projects; substrings; words; vectors, and how many wait; questions asked before; which of their chats have versions; snippets.
    with CaptureQueriesContext(connection) as queries:
        by_both(alice, "cats")
    assert len(of_rows(queries)) == 7


def of_rows(queries):
    """Without the statements that begin and end transactions and set limits."""
    return [query["sql"] for query in queries.captured_queries if "FROM" in query["sql"]]


@pytest.mark.parametrize("mode", SearchMode)
@pytest.mark.parametrize(
    "query", ["100%", "a_b", "it's", '"quoted"', "\\", "'; drop table", "🐈", "猫", "the", "x" * 500]
)
def test_no_query_is_too_odd_in_any_mode(mode, query):
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    found = search_chat_history(user=alice, query=query, limit=5, mode=mode)
    assert len(found.matches) == (mode is not SearchMode.LEXICAL)


@pytest.mark.parametrize(
    ("query", "pieces"),
    [
        ("where is GP-0318842-PT?", ["GP-0318842-PT"]),
        ('who said "never again" first', ["never again"]),
        ("mail to anna@example.com about report_final.pdf", ["anna@example.com", "report_final.pdf"]),
        ("error 0x80070005, see https://example.com/a?b", ["0x80070005", "https://example.com/a?b"]),
        ("on 2026-02-22 at 10:30, 3,5kg for 24-hour use", []),
        ("what did we say about the cat, e.g. its name?", []),
        ('an open " quotation mark', []),
    ],
)
def test_identifiers_and_what_is_quoted_are_meant_to_the_letter(query, pieces):
    parsed = parse_query(query)
    assert [*parsed.quotations, *identifiers(parsed.text)] == pieces


def test_a_hybrid_search_puts_turns_with_the_exact_piece_first():
    alice = a_person()
    for number in range(5):
        a_turn(alice, f"The invoice INV-77 number {number} of the plumber is paid, the plumber wrote")
    a_turn(alice, "The other one was AB-1234-CD")
    index.embed_pending()
    found = search_chat_history(user=alice, query="the plumber's invoice AB-1234-CD", limit=3, mode=SearchMode.HYBRID)
    assert "AB-1234-CD" in found.matches[0].snippet


def test_a_query_that_says_when_gets_those_days_first_but_in_semantic_mode():
    alice, bob = a_person("alice"), a_person("bob")
    a_turn(alice, "The roof is tight again")
    a_turn(bob, "The roof of Bob")
    old = Conversation.objects.create(user=alice, title="Roof")
    services.save_exchange(
        conversation=old,
        user_message="The roof leaks",
        assistant_message="Oh.",
        said_at=NOW - timedelta(days=20),
    )
    index.embed_pending()
    search = partial(search_chat_history, user=alice, query="the roof, yesterday", limit=5)
    found = search(mode=SearchMode.HYBRID, now=NOW + timedelta(days=1))
    assert [match.snippet for match in found.matches] == ["The roof is tight again", "The roof leaks"]
    assert found.window.words == "yesterday"
    for anytime in (search(mode=SearchMode.HYBRID), search(now=NOW + timedelta(days=1))):
        assert (len(anytime.matches), anytime.window) == (2, None)


@pytest.mark.parametrize(
    "query", ["What leaked in March?", "Was hat im März geleckt?", "¿Qué goteaba en marzo de 2025?"]
)
def test_a_month_that_a_query_names_is_preferred_without_a_clock(query):
    alice = a_person()
    for number, month in enumerate((2, 3, 4), start=1):
        conversation = Conversation.objects.create(user=alice, title="Roof")
        services.save_exchange(
            conversation=conversation,
            user_message=f"The roof leaks, number {number}",
            assistant_message="Oh.",
            said_at=datetime(2025, month, 14, 12, tzinfo=UTC),
        )
    index.embed_pending()

    found = search_chat_history(user=alice, query=query, limit=5, mode=SearchMode.HYBRID)

    assert [found.matches[0].snippet, len(found.matches)] == ["The roof leaks, number 2", 3]


def test_days_relative_to_now_are_searched_beyond_the_best_of_all_time(monkeypatch):
    gather = hybrid.gather
    monkeypatch.setattr(
        hybrid, "gather", lambda scope, **options: gather(scope, **options | {"texts": 3, "passages": 3})
    )
    alice = a_person()
    old = Conversation.objects.create(user=alice, title="Roof")
    for number in range(6):
        services.save_exchange(
            conversation=old,
            user_message=f"The roof, the roof, roof number {number}",
            assistant_message="Roof.",
            said_at=NOW - timedelta(days=20 + number),
        )
    a_turn(alice, "Among much else that has to do with the garden and the cellar, a word on the roof")
    index.embed_pending()

    found = search_chat_history(
        user=alice, query="roof yesterday", limit=5, mode=SearchMode.HYBRID, now=NOW + timedelta(days=1)
    )

    assert found.matches[0].snippet.startswith("Among much else")


def test_characters_that_the_model_does_not_know_are_said_to_have_no_meaning(monkeypatch):
    alice = a_person()
    a_turn(alice, "The roof is tight again 𒀱")
    index.embed_pending()
    monkeypatch.setattr(FakeEmbedder, "embed_query", lambda self, text: np.zeros(self.dimensions, np.float32))

    semantic = search_chat_history(user=alice, query="𒀱", limit=5)
    hybrid = search_chat_history(user=alice, query="roof", limit=5, mode=SearchMode.HYBRID)

    assert (semantic.matches, semantic.notes) == ([], (UNKNOWN_CHARACTERS,))
    assert [match.distance for match in hybrid.matches] == [None]
