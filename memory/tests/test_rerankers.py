"""The second look: the built-in model, a real endpoint that misbehaves when told to, and what search does with them."""

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person, a_turn
from memory import index as indexing
from memory import records
from memory.backends.minilm import BATCH, CrossEncoder
from memory.backends.rerankers import RerankEndpoint, RerankerError, get_reranker
from memory.models.documents import Hit
from memory.search import SearchMode, search_chat_history
from memory.search.history import HistoryRequest, search_history
from memory.search.texts import LOOKED_AT, second_scores, with_clear_first
from memory.tests.served import ServedEndpoint
from testing.kept_rows import kept_rows

BUILT_IN = {"BACKEND": "memory.backends.minilm.CrossEncoder"}
QUESTION = "How many people live in Lisbon?"
ANSWER = "Lisbon has a population of 545,796 inhabitants."
OTHERS = ["The invoice of the roofer is 84,300 kroner.", "Basil needs six hours of sun a day.", ""]


@pytest.fixture(scope="module")
def model():
    return CrossEncoder()


def test_the_built_in_model_prefers_the_text_that_answers_the_question(model):
    answer, *others = model.scores(QUESTION, [ANSWER, *OTHERS], seconds=60)
    assert answer > 0 > max(others)


def test_it_leaves_when_nobody_asks_and_comes_back_when_somebody_does(monkeypatch):
    monkeypatch.setattr("memory.backends.minilm.IDLE_SECONDS", 0.2)
    idle = CrossEncoder()
    first, deadline = idle.scores(QUESTION, [ANSWER], seconds=60), time.monotonic() + 60
    while idle._loaded is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert idle.scores(QUESTION, [ANSWER], seconds=60) == first


@pytest.mark.medium
def test_it_reads_any_text_however_long_or_broken(model):
    texts = ["word " * 50_000, "\ud800 half a pair", "\0", "東京" * 500]
    assert len(model.scores("query " * 5_000, texts, seconds=60)) == len(texts)


def test_when_the_time_is_up_what_is_scored_until_then_is_returned(model, monkeypatch):
    """By the wall clock: a batch that takes longer goes on without anybody who waits for it."""
    may_go_on, batches = threading.Event(), []

    def run(session, query, texts):
        batches.append(len(texts))
        if len(batches) > 1:
            assert may_go_on.wait(60)
        return [1.0] * len(texts)

    monkeypatch.setattr("memory.backends.minilm._run", run)
    try:
        assert len(model.scores(QUESTION, [ANSWER] * 30, seconds=2)) == BATCH
        assert model.scores(QUESTION, [ANSWER], seconds=0.01) == [], "one at a time"
    finally:
        may_go_on.set()
    monkeypatch.undo()
    assert len(model.scores(QUESTION, [ANSWER], seconds=60)) == 1


def test_while_it_is_busy_for_longer_than_there_is_time_nothing_is_scored(model):
    with model._running:
        assert model.scores(QUESTION, [ANSWER], seconds=0.05) == []
    assert len(model.scores(QUESTION, [ANSWER], seconds=60)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux has a priority for each thread.")
def test_its_threads_have_stepped_back_behind_those_of_requests():
    before = threads_of_this_process()
    kept = CrossEncoder(threads=2)
    kept.scores(QUESTION, [ANSWER], seconds=60)
    begun = threads_of_this_process() - before
    behind = min(19, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) + 10)
    # Two that compute, and one that waits until the model may leave; another model's may begin beside them.
    assert len(begun) >= 3
    assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in begun} == {behind}


def threads_of_this_process():
    return {int(thread.name) for thread in Path("/proc/self/task").iterdir()}


@pytest.mark.parametrize(
    ("query", "is_asked"),
    [
        ("Where do I live?", True),
        ("AB-1234-CD", True),
        ("Wo wohne ich und was ist mein Beruf?", False),
        ("¿Dónde está mi pasaporte y para qué es?", False),
        ("私はどこに住んでいますか", False),
        ("Где я живу?", False),
    ],
)
def test_the_english_reranker_is_asked_about_english_alone(settings, query, is_asked):
    settings.RERANKER, settings.RERANK_SECONDS = BUILT_IN, 60

    assert bool(second_scores(query, [ANSWER])) is is_asked


def test_many_threads_load_it_once_and_get_the_same_scores():
    shared = CrossEncoder()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(shared.scores(QUESTION, [ANSWER], seconds=60))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(scores) for scores in found}) == 1


def a_hit(number, **figures):
    return Hit(("conversation", number), "chat", NOW, **{"lexical": 1.0, "distance": 0.5, "relevance": 0.5} | figures)


@pytest.mark.parametrize(
    ("figures", "stays"),
    [
        ({"lexical": 5.0, "distance": 0.1, "relevance": 0.9}, True),
        ({"lexical": 5.0, "distance": 0.1, "relevance": 0.7}, False),
        ({"lexical": 0.5, "distance": 0.1, "relevance": 0.9}, False),
        ({"lexical": 5.0, "distance": 0.6, "relevance": 0.9}, False),
        ({"lexical": 5.0, "distance": None, "relevance": 0.9}, False),
    ],
)
def test_a_first_hit_that_terms_and_meaning_agree_on_stays_first(figures, stays):
    first, other = a_hit(1, **figures), a_hit(2)
    again = with_clear_first([first, other], [other._replace(relevance=0.95), first._replace(relevance=0.2)])

    assert [hit.key[1] for hit in again] == ([1, 2] if stays else [2, 1])
    assert [hit.relevance for hit in again] == sorted((hit.relevance for hit in again), reverse=True)


class Endpoint(ServedEndpoint):
    """Scores a text by whether it names Lisbon; `answer`, when set, answers instead."""

    def __init__(self):
        super().__init__("/v1/rerank", self.rerank)
        self.bodies = []
        self.keys = []
        self.answer = None

    async def rerank(self, request):
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("authorization"))
        special = self.answer and self.answer(body)
        if asyncio.iscoroutine(special):
            special = await special
        return special or JSONResponse({"results": rows(body["documents"], "relevance_score")})


def rows(texts, name):
    return [{"index": index, name: 0.9 if "Lisbon" in text else 0.1} for index, text in enumerate(texts)][::-1]


@pytest.fixture(scope="module")
def server():
    endpoint = Endpoint()
    endpoint.start()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def endpoint(server):
    server.bodies, server.keys, server.answer = [], [], None
    return server


def test_an_endpoint_is_asked_with_its_key_and_model_and_its_scores_become_log_odds(endpoint):
    reranker = RerankEndpoint(base_url=endpoint.url, api_key="sk-secret", model="bge-reranker")
    answer, other = reranker.scores(QUESTION, [ANSWER, OTHERS[0]], seconds=5)
    assert (round(answer, 2), round(other, 2)) == (2.2, -2.2)
    assert endpoint.keys == ["Bearer sk-secret"]
    assert endpoint.bodies == [{"query": QUESTION, "documents": [ANSWER, OTHERS[0]], "model": "bge-reranker"}]


def test_an_endpoint_that_calls_them_texts_is_asked_so_from_then_on(endpoint):
    def answer(body):
        if "texts" not in body:
            return JSONResponse({"error": "missing field texts"}, status_code=422)
        return JSONResponse(rows(body["texts"], "score"))

    endpoint.answer = answer
    reranker = RerankEndpoint(base_url=endpoint.url)
    assert [score > 0 for score in reranker.scores(QUESTION, [ANSWER, OTHERS[0]], seconds=5)] == [True, False]
    reranker.scores(QUESTION, [ANSWER], seconds=5)
    assert [sorted(body) for body in endpoint.bodies] == [
        ["documents", "query"],
        ["query", "texts"],
        ["query", "texts"],
    ]


def test_scores_beyond_0_and_1_are_log_odds_already(endpoint):
    endpoint.answer = lambda _: JSONResponse({"results": [{"index": 0, "relevance_score": -7.5}]})
    assert RerankEndpoint(base_url=endpoint.url).scores(QUESTION, [ANSWER], seconds=5) == [-7.5]


def test_an_endpoint_that_is_too_slow_gives_no_scores(endpoint):
    async def sleep():
        await asyncio.sleep(0.5)

    endpoint.answer = lambda _: sleep()
    assert RerankEndpoint(base_url=endpoint.url).scores(QUESTION, [ANSWER], seconds=0.05) == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: PlainTextResponse(f"broken: {ANSWER}", status_code=500),
        lambda _: JSONResponse({"detail": ANSWER}, status_code=401),
        lambda _: JSONResponse({"results": [{"index": 7, "relevance_score": 0.5}]}),
        lambda _: JSONResponse({"results": [{"index": 0, "relevance_score": "high"}]}),
        lambda _: JSONResponse("words"),
        lambda _: JSONResponse({"results": None}),
    ],
    ids=["fails", "refuses the key", "lacks a text", "has no numbers", "is no list", "is empty"],
)
def test_a_failing_endpoint_is_told_of_without_anybodys_words(endpoint, answer):
    endpoint.answer = answer
    with pytest.raises(RerankerError) as caught:
        RerankEndpoint(base_url=endpoint.url).scores(QUESTION, [ANSWER], seconds=5)
    assert "Lisbon" not in str(caught.value)


def test_an_address_without_its_scheme_is_refused():
    with pytest.raises(RerankerError, match="RERANKER_BASE_URL"):
        RerankEndpoint(base_url="reranker:8080")


def test_a_setting_that_cannot_be_followed_is_told(settings):
    settings.RERANKER = {"BACKEND": "memory.backends.rerankers.NoSuchThing"}
    with pytest.raises(RerankerError, match=r"settings\.RERANKER"):
        get_reranker()


@kept_rows
def a_memory():
    """Whose it is, and the turn with the answer, which shares one word with the question; others share more."""
    user = a_person()
    for number in range(LOOKED_AT // 2):
        a_turn(user, f"Many people sing in flat {number} of the Lisbon house where I live", "How loud")
    turn = a_turn(user, ANSWER, "Have a good time")
    indexing.embed_pending()
    return user, turn


@pytest.mark.medium
@pytest.mark.django_db
def test_reranking_puts_the_answer_first_in_chat_history_and_says_so(a_memory, settings):
    settings.RERANKER, settings.RERANK_SECONDS = BUILT_IN, 60
    user, turn = a_memory
    with acting_as(user):
        plain = search_chat_history(user=user, query=QUESTION, limit=5, mode=SearchMode.HYBRID)
        again = search_chat_history(user=user, query=QUESTION, limit=5, mode=SearchMode.HYBRID, rerank=True)
    assert plain.matches[0].snippet != ANSWER
    assert again.matches[0].key == (turn.conversation_id, turn.turn_number)
    assert (plain.is_reranked, again.is_reranked) == (False, True)
    relevances = [match.relevance for match in again.matches]
    assert relevances == sorted(relevances, reverse=True)
    assert all(0 <= relevance <= 1 for relevance in relevances)


@pytest.mark.medium
@pytest.mark.django_db
def test_reranking_puts_the_answer_first_in_search_history_among_notes_too(a_memory, settings):
    settings.RERANKER, settings.RERANK_SECONDS = BUILT_IN, 60
    user, _ = a_memory
    with acting_as(user):
        records.create(user=user, content="How many people live with us: five", type="fact", now=NOW)
        indexing.embed_pending()
        found = search_history(HistoryRequest(query=QUESTION, rerank=True, max_results=20), user=user, now=NOW)
    assert "Lisbon" in found.results[0].excerpt.text
    assert found.is_reranked
    scores = [result.score for result in found.results]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.django_db
def test_without_a_reranker_or_when_it_fails_the_first_order_stands(a_memory, settings, caplog):
    user, _ = a_memory
    orders = []
    for setting in (None, {"BACKEND": "memory.backends.rerankers.RerankEndpoint", "OPTIONS": {"base_url": "no"}}):
        settings.RERANKER = setting
        with acting_as(user):
            found = search_chat_history(user=user, query=QUESTION, limit=5, mode=SearchMode.HYBRID, rerank=True)
        assert not found.is_reranked
        orders.append([match.snippet for match in found.matches])
    assert orders[0] == orders[1]
    assert "not reranked" in caplog.text
    assert "Lisbon" not in caplog.text


@pytest.mark.medium
@pytest.mark.django_db
def test_what_is_quoted_stays_first_whatever_the_reranker_thinks(a_memory, settings):
    settings.RERANKER, settings.RERANK_SECONDS = BUILT_IN, 60
    user, _ = a_memory
    a_turn(user, "Order XK-20449-B has arrived")
    indexing.embed_pending()
    with acting_as(user):
        found = search_chat_history(
            user=user, query=f"{QUESTION} XK-20449-B", limit=5, mode=SearchMode.HYBRID, rerank=True
        )
    assert "XK-20449-B" in found.matches[0].snippet
