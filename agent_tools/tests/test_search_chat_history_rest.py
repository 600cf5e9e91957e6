"""`search_chat_history` over REST: the contract's words, for people with a token or a session, and for nobody else."""

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agent_tools.tests import callers
from agent_tools.tools.chat_history import (
    ChatHistoryResult,
    SearchChatHistoryOutput,
    search_chat_history,
    summarise,
)
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.backends.embedders import EmbedderError, get_embedder

pytestmark = pytest.mark.django_db

URL = "/api/v1/tools/search_chat_history/"


def call(client, body):
    return callers.call(client, "search_chat_history", body)


def test_a_found_turn_has_the_contracts_shape(api, alice):
    turn = a_turn(alice, "I adopted a cat named Miso")
    index.embed_pending()
    answer = call(api, {"query": "  adopted a cat "}).json()
    (result,) = answer.pop("results")
    assert answer == {"totalFound": 1, "query": "adopted a cat"}
    assert UUID(result.pop("conversationId")) == turn.conversation_id
    assert 0 <= result.pop("score") <= 2
    assert result == {"turnNumber": 1, "snippet": "I adopted a cat named Miso"}


def test_an_earlier_value_names_the_turn_in_which_the_person_says_otherwise(api, alice):
    said_at = NOW - timedelta(days=9)
    old = a_turn(alice, "My day rate is 240 with the van", said_at=said_at)
    new = a_turn(alice, "My day rate is 265 with the van now", said_at=NOW)
    index.embed_pending()

    answer = call(api, {"query": "day rate with the van", "mode": "hybrid"}).json()

    later = {result["conversationId"]: result.get("saidOtherwise") for result in answer["results"]}
    named = {"id": f"{new.conversation_id}/1", "date": NOW.date().isoformat()}
    assert later == {str(old.conversation_id): named, str(new.conversation_id): None}
    text = search_chat_history.call({"query": "day rate with the van", "mode": "hybrid"}, user=alice).as_read
    short = f"{new.conversation_id.hex[-8:]}/1"
    assert f"the person says otherwise on {named['date']} in {short}" in text.splitlines()


def test_a_call_asks_the_database_for_its_token_and_nothing_else_beyond_the_search(api, alice):
    a_turn(alice, "I adopted a cat named Miso")
    index.embed_pending()
    # The first one notes that the token was used.
    call(api, {"query": "cat"})
    with CaptureQueriesContext(connection) as over_rest:
        call(api, {"query": "cat"})
    with CaptureQueriesContext(connection) as beneath:
        search_chat_history.call({"query": "cat"}, user=alice)
    (extra,) = asked(over_rest, but=asked(beneath))
    assert "access_tokens" in extra


def asked(captured, but=()):
    """The statements, without those by which the test becomes the application."""
    statements = [query["sql"] for query in captured if "'role'" not in query["sql"] or "app.user_id" in query["sql"]]
    known = {shape_of(statement) for statement in but}
    return [statement for statement in statements if shape_of(statement) not in known]


def shape_of(statement):
    return re.sub(r"'[^']*'|\d+", "?", statement)


def test_without_any_history_the_answer_is_empty_and_says_so(api):
    answer = call(api, {"query": "cat"})
    assert answer.status_code == 200
    assert answer.json() == {"results": [], "totalFound": 0, "query": "cat", "note": "no chat history found"}


def test_turns_that_wait_are_told(api, alice):
    a_turn(alice, "I adopted a cat")
    assert call(api, {"query": "cat"}).json()["pending"] == 1


def test_somebody_elses_turns_are_not_found(api):
    a_turn(a_person("bob@example.com"), "I adopted a cat")
    index.embed_pending()
    assert call(api, {"query": "cat"}).json()["results"] == []


def test_the_limit_holds(api, alice):
    for number in range(25):
        a_turn(alice, f"Cat number {number}")
    index.embed_pending()
    assert call(api, {"query": "cat"}).json()["totalFound"] == 5
    assert call(api, {"query": "cat", "limit": 20}).json()["totalFound"] == 20


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": "   "}, "query"),
        ({"query": "x" * 501}, "query"),
        ({"query": True}, "query"),
        ({"query": None}, "query"),
        ({"query": ["cat"]}, "query"),
        ({"query": "cat", "limit": 0}, "limit"),
        ({"query": "cat", "limit": 21}, "limit"),
        ({"query": "cat", "limit": "five"}, "limit"),
        ({"query": "cat", "limit": True}, "limit"),
        ({"query": "cat", "mode": "magic"}, "mode"),
        ({"query": "cat", "user_id": 1}, "user_id"),
        ({"query": "cat", "callerId": "1"}, "callerId"),
    ],
)
def test_a_wrong_input_is_refused_naming_the_field(api, body, field):
    response = call(api, body)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem.keys() == {"type", "title", "status", "detail", "code", "retryable", "errors"}
    assert (problem["code"], problem["status"], problem["retryable"]) == ("validation_error", 400, False)
    assert list(problem["errors"]) == [field]


@pytest.mark.parametrize(
    "query", ["x" * 500, "100%", "a_b", "it's", "\\", "'; drop table users; --", "🐈", "猫", "a\x00b"]
)
def test_any_text_of_1_to_500_characters_is_searched(api, alice, query):
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    assert call(api, {"query": query}).status_code == 200


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'"cat"', b"[" * 20_000, b'{"query": NaN}', b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(api, body):
    response = call(api, body)
    assert (response.status_code, response.json()["code"]) == (400, "validation_error")


def test_without_credentials_it_is_refused():
    response = call(Client(), {"query": "cat"})
    assert response.status_code == 401
    assert response.headers["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == "authentication_required"


def test_a_session_with_csrf_is_enough_and_without_it_is_not(alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    assert call(client, {"query": "cat"}).status_code == 401
    client.get("/")
    headers = {"X-CSRFToken": client.cookies["csrftoken"].value}
    response = client.post(URL, data='{"query": "cat"}', content_type="application/json", headers=headers)
    assert response.status_code == 200


def test_an_embedding_model_that_is_away_is_503_and_worth_a_retry(api, monkeypatch):
    def away(_):
        raise EmbedderError("The endpoint answered 503.")

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    response = call(api, {"query": "cat"})
    assert (response.status_code, response.json()["code"], response.json()["retryable"]) == (503, "unavailable", True)
    assert response.headers["Retry-After"]


def test_a_database_that_is_away_is_503_and_worth_a_retry(api, monkeypatch):
    def away(*_, **__):
        raise OperationalError("connection refused at /secret/socket")

    monkeypatch.setattr("agent_tools.tools.chat_history.search", away)
    response = call(api, {"query": "cat"})
    assert (response.status_code, response.json()["retryable"]) == (503, True)
    assert "secret" not in response.content.decode()


def test_an_unknown_tool_is_not_found_and_without_credentials_looks_like_any_other(api):
    assert api.post("/api/v1/tools/drop_everything/", content_type="application/json").status_code == 404
    assert Client().post("/api/v1/tools/drop_everything/", content_type="application/json").status_code == 401


def test_another_method_is_refused_as_a_problem(api):
    response = api.get(URL)
    assert (response.status_code, response.headers["Content-Type"]) == (405, "application/problem+json")


def test_the_list_of_tools_publishes_the_schema_that_is_enforced(api):
    tools = {tool["name"]: tool for tool in api.get("/api/v1/tools/").json()["tools"]}
    tool = tools["search_chat_history"]
    assert tool["readOnly"] is True
    assert tool["inputSchema"]["properties"]["limit"]["maximum"] == 20
    assert set(tool["outputSchema"]["properties"]) == {
        "results",
        "totalFound",
        "query",
        "reranked",
        "nothingRelevant",
        "note",
        "pending",
        "interpreted",
    }


def test_the_openapi_document_has_the_tool_with_its_input_output_and_problems(api):
    document = api.get("/api/v1/schema/", headers={"accept": "application/vnd.oai.openapi+json"}).json()
    operation = document["paths"][URL]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"200", "400", "401", "503"} <= operation["responses"].keys()
    assert "application/problem+json" in operation["responses"]["400"]["content"]
    chat = document["paths"]["/api/v1/intake/chat"]["post"]
    assert chat["responses"]["200"]["content"].keys() == {"text/event-stream"}
    assert chat["security"][0].keys() <= document["components"]["securitySchemes"].keys()


def test_hybrid_finds_what_was_said_a_moment_ago_by_its_words(api, alice):
    turn = a_turn(alice, "I adopted a cat named Miso")
    answer = call(api, {"query": "Miso", "mode": "hybrid"}).json()
    assert 0 < answer["results"][0].pop("relevance") < 1
    assert answer == {
        "results": [
            {
                "conversationId": str(turn.conversation_id),
                "turnNumber": 1,
                "snippet": "I adopted a cat named Miso",
                "score": 1.0,
            }
        ],
        "totalFound": 1,
        "query": "Miso",
        "pending": 1,
    }


def test_hybrid_orders_by_relevance_and_still_gives_the_distance(api, alice):
    for message in ("I adopted a cat named Miso", "My sister has a cat", "The quarterly report is due"):
        a_turn(alice, message)
    index.embed_pending()
    semantic = call(api, {"query": "Miso the cat"}).json()["results"]
    hybrid = call(api, {"query": "Miso the cat", "mode": "hybrid"}).json()["results"]
    assert hybrid[0]["snippet"] == "I adopted a cat named Miso"
    distances = {result["snippet"]: result["score"] for result in semantic}
    assert {result["snippet"]: result["score"] for result in hybrid} == pytest.approx(distances)
    assert all(result["relevance"] > 0 for result in hybrid)
    assert not any("relevance" in result for result in semantic)


def test_the_order_is_by_meaning_unless_asked_otherwise():
    schema = search_chat_history.input_schema["properties"]["mode"]
    assert schema["enum"] == ["semantic", "hybrid"]
    assert schema["description"].endswith("Default: semantic.")


def test_the_lexical_leg_alone_is_offered_to_nobody(api):
    assert call(api, {"query": "cat", "mode": "lexical"}).status_code == 400


def test_while_turns_wait_for_their_vectors_the_note_says_so(api, alice):
    a_turn(alice, "I adopted a cat named Miso")
    answer = call(api, {"query": "cat"}).json()
    assert answer["results"] == []
    assert answer["note"] == "nothing found yet, and 1 turn still waiting to be indexed: try again shortly"


def test_the_summary_names_conversations_by_their_best_turn():
    alice = a_person("alice")
    first = a_turn(alice, "The cat").conversation
    second = a_turn(alice, "The dog").conversation
    places = [(first, 1), (second, 1), (first, 2)]
    results = [
        ChatHistoryResult(conversation_id=conversation.pk, turn_number=number, snippet="", score=0.1)
        for conversation, number in places
    ]
    said = summarise(SearchChatHistoryOutput(results=results, total_found=3, query="cat"), alice)
    assert said.index("The cat") < said.index("The dog")


def test_the_days_that_the_query_named_are_said(api, alice, monkeypatch):
    monkeypatch.setattr("agent_tools.tools.chat_history.timezone.now", lambda: NOW + timedelta(days=1))
    a_turn(alice, "I adopted a cat named Miso")
    index.embed_pending()
    assert "interpreted" not in call(api, {"query": "cat, yesterday"}).json()
    answer = call(api, {"query": "cat, yesterday", "mode": "hybrid"}).json()
    assert answer["interpreted"] == {"from": "2026-03-01", "to": "2026-03-01", "text": "yesterday"}
    assert answer["totalFound"] == 1
    assert "interpreted" not in call(api, {"query": "cat, three weeks ago", "mode": "hybrid"}).json()
