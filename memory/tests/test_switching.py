"""Another embedding model takes the active one's place: search never finds less, and never with the wrong one."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from core.isolation.acting import acting_as
from intake.models import Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index, records
from memory.backends import embedders
from memory.backends.embedders import (
    EmbedderError,
    EmbedderRefused,
    get_embedder,
    get_next_embedder,
    require_active,
    using,
)
from memory.index.health import Switch
from memory.index.sources import key_of, load, passages_of
from memory.models import Embedding, EmbeddingModel
from memory.receivers import check_embedding_model
from memory.search.chat_history import search_chat_history
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

FAKE = "memory.backends.embedders.FakeEmbedder"
NEXT = {"BACKEND": FAKE, "OPTIONS": {"name": "next", "dimensions": 96, "max_tokens": 64}}


@pytest.fixture
def next_configured(settings):
    settings.EMBEDDER_NEXT = NEXT
    return get_next_embedder()


@pytest.fixture
def alice():
    return a_person()


def switch(following, **options):
    said = []
    with as_a_worker():
        Switch(following, tell=said.append, sleep=lambda seconds: None).run(**options)
    return said


def models():
    return set(Embedding.objects.values_list("model__name", flat=True))


def found(user, query):
    return [hit.snippet for hit in search_chat_history(user=user, query=query, limit=5).matches]


def test_one_model_alone_is_active_without_the_database_being_asked(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert get_embedder().name == "fake"
    assert get_next_embedder() is None


def test_the_next_model_waits_until_it_is_switched_to(next_configured, alice):
    a_turn(alice, "I adopted a cat named Miso")
    assert get_embedder().name == "fake"
    assert models() == {"fake"}
    switch(next_configured)
    assert get_embedder() is next_configured
    assert models() == {"next"}
    assert found(alice, "adopted a cat") == ["I adopted a cat named Miso"]


def test_every_corpus_is_taken_along(next_configured, alice):
    with acting_as(alice):
        documents.append(user=alice, day=None, text="No nuts", now=NOW)
        documents.append(user=alice, day=NOW.date(), text="Rain all day. " * 100, now=NOW)
        records.create(user=alice, content="We chose PostgreSQL", now=NOW)
    a_turn(alice, "Hello")
    switch(next_configured)
    assert set(Embedding.objects.values_list("corpus", flat=True)) == {"chat", "memory", "daily_log", "record"}
    assert {len(row.vector) for row in Embedding.objects.all()} == {96}


def test_what_changes_or_goes_while_the_next_models_rows_are_made_is_made_anew(next_configured, alice, monkeypatch):
    with acting_as(alice):
        written = documents.create(user=alice, day=None, content="Likes tea\n" + "More of it. " * 400, now=NOW)
    turn, gone = a_turn(alice, "Green is my favourite"), a_turn(alice, "Gone soon")
    index.embed_pending()
    embed_pending, is_changing = index.embed_pending, [True]

    def then_change(**options):
        filled = embed_pending(**options)
        if is_changing and is_changing.pop():
            with using(_current()), acting_as(alice):
                documents.replace(user=alice, day=None, content="Likes coffee", expected=[written.state], now=NOW)
                Turn.objects.get(pk=gone.pk).delete()
                changed = Turn.objects.get(pk=turn.pk)
                changed.user_message = "Blue is my favourite"
                changed.save()
                a_turn(alice, "Said meanwhile")
        return filled

    monkeypatch.setattr(index, "embed_pending", then_change)
    switch(next_configured)
    assert models() == {"next"}
    assert not Embedding.objects.filter(vector=None).exists()
    assert Embedding.objects.filter(corpus="memory").count() == 1
    assert Embedding.objects.filter(corpus="chat").count() == 2
    assert found(alice, "blue favourite")[0] == "Blue is my favourite"
    assert "Said meanwhile" in found(alice, "said meanwhile")
    for row in Embedding.objects.all():
        (text,) = load([key_of(row)])
        made = next_configured.embed_documents(list(passages_of(text, [row.span], next_configured)))[0]
        assert list(row.vector) == pytest.approx(made.tolist(), abs=1e-3)


def _current():
    return embedders.configured_embedders()[0]


def test_a_part_that_the_next_model_refuses_leaves_everything_as_it_is(next_configured, alice, monkeypatch, settings):
    settings.EMBEDDING_MAX_ATTEMPTS = 1
    a_turn(alice, "I adopted a cat")
    index.embed_pending()

    def refuse(texts):
        raise EmbedderRefused("Too strange.")

    with monkeypatch.context() as broken:
        broken.setattr(next_configured, "embed_documents", refuse)
        with pytest.raises(EmbedderError, match="could not embed 1 parts"):
            switch(next_configured)
    assert get_embedder().name == "fake"
    assert found(alice, "adopted a cat") == ["I adopted a cat"]
    switch(next_configured, despite_refused=True)
    assert get_embedder().name == "next"


def test_an_interrupted_switch_goes_on_where_it_was(next_configured, alice, monkeypatch, settings):
    settings.EMBEDDING_BATCH_SIZE = 4
    for number in range(10):
        a_turn(alice, f"Message {number}")
    index.embed_pending()
    asked = []
    embed = next_configured.embed_documents

    def stop_half_way(texts):
        if len(asked) >= 4:
            raise KeyboardInterrupt
        asked.extend(texts)
        return embed(texts)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(next_configured, "embed_documents", stop_half_way)
        with pytest.raises(KeyboardInterrupt):
            switch(next_configured)
    assert get_embedder().name == "fake"
    made = Embedding.objects.of_model("next").exclude(vector=None).count()
    # What was claimed and not made is due again when the lease has run out.
    Embedding.objects.filter(vector=None).update(next_attempt_at=NOW - timedelta(days=1))
    switch(next_configured)
    assert made >= 4
    assert Embedding.objects.of_model("next").exclude(vector=None).count() == 10
    assert models() == {"next"}


def test_repeating_a_finished_switch_changes_nothing(next_configured, alice):
    a_turn(alice, "Hello")
    switch(next_configured)
    rows = set(Embedding.objects.values_list("pk", flat=True))
    assert switch(next_configured) == ["0 rows of other models deleted."]
    assert set(Embedding.objects.values_list("pk", flat=True)) == rows


def test_settings_that_name_other_models_than_the_index_was_made_with_are_refused(next_configured, settings, alice):
    a_turn(alice, "Hello")
    switch(next_configured)
    settings.EMBEDDER_NEXT = {"BACKEND": FAKE, "OPTIONS": {"name": "a third"}}
    with pytest.raises(EmbedderError, match="made with the embedding model next, and the settings name fake and"):
        get_embedder()
    with pytest.raises(EmbedderError, match="name it again"):
        require_active("fake")
    settings.EMBEDDER = NEXT
    assert get_embedder().name == "next"


def test_another_model_in_the_settings_without_a_switch_is_refused_with_the_way_out(settings, alice, client):
    assert check_embedding_model(databases=["default"]) == []
    a_turn(alice, "Hello")
    settings.EMBEDDER = NEXT
    (error,) = check_embedding_model(databases=["default"])
    assert error.id == "memory.E001"
    assert "made with the embedding model fake, and the settings name next" in error.msg
    assert "switch_embedding_model" in error.hint
    assert client.get("/healthz").status_code == 503
    settings.EMBEDDER = {"BACKEND": FAKE}
    assert check_embedding_model(databases=["default"]) == []
    assert client.get("/healthz").status_code == 200


def test_a_process_that_knows_only_the_former_model_is_not_healthy(next_configured, settings, client):
    switch(next_configured)
    assert client.get("/healthz").status_code == 200
    settings.EMBEDDER_NEXT = None
    response = client.get("/healthz")
    parts = response.json()
    assert (response.status_code, parts["database"], parts["embedder"]) == (503, True, False)
    settings.EMBEDDER = NEXT
    assert client.get("/healthz").status_code == 200


def test_a_model_that_was_switched_from_can_be_switched_back_to(next_configured, settings, alice):
    a_turn(alice, "I adopted a cat")
    switch(next_configured)
    settings.EMBEDDER, settings.EMBEDDER_NEXT = NEXT, {"BACKEND": FAKE}
    switch(get_next_embedder())
    assert get_embedder().name == "fake"
    assert models() == {"fake"}
    assert found(alice, "adopted a cat") == ["I adopted a cat"]


@pytest.mark.django_db(transaction=True)
def test_search_finds_everything_at_every_moment_of_a_switch_by_command(next_configured, alice, monkeypatch, capsys):
    for number in range(5):
        a_turn(alice, f"Message {number} about the ferry")
    index.embed_pending()
    embed, during = next_configured.embed_documents, []

    def search_meanwhile(texts):
        # In a thread of its own, as every request is.
        try:
            during.append((get_embedder().name, len(_found_as(alice, "message about the ferry"))))
        finally:
            connections.close_all()
        return embed(texts)

    monkeypatch.setattr(next_configured, "embed_documents", search_meanwhile)
    monkeypatch.setattr(embedders, "ACTIVE_NAME_SECONDS", 0.01)
    call_command("switch_embedding_model")
    assert set(during) == {("fake", 5)}
    assert EmbeddingModel.active().get().name == "next"
    assert len(found(alice, "message about the ferry")) == 5
    said = capsys.readouterr().out
    assert "5 of 5 parts embedded.\nnext is active.\n" in said
    assert "5 rows of other models deleted.\nNow name it in EMBEDDING_…" in said


def _found_as(user, query):
    with acting_as(user):
        return found(user, query)


def test_an_index_of_the_other_built_in_model_is_searched_and_written_with_it(settings, alice, client):
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    settings.EMBEDDER, settings.EMBEDDER_BEFORE = NEXT, {"BACKEND": FAKE}
    a_turn(alice, "I adopted a dog")
    index.embed_pending()

    assert get_embedder().name == "fake"
    assert models() == {"fake"}
    assert found(alice, "adopted a dog") == ["I adopted a dog", "I adopted a cat"]
    assert check_embedding_model(databases=["default"]) == []
    assert client.get("/healthz").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_the_command_switches_from_the_other_built_in_model(settings, alice, capsys, monkeypatch):
    monkeypatch.setattr(embedders, "ACTIVE_NAME_SECONDS", 0.01)
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    settings.EMBEDDER, settings.EMBEDDER_BEFORE = NEXT, {"BACKEND": FAKE}

    for _ in range(2):
        call_command("switch_embedding_model")
        assert get_embedder().name == "next"
        assert models() == {"next"}
        assert "There is nothing else to do." in capsys.readouterr().out


def test_a_new_index_is_made_with_the_model_that_is_set(settings, alice):
    settings.EMBEDDER, settings.EMBEDDER_BEFORE = NEXT, {"BACKEND": FAKE}
    a_turn(alice, "I adopted a cat")

    assert get_embedder().name == "next"
    assert models() == {"next"}


def test_without_a_next_model_the_command_says_what_to_do():
    with pytest.raises(CommandError, match="Name the next model in EMBEDDING_NEXT_"):
        call_command("switch_embedding_model")


@pytest.mark.medium
def test_the_built_in_model_takes_the_place_of_another(settings, alice):
    """Two models that have nothing in common: sizes, tokens, meaning."""
    settings.EMBEDDER_NEXT = {
        "BACKEND": "memory.backends.minilm.MiniLMEmbedder",
        "OPTIONS": {"cache_dir": settings.MODEL_CACHE_DIR},
    }
    a_turn(alice, "We adopted a kitten")
    a_turn(alice, "The quarterly figures are late")
    index.embed_pending()
    switch(get_next_embedder())
    assert found(alice, "my pet")[0] == "We adopted a kitten"
