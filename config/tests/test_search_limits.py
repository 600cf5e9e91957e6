"""What one search may take: eight exact pieces in one scan, its time, no transaction around a model."""

import asyncio

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from agent_tools.tools import connectors, registry
from chat.agent.tools import _call
from core.errors import Unavailable
from core.isolation.acting import Caller
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index
from memory.backends.embedders import EmbedderLeftAlone, EmbedderSlow, get_embedder, using
from memory.backends.openai_compatible import OpenAICompatibleEmbedder
from memory.index import sources as texts
from memory.search import SearchMode, literal, search_chat_history, sources
from memory.search.history import HistoryRequest, search_history
from memory.search.hybrid import MODEL_AWAY
from memory.tests.test_embedders_openai import Endpoint

QUOTATIONS = " ".join(f'"{chr(97 + n)}{chr(98 + n)}"' for n in range(20))


def chat(user, query, **options):
    return search_chat_history(user=user, query=query, limit=5, mode=SearchMode.HYBRID, **options)


def history(user, query, **options):
    return search_history(HistoryRequest(query=query, **options), user=user, now=NOW)


@pytest.mark.django_db
@pytest.mark.parametrize("search", [chat, history])
def test_all_exact_pieces_of_a_query_are_one_scan(search):
    alice = a_person()
    a_turn(alice, "ab cd ef gh")
    index.embed_pending()
    with CaptureQueriesContext(connection) as queries:
        search(alice, QUOTATIONS)
    scans = [query["sql"] for query in queries.captured_queries if "can_have" in query["sql"]]
    assert len(scans) == 1


@pytest.mark.django_db
def test_of_a_document_every_piece_is_found_in_one_cutting(monkeypatch):
    alice = a_person()
    documents.append(user=alice, day=None, text="ab bc cd de ef fg gh hi", now=NOW)
    cut, chunks = [], texts.document_chunks
    monkeypatch.setattr(texts, "document_chunks", lambda content: cut.append(content) or chunks(content))
    found = history(alice, QUOTATIONS, scope=sources.HistoryScope.MEMORY)
    # To look for the pieces, to see whether it has all of them, and to read the result.
    assert (len(cut), len(found.results)) == (3, 1)


@pytest.mark.django_db
@pytest.mark.parametrize(("tool", "data"), [("search_chat_history", {"mode": "hybrid"}), ("search_history", {})])
def test_the_answer_says_which_pieces_were_left_out(tool, data):
    alice = a_person()
    a_turn(alice, "ab cd ef gh")
    index.embed_pending()
    answer = registry.get(tool).call({"query": QUOTATIONS, **data}, user=alice)
    assert "only the first 8 were searched literally, not: ij, jk," in answer.note
    assert registry.get(tool).call({"query": '"ab" "cd"', **data}, user=alice).note is None


@pytest.mark.django_db
def test_a_source_is_not_searched_again_after_its_timeout(monkeypatch, settings):
    settings.HISTORY_TIMEOUT_SECONDS = 1.0
    alice = a_person()
    a_turn(alice, "A restaurant in Shibuya")
    documents.append(user=alice, day=None, text="A restaurant in Ginza", now=NOW)
    index.embed_pending()
    begun = []

    def hang(*_, **__):
        begun.append(1)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(literal, "containing", hang)
    found = history(alice, "restaurant")
    assert (len(begun), found.unfinished) == (1, ["memory", "messages"])


@pytest.mark.django_db
def test_a_search_of_chats_ends_at_its_deadline(monkeypatch, settings):
    settings.HISTORY_TIMEOUT_SECONDS = 1.0
    alice = a_person()
    a_turn(alice, "Order AB-1234 came")
    index.embed_pending()

    def hang(*_, **__):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(literal, "containing", hang)
    found = chat(alice, "AB-1234")
    assert len(found.matches) == 1
    assert "could not be searched literally in time" in found.notes[0]


@pytest.mark.django_db
@pytest.mark.parametrize("mode", SearchMode)
def test_a_search_out_of_time_is_503_and_says_that_it_was_stopped(monkeypatch, settings, mode):
    settings.HISTORY_TIMEOUT_SECONDS = 0.2
    alice = a_person()

    def hang(*_, **__):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr("memory.search.chat_history.vectors.nearest", hang)
    monkeypatch.setattr("memory.search.chat_history._candidates", hang)
    with pytest.raises(Unavailable, match="took longer than the server allows, and was stopped") as stopped:
        search_chat_history(user=alice, query="cat", limit=5, mode=mode)
    assert (stopped.value.status, stopped.value.retryable) == (503, True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("search", [chat, history])
def test_no_transaction_is_open_while_a_query_is_embedded_or_reranked(search, monkeypatch, settings):
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    seen, embedder = [], get_embedder()

    class Model:
        name, calibration = embedder.name, embedder.calibration

        def embed_query(self, text):
            seen.append(connection.in_atomic_block)
            return embedder.embed_query(text)

    class Reranker:
        reads_english_alone = False

        def scores(self, query, texts, *, seconds):
            seen.append(connection.in_atomic_block)
            return [1.0 for _ in texts]

    monkeypatch.setattr("memory.search.texts.get_reranker", Reranker)
    with using(Model()):
        if search is chat:
            assert chat(alice, "cat last week", rerank=True, now=NOW).is_reranked
        else:
            assert history(alice, "cat last week", rerank=True).is_reranked
    assert seen == [False, False]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("tool", [*registry, connectors.search], ids=lambda tool: tool.name)
def test_no_tool_embeds_its_query_in_a_transaction(tool, monkeypatch):
    alice, seen = a_person(), []
    kind = type(get_embedder())
    embed_query = kind.embed_query

    def watched(self, text):
        seen.append(connection.in_atomic_block)
        return embed_query(self, text)

    monkeypatch.setattr(kind, "embed_query", watched)
    if "query" in tool.input_model.model_fields:
        asked = {"query": "my grey cat", **({"for": "prompt"} if tool.name == "get_context" else {})}
        tool.call(asked, user=alice)
        assert seen == [False]
        seen.clear()
        _call(tool, asked, Caller(user_id=alice.pk), frozenset())
        assert seen == [False]


@pytest.mark.parametrize("path", ["/search/?q=cat", "/search/live/?q=cat", "/search/?q=cat&again=1"])
def test_no_page_embeds_its_query_in_a_transaction(path, person, log_in, monkeypatch):
    seen = []
    kind = type(get_embedder())
    embed_query = kind.embed_query

    def watched(self, text):
        seen.append(connection.in_atomic_block)
        return embed_query(self, text)

    monkeypatch.setattr(kind, "embed_query", watched)
    assert log_in(person).get(path).status_code == 200
    assert seen == [False]


class LeftAlone:
    """The active model, whose endpoint is left alone."""

    def __init__(self):
        self.name, self.calibration = get_embedder().name, get_embedder().calibration

    def embed_query(self, text):
        raise EmbedderLeftAlone("left alone")


@pytest.mark.django_db
def test_while_the_model_is_left_alone_words_answer_and_the_answer_says_so():
    alice = a_person()
    a_turn(alice, "I adopted a cat")
    a_turn(alice, "The report is due")
    index.embed_pending()
    with using(LeftAlone()):
        found = chat(alice, "cat")
        assert [match.snippet for match in found.matches] == ["I adopted a cat"]
        assert found.notes == ("Search by meaning is not available right now. These results were found by words only",)
        by_history = registry.get("search_history").call({"query": "cat"}, user=alice)
        assert by_history.note == "Search by meaning is not available right now. These results were found by words only"
        assert {result.source for result in by_history.results} == {"message", "session"}
        with pytest.raises(Unavailable, match=MODEL_AWAY):
            search_chat_history(user=alice, query="cat", limit=5)


@pytest.mark.django_db(transaction=True)
def test_the_client_of_an_endpoint_refuses_a_transaction_and_gives_up_after_three_timeouts():
    endpoint = Endpoint()

    async def hang():
        await asyncio.sleep(1)

    endpoint.start()
    try:
        embedder = OpenAICompatibleEmbedder(base_url=endpoint.url, model="tiny", dimensions=16)
        embedder.query_timeout = 0.2
        with transaction.atomic(), pytest.raises(RuntimeError, match="inside a database transaction"):
            embedder.embed_query("cat")
        endpoint.answer = lambda _body: hang()
        for _ in range(2):
            with pytest.raises(EmbedderSlow, match="did not answer within"):
                embedder.embed_query("cat")
        # The third is the first that words answer, after the same wait; the fourth does not wait.
        for _ in range(2):
            with pytest.raises(EmbedderLeftAlone):
                embedder.embed_query("cat")
        # Documents may still be tried: they have a longer limit.
        endpoint.answer = None
        assert embedder.embed_documents(["cat"]).shape == (1, 16)
    finally:
        endpoint.stop()
