"""From a saved text to its terms: the right words, on the right side, kept in step with the text."""

import pytest
from django.core.management import call_command
from django.db import transaction

from core.isolation.acting import Caller
from intake.accounts import visitors
from intake.chats import services
from intake.chats.services import Answer
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_person, a_turn, a_visitor, a_visitors_turn
from memory import documents, index
from memory.backends.embedders import EmbedderError
from memory.index.segments import flush
from memory.models import Embedding, IndexedText, PendingTerms
from memory.tests.indexed import postings, words

pytestmark = pytest.mark.django_db


def test_each_word_is_counted_on_the_side_that_said_it():
    a_turn(a_person(), "The cat likes cats", "A cat is a feline")
    assert words() == {"cat": (2, 1), "like": (1, 0), "felin": (0, 1)}


def test_a_text_is_as_long_as_its_words_that_are_no_stop_words():
    a_turn(a_person(), "The cat likes cats", "A cat is a feline")
    assert IndexedText.objects.values_list("said_length", "answered_length").get() == (3, 2)
    assert set(PendingTerms.objects.values_list("said_length", "answered_length")) == {(3, 2)}
    flush()
    assert {(each.said_length, each.answered_length) for each in postings()} == {(3, 2)}


def test_a_turn_of_stop_words_only_counts_among_the_persons_texts():
    a_turn(a_person(), "What was it?", "It was.")
    assert IndexedText.objects.count() == 1
    assert words() == {}


def test_words_belong_to_the_turns_owner():
    alice = a_person()
    turn = a_turn(alice, "cat", "")
    flush()
    (posting,) = postings(corpus="chat")
    text = IndexedText.objects.get()
    assert (posting.user, posting.text) == (alice.pk, text.pk)
    assert (text.source_id, text.chunk_index) == (turn.conversation_id, turn.turn_number)


def test_a_turn_that_is_rolled_back_leaves_no_words():
    alice = a_person()
    with pytest.raises(RuntimeError), transaction.atomic():
        a_turn(alice, "Never happened")
        raise RuntimeError
    assert not IndexedText.objects.exists()
    assert words() == {}


def test_saving_a_turn_again_unchanged_changes_nothing():
    turn = a_turn(a_person(), "I adopted a cat")
    before = IndexedText.objects.get().pk
    turn.save()
    assert IndexedText.objects.get().pk == before


def test_a_changed_turn_loses_its_old_words_and_gains_the_new():
    turn = a_turn(a_person(), "I adopted a cat", "")
    turn.user_message = "I adopted a dog"
    turn.save()
    assert words() == {"adopt": (1, 0), "dog": (1, 0)}


def test_words_that_change_sides_are_counted_anew():
    turn = a_turn(a_person(), "cat", "dog")
    turn.user_message, turn.assistant_message = "", "catdog"
    turn.save()
    turn.user_message, turn.assistant_message = "dog", "cat"
    turn.save()
    assert words() == {"cat": (0, 1), "dog": (1, 0)}


def test_an_answer_made_of_recalled_words_has_no_postings():
    turn = services.create_turn(
        services.TurnRequest(message="And my cat?"), caller=Caller(user_id=a_person().pk), now=NOW
    )
    answer = Answer(text="You said: Miso", status=Turn.Status.COMPLETE, is_recall=True)
    services.finish_turn(turn_id=turn.pk, answer=answer)
    assert words() == {"cat": (1, 0)}


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_deleted_turn_takes_its_words_and_rows_along(is_flushed):
    alice = a_person()
    turn = a_turn(alice, "Forget this")
    kept = a_turn(alice, "Keep that")
    if is_flushed:
        flush()
    Turn.objects.filter(pk=turn.pk).delete()
    assert set(words()) == {"keep", "note"}
    assert Embedding.objects.get().source_id == kept.conversation_id


def test_a_deleted_conversation_takes_its_words_along():
    turn = a_turn(a_person(), "Forget this")
    Conversation.objects.get(pk=turn.conversation_id).delete()
    assert not IndexedText.objects.exists()
    assert words() == {}


@pytest.mark.medium
def test_deleting_a_person_deletes_their_words_in_a_few_statements(django_assert_max_num_queries):
    alice, bob = a_person(), a_person("bob@example.com")
    conversation = a_turn(alice, "Forget me").conversation
    for number in range(60):
        a_turn(alice, f"Forget number {number}", conversation=conversation)
    a_turn(bob, "Remember me", "")
    with django_assert_max_num_queries(47):
        User.objects.get(pk=alice.pk).delete()
    assert set(words()) == {"rememb"}
    assert IndexedText.objects.count() == 1


def test_an_interrupted_visitors_words_are_indexed_once_they_have_an_owner():
    visitor = a_visitor()
    a_visitors_turn(visitor, "My cat is Miso", "")
    assert words() == {}
    visitors.move_to_account(visitor=visitor, user=a_person())
    assert set(words()) == {"cat", "miso"}


def test_a_turn_is_found_by_its_words_even_while_the_model_cannot_be_loaded(monkeypatch):
    from memory.index import writer

    def broken():
        raise EmbedderError("No model.")

    monkeypatch.setattr(writer, "get_embedder", broken)
    a_turn(a_person(), "cat", "")
    assert set(words()) == {"cat"}
    assert not Embedding.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_turns_without_postings_get_them_from_index_missing(capsys):
    alice = a_person()
    a_turn(alice, "I adopted a cat", "")
    a_turn(alice, "And a dog", "")
    IndexedText.objects.order_by("pk")[0].delete()
    call_command("index_missing")
    assert "Indexed 1 turns" in capsys.readouterr().out
    assert set(words()) == {"adopt", "cat", "dog"}


def test_another_configuration_finds_other_words_once_missing_ones_are_indexed(settings):
    a_turn(a_person(), "The cats", "")
    settings.TEXT_SEARCH_CONFIG = "simple"
    assert index.enqueue_missing(now=NOW) == 1
    assert words() == {"the": (1, 0), "cats": (1, 0)}
    assert index.enqueue_missing(now=NOW) == 0


def test_texts_of_older_rules_are_indexed_again_and_once():
    alice = a_person()
    a_turn(alice, "The CatGateway", "")
    documents.append(user=alice, day=None, text="The DogGateway", now=NOW)
    IndexedText.objects.update(content_hash=b"\0\0\0\1" + b"h" * 12, signature="B0")
    PendingTerms.objects.update(lexemes=["old"], said=[1], answered=[0])
    assert index.enqueue_missing(now=NOW) == 2
    assert set(words()) == {"cat", "catgateway", "dog", "doggateway", "gateway"}
    assert all(len(text.signature) > 1 for text in IndexedText.objects.all())
    assert index.enqueue_missing(now=NOW) == 0


@pytest.mark.medium
@pytest.mark.parametrize(
    "message",
    ["cat " * 400_000, "x" * 500_000, "\U0001f600" * 300_000, "b" * 5000 + " cat", "\\x00 \\ ' \" %s %(a)s"],
    ids=["a long text", "one long word", "emoji", "a word too long for an index", "odd characters"],
)
def test_no_text_is_too_odd_to_be_saved(message):
    a_turn(a_person(), message, "")
    assert IndexedText.objects.count() == 1


def test_a_turns_words_are_stored_by_one_statement(django_assert_num_queries):
    from memory.index import terms
    from memory.index.sources import turn_entry

    turn = a_turn(a_person(), "I adopted a cat", "Congratulations!")
    IndexedText.objects.all().delete()
    with django_assert_num_queries(1):
        assert terms.add(turn_entry(turn))
