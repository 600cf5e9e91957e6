"""Search finds every version of a turn; of two that are about as relevant the chosen one stands above."""

import pytest

from core.isolation.acting import acting_as
from intake.chats import deleting, versions
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import index
from memory.index import segments
from memory.models import Embedding, IndexedText
from memory.search import SearchMode, search_chat_history
from memory.search.history import HistoryRequest, HistoryScope, search_history

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def two_versions(user):
    """The same message answered twice, in as many words; the second is chosen."""
    first = a_turn(user, "What does the ferry to Hiiumaa cost?", "It costs 7 euros today.")
    a_turn(
        user, "What does the ferry to Hiiumaa cost?", "It costs 7 euros now.", conversation=first.conversation, parent=0
    )
    a_turn(user, "My cat is called Miso")
    index.embed_pending()
    segments.flush()
    return first.conversation


def found(user, query="ferry to Hiiumaa cost"):
    matches = search_chat_history(user=user, query=query, limit=5, mode=SearchMode.HYBRID).matches

    return [hit.key[1] for hit in matches if hit.snippet.startswith("What does")]


def found_in_history(user, query="ferry to Hiiumaa cost"):
    request = HistoryRequest(query=query, scope=HistoryScope.SESSIONS)
    results = search_history(request, user=user, now=NOW).results
    return [result.reference.turn_number for result in results if result.reference.turn_number]


def choose(user, conversation, number):
    versions.choose_version(caller=caller_for(user), conversation_id=conversation.pk, turn_number=number)


def test_of_two_versions_the_chosen_one_stands_above_whichever_it_is(alice):
    conversation = two_versions(alice)
    for chosen, other in ((1, 2), (2, 1)):
        choose(alice, conversation, chosen)
        assert found(alice) == [chosen, other]
        assert found_in_history(alice)[0] == chosen


def test_a_version_that_alone_has_what_was_asked_for_is_found_all_the_same(alice):
    conversation = two_versions(alice)
    choose(alice, conversation, 2)
    assert found(alice, "euros today")[0] == 1
    assert found_in_history(alice, "euros today")[0] == 1


def test_a_conversation_without_versions_costs_one_small_query_and_keeps_its_order(alice, django_assert_num_queries):
    first = a_turn(alice, "The ferry leaves at noon")
    a_turn(alice, "And the ferry back?", conversation=first.conversation)
    assert not Conversation.objects.get().has_versions
    from intake.chats.reading import off_path

    with django_assert_num_queries(1):
        assert off_path(user=alice, keys=[(first.conversation_id, 1), (first.conversation_id, 2)]) == set()


def test_deleting_a_subtree_removes_exactly_its_vectors_and_terms(alice):
    conversation = two_versions(alice)
    for parent in (1, 3, 1):
        a_turn(alice, "Below the first", conversation=conversation, parent=parent)
    index.embed_pending()
    segments.flush()
    with acting_as(alice):
        deleting.delete_from(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=1, expected=4)
    left = {2}
    assert set(conversation.turns.values_list("turn_number", flat=True)) == left
    for rows in (Embedding.objects, IndexedText.objects):
        kept = rows.filter(source_id=conversation.pk).values_list("chunk_index", flat=True)
        assert set(kept) == left
    assert found(alice) == [2]
    assert Embedding.objects.exclude(source_id=conversation.pk).exists()
