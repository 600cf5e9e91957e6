"""`search_history` over REST: the contract's text and data, its very words where the input is at fault, nobody else's."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import OperationalError, connection
from django.test import Client

from agent_tools.tests import callers
from agent_tools.tools import registry
from agent_tools.tools.history import history_text
from intake.chats import services
from intake.models import Conversation
from intake.tests.factories import a_person, a_turn
from memory import documents, index, records
from memory.backends.embedders import EmbedderError, get_embedder
from memory.search.sources import MESSAGES

pytestmark = pytest.mark.django_db

THEN = datetime(2026, 2, 25, 12, tzinfo=UTC)
NOTHING = "No matching results found. Try broader keywords or a different scope."


@pytest.fixture(autouse=True)
def fixed_now(monkeypatch):
    monkeypatch.setattr("agent_tools.tools.history.timezone.now", lambda: datetime(2026, 2, 25, 13, tzinfo=UTC))


def call(client, body):
    return callers.call(client, "search_history", body)


def dinner(user):
    """A log, a conversation with a message about it, and one that has it in its title."""
    documents.append(user=user, day=date(2026, 2, 25), text='Wants to try the restaurant "Sakura Sushi".', now=THEN)
    planning = Conversation.objects.create(user=user, title="Dinner Planning", started_at=THEN, last_active_at=THEN)
    services.save_exchange(
        conversation=planning,
        user_message="Can you help me find a good sushi restaurant near Shibuya station?",
        assistant_message="Of course.",
        said_at=THEN,
    )
    titled = Conversation.objects.create(
        user=user, title="Restaurant Recommendations", started_at=THEN, last_active_at=THEN
    )
    services.save_exchange(
        conversation=titled, user_message="Hello", assistant_message="Looking for pasta in Roppongi...", said_at=THEN
    )
    index.embed_pending()
    return planning, titled


def test_an_earlier_value_says_where_the_person_says_otherwise(api, alice):
    old = a_turn(alice, "My day rate is 240 with the van", said_at=THEN - timedelta(days=9))
    new = a_turn(alice, "My day rate is 265 with the van now", said_at=THEN)
    index.embed_pending()

    answer = call(api, {"query": "day rate with the van", "scope": "sessions"}).json()

    later = {each["conversationId"]: each.get("saidOtherwise") for each in answer["results"] if "turnNumber" in each}
    named = {"id": f"{new.conversation_id}/1", "date": "2026-02-25"}
    assert {key: value for key, value in later.items() if value} == {str(old.conversation_id): named}
    header = next(line for line in answer["text"].splitlines() if "says otherwise" in line)
    assert header.endswith(f", the person says otherwise on 2026-02-25 in {named['id']}) ---")


def test_the_output_is_structured_text_with_source_attribution_as_the_specification_has_it(api, alice):
    dinner(alice)
    text = call(api, {"query": "restaurant"}).json()["text"]
    assert re.sub(r"score: [01]\.\d\d,", "score: 0.87,", text) == (
        """[Search Results for "restaurant" (scope: all, 3 results)]

--- Result 1 (score: 0.87, source: daily_log, date: 2026-02-25) ---
Wants to try the restaurant "Sakura Sushi".

--- Result 2 (score: 0.87, source: message, date: 2026-02-25, session: "Dinner Planning") ---
User: Can you help me find a good sushi restaurant near Shibuya station?

--- Result 3 (score: 0.87, source: session, date: 2026-02-25) ---
Session: "Restaurant Recommendations" (2 messages, last active: 2026-02-25)
Preview: Looking for pasta in Roppongi..."""
    )


def test_the_same_results_are_given_as_data(api, alice):
    planning, titled = dinner(alice)
    answer = call(api, {"query": "restaurant"}).json()
    log, message, session = answer["results"]
    assert log.keys() == {"source", "date", "score", "excerpt", "highlights", "documentId", "relevance"}
    assert (message["source"], message["conversationId"], message["turnNumber"], message["session"]) == (
        "message",
        str(planning.pk),
        1,
        "Dinner Planning",
    )
    assert (session["source"], session["conversationId"]) == ("session", str(titled.pk))
    for result in answer["results"]:
        assert [result["excerpt"][start:end].lower() for start, end in result["highlights"]] == ["restaurant"]
        assert f"score: {result['score']:.2f}, source: {result['source']}, date: {result['date']}" in answer["text"]
    assert answer["byDate"] == [{"date": "2026-02-25", "results": [0, 1, 2]}]
    assert (answer["query"], answer["scope"]) == ("restaurant", "all")
    assert answer.keys() == {"text", "results", "byDate", "query", "scope"}


def test_whether_the_second_look_happened_is_said_if_it_was_asked_for(api, alice):
    dinner(alice)
    assert call(api, {"query": "restaurant", "rerank": True}).json()["reranked"] is False
    answer = call(api, {"query": "restaurant", "rerank": "perhaps"})
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["rerank"])


def test_where_nothing_is_about_the_query_the_answer_says_so(api, alice, monkeypatch):
    # With this limit no text is relevant by its terms, and only its distance counts.
    monkeypatch.setattr("memory.search.history.RELATED", 1.0)
    monkeypatch.setattr("memory.search.hybrid.RELATED", 1.0)
    a_turn(alice, "The lamp in the hall flickers")
    index.embed_pending()
    answer = call(api, {"query": "Which scholarship paid for my years in Kyoto, lamp or no lamp?"}).json()
    assert answer["results"]
    assert answer["nothingRelevant"] is True
    assert answer["text"].endswith(
        "Note: No text has: scholarship, paid, years, Kyoto; Nothing was found about this, and these results are only "
        "the nearest."
    )
    assert "nothingRelevant" not in call(api, {"query": "the lamp in the hall"}).json()


def test_words_that_no_text_has_are_named(api, alice):
    a_turn(alice, "Two restaurants near the old bridge")
    a_turn(a_person("bob@example.com"), "My pangolin eats ants")
    records.create(user=alice, content="The otter is called Wilma", now=THEN)
    # In another form, in a note, or as a word without meaning, each is there.
    assert call(api, {"query": "What is the restaurant of the otters?"}).json().get("note") is None
    answer = call(api, {"query": "Does my pangolin like that restaurant?"}).json()
    assert answer["note"] == "No text has: pangolin, like"
    assert "\nNote: No text has: pangolin, like" in answer["text"]
    # A long message is no question.
    assert call(api, {"query": f"{WORDS} restaurant pangolin"}).json().get("note") is None


WORDS = (
    "apple pear plum peach melon cherry lemon orange grape fig olive date mango guava lime kiwi papaya quince mint sage"
)


def test_a_record_counts_as_memory(api, alice):
    record = records.create(user=alice, content="No restaurants on Mondays", now=THEN)
    answer = call(api, {"query": "restaurants", "scope": "memory"}).json()
    assert [(each["source"], each["recordId"]) for each in answer["results"]] == [("memory", str(record.id))]
    assert answer["pending"] == 1


def test_no_results_returns_a_helpful_message(api):
    answer = call(api, {"query": "quantum physics"})
    assert answer.status_code == 200
    assert answer.json() == {
        "text": f'[Search Results for "quantum physics" (scope: all, 0 results)]\n\n{NOTHING}',
        "results": [],
        "byDate": [],
        "query": "quantum physics",
        "scope": "all",
    }


def test_a_query_of_several_lines_is_one_line_of_the_header():
    assert history_text("a\n b", "all", []).startswith('[Search Results for "a b" (scope: all, 0 results)]\n')


def test_one_result_is_told_in_the_same_words(api, alice):
    a_turn(alice, "I adopted a cat", conversation=Conversation.objects.create(user=alice, title="Pets"))
    assert "(scope: sessions, 1 results)]" in call(api, {"query": "cat", "scope": "sessions"}).json()["text"]


QUERY_IS_EMPTY = "Parameter 'query' is required and cannot be empty"
SCOPE_IS_INVALID = "Invalid scope '{}'. Must be one of: all, memory, daily_log, sessions"
NO_DATE = "Date must be in YYYY-MM-DD format: {}"


def refused(api, body):
    response = call(api, body)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert (problem["code"], problem["retryable"]) == ("validation_error", False)
    return problem


def test_an_empty_query_returns_a_validation_error(api):
    for body in ({}, *({"query": value} for value in ("", "   ", "\n\t", "\0", None))):
        problem = refused(api, body)
        assert problem["detail"] == QUERY_IS_EMPTY, body
        assert problem["errors"] == {"query": [QUERY_IS_EMPTY]}, body


NO_DATES = [
    "2026-02-30",
    "2026/02/03",
    "20260203",
    "2026-02-03 or so",
    "26-02-03",
    "0000-01-01",
    "2026-W06-2",
    "yesterday",
    "٢٠٢٦-٠٢-٠٣",
    "２０２６-02-03",  # noqa: RUF001 (digits, though not ASCII's)
]


@pytest.mark.parametrize("field", ["date_from", "date_to"])
def test_an_invalid_date_format_returns_a_validation_error(api, field):
    for value in NO_DATES:
        problem = refused(api, {"query": "cat", field: value})
        assert problem["detail"] == NO_DATE.format(value)
        assert problem["errors"] == {field: [NO_DATE.format(value)]}


@pytest.mark.parametrize("value", [True, ["cat"], {"a": 1}])
def test_a_query_that_is_no_text_is_called_that(api, value):
    assert refused(api, {"query": value})["errors"] == {"query": ["Parameter 'query' must be a text"]}


def test_a_date_that_is_no_string_is_told_like_any_other_that_is_no_date(api):
    for value, quoted in ((20260203, "20260203"), (True, "true"), (["2026-02-03"], '["2026-02-03"]')):
        assert refused(api, {"query": "cat", "date_to": value})["detail"] == NO_DATE.format(quoted)


def test_an_invalid_scope_returns_a_validation_error(api):
    for value, quoted in (
        ("everything", "everything"),
        ("ALL OF IT", "ALL OF IT"),
        (5, "5"),
        (["all"], '["all"]'),
        ({}, "{}"),
    ):
        problem = refused(api, {"query": "cat", "scope": value})
        assert problem["detail"] == SCOPE_IS_INVALID.format(quoted)
        assert problem["errors"] == {"scope": [SCOPE_IS_INVALID.format(quoted)]}


def test_date_from_after_date_to_returns_a_validation_error(api):
    problem = refused(api, {"query": "cat", "date_from": "2026-02-26", "date_to": "2026-02-25"})
    assert problem["detail"] == "date_from must not be after date_to"
    assert call(api, {"query": "cat", "date_from": "2026-02-25", "date_to": "2026-02-25"}).status_code == 200


def test_a_value_of_any_length_is_quoted_in_part(api):
    assert len(refused(api, {"query": "cat", "scope": "x" * 100_000})["detail"]) < 300


def test_what_a_value_holds_is_not_read_as_a_template(api):
    assert refused(api, {"query": "cat", "scope": "{sentence}"})["detail"] == SCOPE_IS_INVALID.format("{sentence}")


def test_of_several_mistakes_the_first_is_the_detail_and_all_are_named(api):
    problem = refused(api, {"query": " ", "scope": "x", "date_from": "y", "max_results": "many", "user_id": 1})
    assert problem["detail"] == QUERY_IS_EMPTY
    assert problem["errors"].keys() == {"query", "scope", "date_from", "max_results", "user_id"}


@pytest.mark.parametrize("value", ["five", 5.5, True, [5]])
def test_max_results_that_is_no_integer_is_refused(api, value):
    assert list(refused(api, {"query": "cat", "max_results": value})["errors"]) == ["max_results"]


@pytest.fixture
def galleries(alice):
    conversation = Conversation.objects.create(user=alice, title="Trip")
    for number in range(60):
        a_turn(alice, f"Gallery {number}", conversation=conversation)
    index.embed_pending()


def test_max_results_of_0_or_less_or_none_means_10_and_above_50_means_50(api, galleries):
    expected = {0: 10, -1: 10, -(10**30): 10, 1: 1, 10: 10, 50: 50, 51: 50, 1000: 50, 10**30: 50}
    for value, count in expected.items():
        assert len(call(api, {"query": "gallery", "max_results": value}).json()["results"]) == count, value
    assert len(call(api, {"query": "gallery"}).json()["results"]) == 10


def test_only_date_from_searches_from_that_date_and_only_date_to_up_to_it(api, alice):
    dinner(alice)
    assert len(call(api, {"query": "restaurant", "date_from": "2026-02-25"}).json()["results"]) == 3
    assert call(api, {"query": "restaurant", "date_from": "2026-02-26"}).json()["results"] == []
    assert len(call(api, {"query": "restaurant", "date_to": "2026-02-25"}).json()["results"]) == 3
    assert call(api, {"query": "restaurant", "date_to": "2026-02-24"}).json()["results"] == []
    assert call(api, {"query": "restaurant", "date_from": "2027-01-01"}).json()["results"] == []


def test_any_text_is_searched(api, alice):
    a_turn(alice, "I adopted a cat")
    index.embed_pending()
    odd = ["100%", "a_b", "it's", '"quoted"', "\\", "'; drop table users; --", "🐈", "寿司", "a\0b", "a\ud800b"]
    for query in (*odd, "x" * 10_000, "word " * 2_000):
        assert call(api, {"query": query}).status_code == 200, query


@pytest.mark.parametrize("body", [b"", b"[]", b'{"query": NaN}', b"\xff"])
def test_a_body_that_is_no_text_in_json_is_refused(api, body):
    assert refused(api, body)


def test_nobody_elses_rows_are_found(api):
    bob = a_person("bob@example.com")
    dinner(bob)
    records.create(user=bob, content="No restaurants on Mondays", now=THEN)
    index.embed_pending()
    answer = call(api, {"query": "restaurant", "max_results": 50}).json()
    assert answer["results"] == []
    assert "pending" not in answer


def test_without_credentials_it_is_refused():
    response = call(Client(), {"query": "cat"})
    assert (response.status_code, response.json()["code"]) == (401, "authentication_required")


def test_past_the_timeout_the_note_says_which_source_did_not_finish(api, alice, settings, monkeypatch):
    def slowly(asked):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    dinner(alice)
    settings.HISTORY_TIMEOUT_SECONDS = 1
    monkeypatch.setattr(MESSAGES, "find", slowly)
    answer = call(api, {"query": "restaurant"}).json()
    assert answer["note"] == "The search took longer than 1 seconds: not searched to the end: messages"
    assert answer["text"].endswith(f"\n\nNote: {answer['note']}.")
    assert [result["source"] for result in answer["results"]] == ["daily_log", "session"]


def test_a_database_error_is_search_error(api, monkeypatch):
    def fail(asked):
        with connection.cursor() as cursor:
            cursor.execute("SELECT secret FROM no_such_table")

    monkeypatch.setattr(MESSAGES, "find", fail)
    response = call(api, {"query": "cat"})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (500, "search_error")
    assert problem["detail"] == "Search failed: messages could not be searched."
    assert "secret" not in response.content.decode()


def test_a_database_that_is_away_is_503_and_worth_a_retry(api, monkeypatch):
    def away(asked):
        raise OperationalError("connection refused at /secret/socket")

    monkeypatch.setattr(MESSAGES, "find", away)
    response = call(api, {"query": "cat"})
    assert (response.status_code, response.json()["code"], response.json()["retryable"]) == (503, "unavailable", True)
    assert "secret" not in response.content.decode()


def test_an_embedding_model_that_is_away_is_503_and_worth_a_retry(api, monkeypatch):
    def away(_):
        raise EmbedderError("The endpoint answered 503.")

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    response = call(api, {"query": "cat"})
    assert (response.status_code, response.json()["code"], response.json()["retryable"]) == (503, "unavailable", True)


# -- As a tool --------------------------------------------------------------------------------------------------------


def test_it_is_registered_and_publishes_the_schema_that_is_enforced(api):
    tool = next(tool for tool in api.get("/api/v1/tools/").json()["tools"] if tool["name"] == "search_history")
    schema = tool["inputSchema"]
    assert tool["readOnly"] is True
    assert schema["required"] == ["query"]
    assert "Default" not in schema["properties"]["query"]["description"]
    assert schema["properties"]["scope"]["enum"] == ["all", "memory", "daily_log", "sessions"]
    assert schema["properties"]["scope"]["description"].endswith("Default: all.")
    assert {"text", "results", "byDate", "note", "pending"} <= tool["outputSchema"]["properties"].keys()


def test_a_visitor_is_told_that_an_identity_is_required():
    output = registry.get("search_history").call({"query": "cat"}, user=None)
    assert (output.results, output.note) == ([], "user identity required")
    assert "Note: user identity required." in output.text
    assert "register or log in" in registry.get("search_history").summarise(output, None)


def summary_of(user, **data):
    tool = registry.get("search_history")
    return tool.summarise(tool.call(data, user=user), user)


def test_the_summary_counts_results_and_links_to_the_first_places(alice):
    planning, titled = dinner(alice)
    assert summary_of(alice, query="restaurant") == (
        f"Found 3 results: the log of 2026-02-25, [Dinner Planning](/c/{planning.pk}/?turn=1#turn-1), "
        f"[Restaurant Recommendations](/c/{titled.pk}/)"
    )


def test_the_summary_names_a_conversation_once_and_no_more_than_three_places(alice, galleries):
    for title in "ABCD":
        a_turn(alice, f"Gallery {title}", conversation=Conversation.objects.create(user=alice, title=title))
    summary = summary_of(alice, query="gallery", max_results=50, scope="sessions")
    assert summary.count("](/c/") == 3
    assert summary.endswith(" and 2 more")


def test_a_title_cannot_break_out_of_its_link_in_the_summary(alice):
    a_turn(alice, "cat](https://evil.example) [x\\")
    assert "](https://" not in summary_of(alice, query="cat")


def test_nothing_found_is_said_in_the_summary(alice):
    assert summary_of(alice, query="cat") == "Nothing found"


def test_the_days_that_the_query_named_are_said(api, alice):
    dinner(alice)
    answer = call(api, {"query": "the restaurant, what did I say today?"}).json()
    assert answer["interpreted"] == {"from": "2026-02-25", "to": "2026-02-25", "text": "today"}
    assert len(answer["results"]) == 3


@pytest.mark.parametrize("length", [10_001, 1_000_000])
def test_a_query_longer_than_ten_thousand_characters_is_refused(api, length):
    answer = call(api, {"query": "x" * length})
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert answer.json()["errors"] == {"query": ["Parameter 'query' must be at most 10,000 characters long"]}
