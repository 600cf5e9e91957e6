"""From a saved turn to its vectors: nothing is lost, nothing is done twice, nothing stale is kept."""

import time
from datetime import timedelta

import numpy as np
import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from core.isolation.acting import Caller, acting_as
from intake.accounts import visitors
from intake.chats import services
from intake.chats.services import Answer
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_person, a_turn, a_visitor, a_visitors_turn
from memory import index
from memory.backends.embedders import (
    EmbedderError,
    EmbedderRefused,
    EmbedderSlow,
    FakeEmbedder,
    get_embedder,
    using,
)
from memory.index import terms, worker
from memory.index.worker import hold
from memory.models import Embedding, EmbeddingModel, IndexedText
from memory.tests.indexed import words

pytestmark = pytest.mark.django_db


@pytest.fixture
def embedder():
    return get_embedder()


def later(seconds):
    return timezone.now() + timedelta(seconds=seconds)


def test_a_saved_turn_waits_for_its_vector_from_the_same_transaction_on(django_capture_on_commit_callbacks):
    alice = a_person()
    with django_capture_on_commit_callbacks() as callbacks:
        turn = a_turn(alice, "I adopted a cat", "Congratulations!")
    row = Embedding.objects.get()
    assert (row.user, row.corpus, row.source_id, row.chunk_index) == (alice, "chat", turn.conversation_id, 1)
    assert (row.visibility, row.part, row.state, row.said_at) == ("AUTHENTICATED", 0, "waiting", NOW)
    assert len(callbacks) == 1, "one wake_worker"


def test_a_turn_that_is_rolled_back_leaves_nothing_to_embed():
    alice = a_person()
    with pytest.raises(RuntimeError), transaction.atomic():
        a_turn(alice, "Never happened")
        raise RuntimeError
    assert not Embedding.objects.exists()


def record(conversation, said, answered="All right"):
    with acting_as(Caller(user_id=conversation.user_id)):
        return services.save_exchange(
            conversation=conversation, user_message=said, assistant_message=answered, said_at=NOW
        )


def places(rows):
    return sorted(rows.values_list("source_id", "chunk_index"))


@pytest.mark.django_db(transaction=True)
def test_a_turn_is_indexed_under_the_number_that_it_got_whatever_was_likely():
    alice = a_person()
    conversation = Conversation.objects.create(user=alice)
    stale, ahead = (Conversation.objects.get(pk=conversation.pk) for _ in range(2))
    ahead.turn_count = 7
    for number, one in enumerate((conversation, stale, ahead, stale), start=1):
        assert record(one, f"Cat number {number}").turn_number == number
    requested = [(conversation.pk, number) for number in (1, 2, 3, 4)]
    assert places(Embedding.objects) == places(IndexedText.objects) == requested
    for text in IndexedText.objects.all():
        turn = Turn.objects.get(turn_number=text.chunk_index)
        assert words(text=text)[turn.user_message.split()[-1]] == (1, 0)


@pytest.mark.parametrize("model", [IndexedText, Embedding])
def test_the_index_holds_nothing_of_a_turn_that_is_not_there(model):
    a_turn(a_person(), "I adopted a dog")
    with pytest.raises(IntegrityError), transaction.atomic():
        model.objects.update(chunk_index=2)


@pytest.mark.django_db(transaction=True)
def test_a_turn_is_recorded_and_found_by_its_words_while_there_is_no_model(monkeypatch):
    alice = a_person()
    conversation = Conversation.objects.create(user=alice)

    def away(*_):
        raise EmbedderError("The tokenizer is away.")

    with monkeypatch.context() as patched:
        patched.setattr("memory.index.writer.cut", away)
        record(conversation, "I adopted a cat")
    assert not Embedding.objects.exists()
    assert "cat" in words()
    assert index.enqueue_missing(now=timezone.now()) == 1
    assert places(Embedding.objects) == [(conversation.pk, 1)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["memory.index.terms.add", "memory.index.writer.cut"])
def test_a_fault_in_indexing_costs_the_turn_nothing_and_is_made_good_by_a_worker(monkeypatch, caplog, place):
    conversation = Conversation.objects.create(user=a_person())

    def fail(*_):
        with connection.cursor() as cursor:
            cursor.execute("SELECT secret FROM no_such_table")

    with monkeypatch.context() as patched:
        patched.setattr(place, fail)
        turn = record(conversation, "I adopted a cat")
        again = Turn.objects.get(pk=turn.pk)
        again.assistant_message = "Which one?"
        again.save()
    (row,) = Embedding.objects.all()
    assert (row.state, row.cutting_rules, row.chunk_index) == ("waiting", 0, turn.turn_number)
    assert "saved without its index (ProgrammingError)" in caplog.text and "secret" not in caplog.text
    index.embed_pending()
    assert {each.state for each in Embedding.objects.all()} == {"embedded"}
    assert "cat" in words()


@pytest.mark.django_db(transaction=True)
def test_a_text_that_can_never_be_indexed_is_quarantined_and_stops_no_other(monkeypatch, settings):
    settings.EMBEDDING_MAX_ATTEMPTS = 2
    conversation = Conversation.objects.create(user=a_person())
    add = terms.add

    def fail(entry):
        if any("hopeless" in text.said for text in entry.texts):
            raise ValueError("hopeless")
        return add(entry)

    monkeypatch.setattr("memory.index.terms.add", fail)
    record(conversation, "This is hopeless")
    record(conversation, "I adopted a cat")
    index.embed_pending()
    Embedding.objects.waiting().update(next_attempt_at=timezone.now())
    index.embed_pending()
    states = dict(Embedding.objects.values_list("chunk_index", "quarantined_at"))
    assert (states[1] is None, states[2]) == (False, None)
    assert Embedding.objects.get(chunk_index=1).last_error == "ValueError"
    assert index.enqueue_missing(now=timezone.now()) == 0


@pytest.mark.django_db(transaction=True)
def test_what_a_turn_that_could_not_be_stored_was_to_leave_in_the_index_is_not_there():
    alice = a_person()
    conversation = Conversation.objects.create(user=alice)
    with pytest.raises(RuntimeError), acting_as(alice):
        record(conversation, "Never happened")
        raise RuntimeError
    gone = Conversation(user=alice)
    with pytest.raises(Conversation.DoesNotExist):
        record(gone, "Never happened")
    assert not (Turn.objects.exists() or IndexedText.objects.exists() or Embedding.objects.exists())


def test_the_text_is_the_specifications(monkeypatch, embedder):
    asked = []
    monkeypatch.setattr(embedder, "embed_documents", lambda texts: asked.extend(texts) or np.eye(1, 384))
    a_turn(a_person(), "I adopted a cat", "Congratulations!")
    index.embed_pending()
    assert asked == ["User: I adopted a cat\nAssistant: Congratulations!"]


def test_the_worker_fills_what_waits_and_then_finds_nothing_more(settings):
    settings.EMBEDDING_BATCH_SIZE = 3
    alice = a_person()
    for number in range(7):
        a_turn(alice, f"Message {number}")
    assert index.embed_pending() == Embedding.objects.count()
    assert {row.state for row in Embedding.objects.all()} == {"embedded"}
    assert index.embed_pending() == 0


def test_a_turn_still_streaming_is_not_indexed_and_an_interrupted_one_is():
    caller = Caller(user_id=a_person().pk)
    turn = services.create_turn(services.TurnRequest(message="Hello"), caller=caller, now=NOW)
    assert not Embedding.objects.exists()
    services.finish_turn(turn_id=turn.pk, answer=Answer(text="Half", status=Turn.Status.INTERRUPTED))
    assert Embedding.objects.count() == 1


def test_a_visitors_turn_is_indexed_once_they_register():
    visitor = a_visitor()
    a_visitors_turn(visitor, "My cat is called Miso")
    index.enqueue_missing(now=NOW)
    assert not Embedding.objects.exists()
    visitors.register(visitor=visitor, email="alice@example.com", password="password", time_zone="UTC")
    assert Embedding.objects.get().user == visitor


def test_a_visitors_turn_is_indexed_once_they_log_in():
    visitor, alice = a_visitor(), a_person()
    a_visitors_turn(visitor, "My cat is called Miso")
    visitors.move_to_account(visitor=visitor, user=alice)
    assert Embedding.objects.get().user == alice


def test_an_answer_made_of_recalled_words_is_not_indexed(monkeypatch, embedder):
    asked = []
    monkeypatch.setattr(embedder, "embed_documents", lambda texts: asked.extend(texts) or np.eye(1, 384))
    turn = services.create_turn(
        services.TurnRequest(message="And my cat?"), caller=Caller(user_id=a_person().pk), now=NOW
    )
    answer = Answer(text="You said: Miso", status=Turn.Status.COMPLETE, is_recall=True)
    services.finish_turn(turn_id=turn.pk, answer=answer)
    index.embed_pending()
    assert "Miso" not in asked[0]


def test_saving_a_turn_again_unchanged_keeps_its_vector():
    turn = a_turn(a_person(), "I adopted a cat")
    index.embed_pending()
    turn.save()
    assert Embedding.objects.get().state == "embedded"


def test_a_changed_turn_waits_for_a_new_vector_and_loses_the_parts_it_no_longer_has():
    turn = a_turn(a_person(), "Tell me a story", "Once upon a time there was a fox. " * 300)
    index.embed_pending()
    before = Embedding.objects.count()
    assert before > 1
    turn.assistant_message = "The end."
    turn.save()
    assert Embedding.objects.count() < before
    assert Embedding.objects.get(part=0).state == "waiting"


def test_a_vector_of_a_text_that_changed_meanwhile_is_not_stored(embedder):
    turn = a_turn(a_person(), "I adopted a cat")
    claimed = index.claim(embedder=embedder, now=timezone.now())
    Turn.objects.filter(pk=turn.pk).update(user_message="I adopted a dog")
    assert index.fill(claimed, embedder=embedder) == 0
    row = Embedding.objects.get()
    assert (row.state, bytes(row.content_hash)) != ("waiting", bytes(claimed[0].content_hash))
    index.embed_pending()
    assert Embedding.objects.get().state == "embedded"


def test_rows_of_a_deleted_turn_disappear(embedder):
    turn = a_turn(a_person(), "Forget this")
    claimed = index.claim(embedder=embedder, now=timezone.now())
    Turn.objects.filter(pk=turn.pk).delete()
    index.fill(claimed, embedder=embedder)
    assert not Embedding.objects.exists()


def test_what_was_claimed_ahead_is_held_anew_once_a_good_part_of_its_lease_is_over(embedder, settings):
    a_turn(a_person(), "Mine")
    now = timezone.now()
    claimed = index.claim(embedder=embedder, now=now)
    lease = timedelta(seconds=settings.EMBEDDING_LEASE_SECONDS)
    hold(claimed, now=now + lease / 10)
    assert Embedding.objects.get().next_attempt_at == now + lease
    hold(claimed, now=now + lease / 2)
    assert Embedding.objects.get().next_attempt_at == now + lease / 2 + lease


def test_a_claimed_row_is_nobody_elses_until_the_lease_runs_out(embedder, settings):
    a_turn(a_person(), "Mine")
    assert len(index.claim(embedder=embedder, now=timezone.now())) == 1
    assert index.claim(embedder=embedder, now=timezone.now()) == []
    assert len(index.claim(embedder=embedder, now=later(settings.EMBEDDING_LEASE_SECONDS + 1))) == 1


def test_a_row_that_failed_before_is_tried_alone(embedder):
    alice = a_person()
    for number in range(3):
        a_turn(alice, f"Message {number}")
    Embedding.objects.filter(pk=Embedding.objects.order_by("pk")[0].pk).update(
        attempts=1, next_attempt_at=timezone.now() - timedelta(hours=1)
    )
    assert len(index.claim(embedder=embedder, now=timezone.now())) == 1
    assert len(index.claim(embedder=embedder, now=timezone.now())) == 2


def test_a_turn_is_claimed_at_once_however_many_somebody_else_has_waiting(embedder, settings):
    settings.EMBEDDING_BATCH_SIZE = 4
    alice, bob = a_person(), a_person("bob")
    for number in range(9):
        a_turn(alice, f"Imported {number}")
    turn = a_turn(bob, "Said just now")
    claimed = index.claim(embedder=embedder, now=timezone.now())
    assert len(claimed) == 4
    assert turn.conversation_id in {row.source_id for row in claimed}
    assert {row.user_id for row in index.claim(embedder=embedder, now=timezone.now())} == {alice.pk}


def test_everybodys_rows_are_taken_in_turns(embedder, settings):
    settings.EMBEDDING_BATCH_SIZE = 6
    people = [a_person(name) for name in ("alice", "bob", "carol")]
    for person in people:
        for number in range(5):
            a_turn(person, f"Message {number}")
    claimed = index.claim(embedder=embedder, now=timezone.now())
    assert sorted(row.user_id for row in claimed) == sorted([person.pk for person in people] * 2)


def test_of_one_persons_rows_the_newest_is_taken_first(embedder, settings):
    settings.EMBEDDING_BATCH_SIZE = 1
    alice = a_person()
    newest = a_turn(alice, "Said just now")
    for number in range(3):
        turn = a_turn(alice, f"Imported {number}")
        Embedding.objects.filter(source_id=turn.conversation_id).update(said_at=NOW - timedelta(days=300 + number))
    (claimed,) = index.claim(embedder=embedder, now=timezone.now())
    assert claimed.source_id == newest.conversation_id


def test_a_model_that_is_away_costs_no_attempt_and_is_asked_again(monkeypatch, embedder):
    a_turn(a_person(), "I adopted a cat")
    with monkeypatch.context() as patch:
        patch.setattr(embedder, "embed_documents", _raise(EmbedderError("The endpoint answered 503.")))
        assert index.embed_pending(until=later(1)) == 0
    row = Embedding.objects.get()
    assert (row.attempts, row.last_error, row.state) == (0, "The endpoint answered 503.", "waiting")
    Embedding.objects.update(next_attempt_at=timezone.now())
    assert index.embed_pending() == 1


def test_one_bad_text_is_quarantined_and_all_others_are_embedded(monkeypatch, embedder, settings):
    alice = a_person()
    for number in range(5):
        a_turn(alice, "poison" if number == 2 else f"Message {number}")
    real = embedder.embed_documents
    monkeypatch.setattr(
        embedder,
        "embed_documents",
        lambda texts: _raise(ValueError("secret words"))() if any("poison" in t for t in texts) else real(texts),
    )
    for _ in range(settings.EMBEDDING_MAX_ATTEMPTS + 1):
        index.embed_pending()
        Embedding.objects.filter(vector=None).update(next_attempt_at=timezone.now())
    states = sorted(row.state for row in Embedding.objects.all())
    assert states == ["embedded"] * 4 + ["quarantined"]
    assert Embedding.objects.quarantined().get().last_error == "ValueError"


def test_a_text_that_the_endpoint_refuses_holds_up_no_others(monkeypatch, embedder):
    alice = a_person()
    for number in range(5):
        a_turn(alice, "too odd" if number == 2 else f"Message {number}")
    real = embedder.embed_documents
    refuse = _raise(EmbedderRefused("The embedding endpoint refused (HTTP 400)."))
    monkeypatch.setattr(
        embedder, "embed_documents", lambda texts: refuse() if any("too odd" in t for t in texts) else real(texts)
    )
    index.embed_pending()
    assert Embedding.objects.exclude(vector=None).count() == 4
    row = Embedding.objects.get(vector=None)
    assert (row.attempts, row.last_error) == (2, "The embedding endpoint refused (HTTP 400).")


def test_rows_claimed_ahead_keep_their_whole_lease_however_long_they_waited(monkeypatch, embedder, settings):
    settings.EMBEDDING_BATCH_SIZE = 1
    settings.EMBEDDING_LEASE_SECONDS = 0.5
    alice = a_person()
    for number in range(3):
        a_turn(alice, f"Message {number}")
    real, asked = embedder.embed_documents, []

    def slow(texts):
        asked.extend(texts)
        time.sleep(0.7)
        return real(texts)

    monkeypatch.setattr(embedder, "embed_documents", slow)
    index.embed_pending()
    assert len(asked) == 3, "each text once"
    assert set(Embedding.objects.values_list("attempts", flat=True)) == {1}


def test_a_row_that_brings_its_worker_down_takes_no_innocent_row_along(monkeypatch, embedder, settings):
    settings.EMBEDDING_BATCH_SIZE = 2
    alice = a_person()
    for text in ("poison", "Claimed beside it", "Claimed ahead"):
        a_turn(alice, text)
    real = embedder.embed_documents

    def die_of_poison(texts):
        if any("poison" in text for text in texts):
            raise SystemExit
        return real(texts)

    monkeypatch.setattr(embedder, "embed_documents", die_of_poison)
    for _ in range(settings.EMBEDDING_MAX_ATTEMPTS):
        with pytest.raises(SystemExit):
            index.embed_pending()
        Embedding.objects.filter(vector=None).update(next_attempt_at=timezone.now())
    index.quarantine_exhausted(now=timezone.now())
    index.embed_pending()

    poison, *innocent = Embedding.objects.order_by("pk")
    assert poison.state == "quarantined"
    assert [row.state for row in innocent] == ["embedded", "embedded"]
    assert max(row.attempts for row in innocent) <= 2, "blamed once at most: when nobody could know better"


def test_a_row_whose_workers_died_every_time_is_quarantined(embedder, settings):
    a_turn(a_person(), "This kills the worker")
    for attempt in range(settings.EMBEDDING_MAX_ATTEMPTS):
        now = later(attempt * (settings.EMBEDDING_LEASE_SECONDS + 1))
        assert len(index.claim(embedder=embedder, now=now)) == 1
    end = later(settings.EMBEDDING_MAX_ATTEMPTS * (settings.EMBEDDING_LEASE_SECONDS + 1))
    assert index.claim(embedder=embedder, now=end) == []
    assert index.quarantine_exhausted(now=end) == 1


def test_turns_that_nobody_queued_are_found_and_queued_once():
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    a_turn(alice, "And a dog")
    Embedding.objects.filter(pk=Embedding.objects.order_by("pk")[0].pk).delete()
    assert index.enqueue_missing(now=timezone.now()) == 1
    assert index.enqueue_missing(now=timezone.now()) == 0
    assert Embedding.objects.count() == 2


def test_fixtures_loaded_raw_are_left_alone():
    from memory.receivers import index_turn

    turn = a_turn(a_person(), "Loaded")
    Embedding.objects.all().delete()
    index_turn(sender=Turn, instance=turn, raw=True)
    assert not Embedding.objects.exists()


def test_deleting_a_person_deletes_their_rows():
    alice = a_person()
    a_turn(alice, "Forget me")
    User.objects.get(pk=alice.pk).delete()
    assert not Embedding.objects.exists()
    assert not Conversation.objects.exists()


def _raise(error):
    def fail(*_):
        raise error

    return fail


def test_of_more_people_than_are_looked_at_due_or_not_each_gets_a_turn(monkeypatch):
    """In small, as 500 owners of 600: the first ones by id have rows that are not due; then all are due."""
    monkeypatch.setattr(worker, "MOST_OWNERS", 8)
    people = [a_person(f"{number}@example.com") for number in range(10)]
    turns = [a_turn(user, "text") for user in people]
    Embedding.objects.update(next_attempt_at=later(600))
    due = Embedding.objects.filter(user__in=people[9:])
    due.update(next_attempt_at=NOW)
    found = {user_id for user_id, _ in worker._due_in_turns(get_embedder(), now=timezone.now())}
    assert found == {user.pk for user in people[9:]}
    # All are due now, and have more rows than a few batches take.
    model = EmbeddingModel.objects.get()
    Embedding.objects.update(next_attempt_at=NOW)
    Embedding.objects.bulk_create(
        Embedding(
            user=turn.user,
            corpus="chat",
            source_id=turn.conversation_id,
            chunk_index=1,
            part=part,
            said_at=NOW,
            length=1,
            model=model,
            content_hash=b"",
            cutting_rules=0,
            next_attempt_at=NOW,
        )
        for turn in turns
        for part in range(1, 21)
    )
    reached = set()
    for _ in range(4):
        reached |= {row.user_id for row in index.claim(embedder=get_embedder(), now=timezone.now())}
    assert {user.pk for user in people[8:]} <= reached


class Slow(FakeEmbedder):
    """As slow as an endpoint that takes eight seconds a text and is given up after 30."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.sizes = clock, []

    def embed_documents(self, texts):
        self.sizes.append(len(texts))
        seconds = 8 * len(texts)
        self.clock[0] += min(seconds, 30)
        if seconds > 30:
            raise EmbedderSlow("did not answer within 30 seconds")
        return super().embed_documents(texts)


def test_a_slow_model_embeds_everything_in_batches_that_fit(monkeypatch, settings):
    settings.EMBEDDING_BATCH_SIZE = 8
    alice, clock = a_person(), [0.0]
    for number in range(15):
        a_turn(alice, f"text {number}")
    monkeypatch.setattr(worker, "batches", worker.Batches())
    monkeypatch.setattr(worker.time, "monotonic", lambda: clock[0])
    embedder = Slow(clock)
    with using(embedder):
        for _ in range(40):
            Embedding.objects.filter(vector=None).update(next_attempt_at=NOW)
            index.embed_pending()
            if not Embedding.objects.filter(vector=None).exists():
                break
    assert not Embedding.objects.filter(vector=None).exists()
    # Eight and at most one more are given up; then at most what takes ten seconds.
    assert sum(size > 3 for size in embedder.sizes) <= 3, embedder.sizes
    assert max(embedder.sizes[-3:]) <= 1, embedder.sizes
    assert not Embedding.objects.exclude(quarantined_at=None).exists()


def test_a_model_that_becomes_fast_again_gets_its_full_batches_back():
    batches = worker.Batches()
    model = get_embedder()
    for size in (32, 16, 8):
        batches.were_too_slow(model, size)
    assert batches.size(model) == 4
    for _ in range(8):
        batches.took(model, batches.size(model), 0.01)
    assert batches.size(model) == 32
