"""What is deleted leaves no trace: every column of every table, every session and the broker are searched for it.

Terms stand in the index's segments until the next sweep, at most half a minute, where no search shows or counts them.
"""

import threading

import pytest
import redis
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.test import Client
from rest_framework.test import APIClient

from chat import exporting
from core.isolation.acting import Caller, acting_as
from intake.chats import deleting, services
from intake.models import Turn, User
from intake.tests.factories import NOW, a_person, a_turn, a_visitor, a_visitors_turn
from memory import documents, index, records
from memory.backends.embedders import get_embedder
from memory.index import writer
from memory.index.scoring import score
from memory.index.segments import flush
from memory.models import Corpus, DeletedText, Embedding, IndexedText, PendingTerms, TermBlock, TermSegment
from memory.models.documents import Scope
from memory.tasks import SWEPT, sweep_deleted, sweep_lost
from memory.tests.overview.drawn import draw
from testing.examiner import as_a_worker
from testing.traces import rows_naming, traces_of

pytestmark = pytest.mark.django_db(transaction=True)

# A word that no stemmer shortens.
SECRET = "kwyjibo"


@pytest.fixture
def alice() -> User:
    return a_person("alice@example.com")


def said(user: User, **fields) -> Turn:
    """A turn with the secret on both sides, indexed to the last vector, on the map and in the timeline."""
    turn = a_turn(user, f"The word is {SECRET}", f"I shall remember {SECRET}.", **fields)
    index.embed_pending()
    flush()
    draw(user)
    return turn


def caller_of(user: User) -> Caller:
    return Caller(user_id=user.pk)


def sweep() -> None:
    with redis.Redis.from_url(settings.REDIS_URL) as kept:
        # As on the next day.
        kept.delete(*(kept.keys(f"{SWEPT}*") or ["none"]))
    with as_a_worker():
        sweep_lost()
        sweep_deleted()


def test_the_search_for_traces_finds_them_where_they_are(alice):
    said(alice)
    found = traces_of(SECRET)
    assert {"intake_conversations.title", "intake_conversation_turns.user_message", "term_blocks.lexemes"} <= set(found)
    assert "telling_words.word" in found
    assert {"embeddings", "term_blocks", "term_segments", "indexed_texts"} <= set(rows_naming("user_id", alice.pk))


def test_a_deleted_turn_leaves_nothing(alice):
    kept = a_turn(alice, "Something else")
    said(alice, conversation=kept.conversation)
    deleting.delete_turn(caller=caller_of(alice), conversation_id=kept.conversation_id, turn_number=2)
    assert set(traces_of(SECRET)) == {"term_blocks.lexemes"}
    assert score(Scope(alice, (Corpus.CHAT,)), query=SECRET, limit=10)[0] == []
    sweep()
    assert traces_of(SECRET) == []
    assert set(Embedding.objects.values_list("chunk_index", flat=True)) == {1}
    assert set(IndexedText.objects.values_list("chunk_index", flat=True)) == {1}


def test_a_deleted_conversation_leaves_nothing(alice):
    a_turn(alice, "Something else")
    turn = said(alice)
    said(alice, conversation=turn.conversation)
    deleting.delete_conversation(caller=caller_of(alice), conversation_id=turn.conversation_id)
    sweep()
    assert traces_of(SECRET) == []
    assert rows_naming("source_id", turn.conversation_id) == []
    assert Embedding.objects.exists()


@pytest.mark.medium
@pytest.mark.parametrize("table", ["intake_conversation_turns", "intake_conversations", "users"])
def test_what_is_deleted_in_the_database_itself_is_found_no_more_and_gone_within_a_day(alice, table):
    said(alice)
    a_turn(alice, "Not embedded yet")
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table}")
    assert not any(model.objects.exists() for model in (IndexedText, PendingTerms, Embedding))
    assert not Turn.objects.exists()
    assert settings.SCHEDULE["memory.sweep_lost"] <= (60, 60)
    sweep()
    assert not any(model.objects.exists() for model in (TermSegment, TermBlock, DeletedText))
    assert [trace for trace in traces_of(SECRET) if trace != "intake_conversations.title"] == []


def save_over_rest(api: APIClient):
    """With a key, under which the answer is kept for a request that is sent again."""
    body = {"content": f"The word is {SECRET}", "tags": [SECRET]}
    return api.post("/api/v1/tools/save_memory/", body, format="json", headers={"Idempotency-Key": "once"})


def test_a_deleted_record_leaves_nothing_not_even_in_the_answer_that_is_kept_for_a_repeat(alice):
    api = APIClient()
    api.force_authenticate(alice)
    record = save_over_rest(api).json()["record"]["id"]
    index.embed_pending()
    flush()
    assert "intake_idempotent_answers.answer" in traces_of(SECRET)
    assert api.delete(f"/api/v1/memory/records/{record}/").status_code == 204
    sweep()
    assert traces_of(SECRET) == []
    repeat = save_over_rest(api)
    assert (repeat.status_code, repeat.json()["code"]) == (404, "not_found")
    assert traces_of(SECRET) == []


@pytest.mark.parametrize("path", ["memory", f"daily-logs/{NOW.date()}"])
def test_a_deleted_document_leaves_nothing(alice, path):
    api = APIClient()
    api.force_authenticate(alice)
    documents.append(user=alice, day=None if path == "memory" else NOW.date(), text=f"The word is {SECRET}", now=NOW)
    index.embed_pending()
    flush()
    assert traces_of(SECRET)
    assert api.delete(f"/api/v1/memory/documents/{path}/", headers={"If-Match": "*"}).status_code == 204
    sweep()
    assert traces_of(SECRET) == []


def test_nothing_that_is_said_goes_through_the_broker_or_into_a_file(alice, settings):
    """Nudges carry nothing, results are not kept, and what is exported is streamed: what was never there need not go."""
    said(alice)
    api = APIClient()
    api.force_authenticate(alice)
    save_over_rest(api)
    assert SECRET.encode() in b"".join(exporting.account_as_json(user=alice, now=NOW))
    assert [trace for trace in traces_of(SECRET) if "broker" in trace] == []
    files = [path for path in settings.VAR_DIR.rglob("*") if path.is_file() and "models" not in path.parts]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_a_deleted_account_leaves_nothing_anywhere():
    client, visitor = Client(), a_visitor()
    client.force_login(visitor)
    a_visitors_turn(visitor, f"Said early: {SECRET}", SECRET)
    client.post("/register/", {"email": f"{SECRET}@example.com", "password": "correct horse battery"})
    alice = User.objects.get()
    said(alice)
    a_turn(alice, f"Not embedded yet: {SECRET}")
    documents.append(user=alice, day=None, text=SECRET, now=NOW)
    documents.append(user=alice, day=NOW.date(), text=SECRET, now=NOW)
    records.create(user=alice, content=SECRET, now=NOW, project_id=SECRET, tags=[SECRET])
    apps.get_model("agent_tools.AccessToken").objects.issue(user=alice, name=SECRET)
    api = APIClient()
    api.force_authenticate(alice)
    assert save_over_rest(api).status_code == 200
    bob = a_person("bob@example.com")
    a_turn(bob, "Mine stays")
    named = set(rows_naming("user_id", alice.pk))
    assert {"intake_sessions", "access_tokens", "term_blocks", "embeddings"} <= named
    assert {"pending_terms", "term_segments"} <= named
    assert "intake_idempotent_answers" in named
    answer = api.delete("/api/v1/account/", {"password": "correct horse battery"}, format="json")
    assert answer.status_code == 200 and SECRET not in answer.content.decode()
    assert traces_of(SECRET) == []
    assert rows_naming("user_id", alice.pk) == []
    assert set(PendingTerms.objects.values_list("user", flat=True)) == {bob.pk}


def test_a_turn_deleted_while_a_worker_embeds_it_does_not_come_back(alice, monkeypatch):
    turn = a_turn(alice, f"The word is {SECRET}")
    embedder = get_embedder()
    embed = embedder.embed_documents

    def delete_meanwhile(texts):
        if not thread.is_alive() and texts:
            thread.start()
            thread.join()
        return embed(texts)

    def delete():
        try:
            with acting_as(alice):
                deleting.delete_conversation(caller=caller_of(alice), conversation_id=turn.conversation_id)
        finally:
            connection.close()

    thread = threading.Thread(target=delete)
    monkeypatch.setattr(embedder, "embed_documents", delete_meanwhile)
    index.embed_pending()
    assert traces_of(SECRET) == []
    assert not Embedding.objects.exists()


def test_a_turn_deleted_while_it_is_indexed_anew_does_not_come_back(alice, monkeypatch):
    turn = a_turn(alice, f"The word is {SECRET}")
    IndexedText.objects.all().delete()
    Embedding.objects.all().delete()
    enqueue = writer.enqueue

    def delete_first(*args, **kwargs):
        thread = threading.Thread(target=delete)
        thread.start()
        thread.join(timeout=0.5)
        return enqueue(*args, **kwargs)

    def delete():
        try:
            with acting_as(alice):
                deleting.delete_turn(caller=caller_of(alice), conversation_id=turn.conversation_id, turn_number=1)
            is_deleted.set()
        finally:
            connection.close()

    is_deleted = threading.Event()
    monkeypatch.setattr(writer, "enqueue", delete_first)
    index.enqueue_missing(now=NOW)
    assert is_deleted.wait(5)
    assert traces_of(SECRET) == []
    assert not Embedding.objects.exists()


def test_an_account_deleted_while_its_answer_is_saved_leaves_nothing(alice):
    """The answer holds its turn and asks for the person's row; the deletion takes them in the same order."""
    turn = services.create_turn(services.TurnRequest(message="Tell"), caller=caller_of(alice), now=NOW)
    answer = services.Answer(text=SECRET, status=Turn.Status.COMPLETE)
    is_held = threading.Event()

    def finish():
        try:
            with acting_as(alice):
                Turn.objects.select_for_update().get(pk=turn.pk)
                is_held.set()
                threading.Event().wait(0.3)
                services.finish_turn(turn_id=turn.pk, answer=answer)
        finally:
            connection.close()

    thread = threading.Thread(target=finish)
    thread.start()
    assert is_held.wait(5)
    deleting.delete_account(user=alice)
    thread.join(5)
    assert traces_of(SECRET) == []
    assert rows_naming("user_id", alice.pk) == []
