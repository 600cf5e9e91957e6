"""The three specifications as one table: what is asked of each tool and what it gives, at every place where it is called.

A row's first words are the requirement, its example or its error. Each is called over REST, over MCP and by the model
of a chat. Of an answer the text is read: over REST the field `text`, or else the JSON.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import connection

from agent_tools.authentication import create_token
from agent_tools.tests import mcp_messages
from agent_tools.tests.callers import call, client_of
from agent_tools.tools import registry
from core.isolation.acting import acting_as
from intake.models import Conversation
from intake.tests.factories import a_person, a_turn
from memory import documents, index, records
from memory.models import Embedding
from testing.model_server import CallTool, CallTools, Say

TODAY = datetime.now(UTC)
LOGGED, TOLD = datetime(2025, 3, 14, 12, tzinfo=UTC), datetime(2025, 3, 15, 12, tzinfo=UTC)
NEXT_YEAR = (TODAY + timedelta(days=365)).date()
WEIGHTS = {"memory": 1.0, "daily_log": 1.0, "message": 0.6, "session": 0.5, "attachment": 0.6}
NOTHING = "No matching results found. Try broader keywords or a different scope."
NO_QUERY = "Parameter 'query' is required and cannot be empty"
NO_DATE = "Date must be in YYYY-MM-DD format: "
NO_SCOPE = "Invalid scope '{}'. Must be one of: all, memory, daily_log, sessions"


@dataclass(frozen=True)
class Gives:
    """What the text has and lacks. `error`: the message of a `validation_error`, or its field. `ids`: how many results."""

    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    error: str | None = None
    results: int | None = None
    matches: str = ""


def gives(*has: str, **rest) -> Gives:
    return Gives(has, **rest)


def refuses(error: str) -> Gives:
    return Gives(error=error)


CHATS, HISTORY, MEMORY = "search_chat_history", "search_history", "search_memory"
ROWS: list[tuple[str, str, dict, Gives]] = [
    # vec02-spec.md and vec02-tool-spec.md
    ("V2-01 own history: the relevant turn", CHATS, {"query": "which aquarium"}, gives("aquarium")),
    ("V2-02 nobody else's", CHATS, {"query": "zeppelin", "limit": 20}, gives(lacks=("is mine",))),
    ("query: at least one character", CHATS, {"query": ""}, refuses("query")),
    ("query: not blank", CHATS, {"query": "  "}, refuses("query")),
    ("query: is required", CHATS, {}, refuses("query")),
    ("query: 500 characters", CHATS, {"query": "x" * 500}, gives()),
    ("query: at most 500 characters", CHATS, {"query": "x" * 501}, refuses("query")),
    ("limit: default 5", CHATS, {"query": "gallery"}, gives(results=5)),
    ("limit: 1", CHATS, {"query": "gallery", "limit": 1}, gives(results=1)),
    ("limit: 20", CHATS, {"query": "gallery", "limit": 20}, gives(results=20)),
    ("limit: at least 1", CHATS, {"query": "cat", "limit": 0}, refuses("limit")),
    ("limit: at most 20", CHATS, {"query": "cat", "limit": 21}, refuses("limit")),
    ("limit: an integer", CHATS, {"query": "cat", "limit": 1.5}, refuses("limit")),
    ("the user comes from the route, never from the input", CHATS, {"query": "cat", "userId": 1}, refuses("userId")),
    ("snippet: 200 characters of the person's", CHATS, {"query": "lighthouse", "limit": 1},
     gives("w" * 100, lacks=("w" * 201, "wharf"))),
    ("semantic: corpus, user and distance alone, no operator", CHATS, {"query": "aquarium -plan"},
     gives("The plan for 14 March 2025 is the aquarium", lacks=("read as",))),
    ("semantic: no day is read", CHATS, {"query": "what is the plan for 14 March 2025"},
     gives("The plan for 14 March 2025 is the aquarium", lacks=("interpreted",))),
    ("semantic: no exact piece is read", CHATS, {"query": '"the aquarium, the plan"'},
     gives("aquarium", lacks=("word for word",))),
    ("hybrid: days are preferred", CHATS, {"query": "the plan for 14 March 2025", "mode": "hybrid"},
     gives("The plan for 14 March 2025 is the aquarium")),
    ("hybrid: what stands word for word is found", CHATS, {"query": "rm -rf", "mode": "hybrid", "limit": 1},
     gives("rm -rf build", 'read as: without "rf"; in quotation marks it is searched as written')),
    ("hybrid: an option is no exclusion", CHATS, {"query": "-xzf", "mode": "hybrid", "limit": 1}, gives("tar -xzf")),
    ("hybrid: an exclusion excludes", CHATS, {"query": "gallery -seven", "mode": "hybrid", "limit": 20},
     gives("Gallery eight", 'read as: without "seven"', lacks=("Gallery seven",))),
    ("hybrid: and what stands so is found though", CHATS, {"query": "before:2020-01-01", "mode": "hybrid"},
     gives("I type before:2020-01-01")),
    # feat032-search-history.md
    ("accepts a query and returns what matches", HISTORY, {"query": "restaurant"}, gives("Sakura Sushi")),
    ("output: the header", HISTORY, {"query": "restaurant"}, gives('[Search Results for "restaurant" (scope: all, ')),
    ("output: a log", HISTORY, {"query": "restaurant"},
     gives(matches=r"--- Result \d+ \(score: [01]\.\d\d, source: daily_log, date: \d{4}-\d\d-\d\d\) ---\n.*Sakura Sushi")),
    ("output: a message with its session", HISTORY, {"query": "restaurant"},
     gives(matches=r"source: message, date: \d{4}-\d\d-\d\d, session: \"Dinner Planning\"\) ---\nUser: Can you help")),
    ("output: a session", HISTORY, {"query": "restaurant"},
     gives(matches=r"source: session, date: \d{4}-\d\d-\d\d\) ---\n"
           r"Session: \"Restaurant Recommendations\" \(2 messages, last active: \d{4}-\d\d-\d\d\)\nPreview: Looking for")),
    ("output: no results", HISTORY, {"query": "quetzal xylophone"},
     gives('[Search Results for "quetzal xylophone" (scope: all, 0 results)]', NOTHING)),
    ("scope memory", HISTORY, {"query": "restaurant", "scope": "memory"},
     gives("source: daily_log", lacks=("source: message", "source: session"))),
    ("scope memory: MEMORY.md", HISTORY, {"query": "API keys", "scope": "memory"}, gives("The API keys", "source: memory")),
    ("scope daily_log", HISTORY, {"query": "API keys restaurant", "scope": "daily_log"},
     gives("source: daily_log", lacks=("source: memory", "source: message"))),
    ("scope sessions", HISTORY, {"query": "restaurant", "scope": "sessions"},
     gives("source: message", "source: session", lacks=("source: daily_log",))),
    ("scope all", HISTORY, {"query": "restaurant"}, gives("source: daily_log", "source: message", "source: session")),
    ("date_from", HISTORY, {"query": "aquarium", "date_from": "2025-03-15"}, gives("The plan for 14 March")),
    ("date_from filters", HISTORY, {"query": "aquarium", "date_from": "2025-03-16"}, gives(lacks=("The plan for",))),
    ("date_to", HISTORY, {"query": "aquarium", "date_to": "2025-03-15"}, gives("The plan for 14 March")),
    ("date_to filters", HISTORY, {"query": "aquarium", "date_to": "2025-03-14"}, gives(lacks=("The plan for",))),
    ("both dates", HISTORY, {"query": "aquarium", "date_from": "2025-03-15", "date_to": "2025-03-15"},
     gives("The plan for 14 March")),
    ("date_from alone: from that date to now", HISTORY, {"query": "restaurant", "date_from": "2025-01-01"},
     gives("Sakura Sushi", lacks=("Book the restaurant",))),
    ("without dates the future is found", HISTORY, {"query": "book restaurant"}, gives("Book the restaurant")),
    ("a range in the future", HISTORY, {"query": "restaurant", "date_from": str(NEXT_YEAR + timedelta(days=9))},
     gives(NOTHING)),
    ("date_from after date_to", HISTORY, {"query": "cat", "date_from": "2025-03-15", "date_to": "2025-03-14"},
     refuses("date_from must not be after date_to")),
    *[(f"error: {field} {value!r}", HISTORY, {"query": "cat", field: value}, refuses(f"{NO_DATE}{value}"))
      for field in ("date_from", "date_to")
      for value in ("2026-3-1", "2026-03-01T12:30:00", "2026-02-30", "yesterday", "")],
    *[(f"error: scope {value!r}", HISTORY, {"query": "cat", "scope": value}, refuses(NO_SCOPE.format(value)))
      for value in ("session", "MEMORY", "everything", "")],
    ("error: an empty query", HISTORY, {"query": ""}, refuses(NO_QUERY)),
    ("error: a blank query", HISTORY, {"query": " \n"}, refuses(NO_QUERY)),
    ("error: no query", HISTORY, {}, refuses(NO_QUERY)),
    ("max_results: default 10", HISTORY, {"query": "gallery", "scope": "sessions"}, gives("scope: sessions, 10 results")),
    ("max_results: 3", HISTORY, {"query": "gallery", "max_results": 3}, gives("3 results", "Result 3", lacks=("Result 4",))),
    ("max_results: 0 means 10", HISTORY, {"query": "gallery", "max_results": 0}, gives(", 10 results")),
    ("max_results: negative means 10", HISTORY, {"query": "gallery", "max_results": -3}, gives(", 10 results")),
    ("max_results: above 50 means 50", HISTORY, {"query": "gallery", "max_results": 999}, gives(", 50 results")),
    ("LIKE: case does not matter", HISTORY, {"query": "SHIBUYA STATION"}, gives("near Shibuya station")),
    ("LIKE: half a word", HISTORY, {"query": "hibuya"}, gives("near Shibuya station")),
    ("LIKE: in the middle of code", HISTORY, {"query": "ads(payl"}, gives("json.loads(payload)")),
    ("LIKE: a percent sign is one", HISTORY, {"query": "100%"}, gives("100% wool", lacks=("1000 wool",))),
    ("LIKE: an underscore is one", HISTORY, {"query": "a_b"}, gives("a_b", lacks=("axb",))),
    ("special characters", HISTORY, {"query": "'; drop table users; --"}, gives()),
    ("special characters: backslashes", HISTORY, {"query": r"C:\x -r"}, gives(r"C:\x -r")),
    ("a dash is one: rm -rf", HISTORY, {"query": "rm -rf", "max_results": 1},
     gives("rm -rf build", 'read as: without "rf"; in quotation marks it is searched as written')),
    ("a dash is one: an option alone", HISTORY, {"query": "-xzf"}, gives("tar -xzf")),
    ("a dash is one: after another option", HISTORY, {"query": "git log --oneline -graph"},
     gives("git log --oneline -graph", lacks=("read as: ",))),
    ("what is written as a day", HISTORY, {"query": "before:2020-01-01"}, gives("I type before:2020-01-01", "read as: ")),
    ("a long query works", HISTORY, {"query": "gallery " * 200}, gives("Gallery")),
    ("a longer one says what was not searched", HISTORY, {"query": "gallery " * 300},
     gives("Gallery", "only the first 2,000 characters of the query were searched")),
    ("a query above 10,000 characters", HISTORY, {"query": "x" * 10_001}, refuses("query")),
    ("excerpts: at most 500 characters", HISTORY, {"query": "lighthouse", "max_results": 1}, gives(lacks=("w" * 501,))),
    ("tool call JSON is searched", HISTORY, {"query": '{"tool": "hammer"}'}, gives('{"tool": "hammer"}')),
    ("duplicates: the best is kept", HISTORY, {"query": "stand green hall door"},
     gives(matches=r"(?s)^(?!.*umbrella.*umbrella)")),
    ("an excluded word is named", HISTORY, {"query": "gallery -seven"},
     gives("Gallery", 'read as: without "seven"', lacks=("Gallery seven",))),
    # search-memory-task.md
    ("output: a Markdown list with similarities", MEMORY, {"query": "database"},
     gives(matches=r"(?m)^1\. \*\*ARCHITECTURAL_DECISION\*\* \(similarity 0\.\d\d; .*\): We keep the database in PostgreSQL")),
    ("no results: an empty list", MEMORY, {"query": "database", "types": ["?"]}, gives("No matching memories found.")),
    ("topK: default 10", MEMORY, {"query": "gallery"}, gives(matches=r"(?ms)^10\. (?!.*^11\. )")),
    ("topK: 2", MEMORY, {"query": "gallery", "topK": 2}, gives(matches=r"(?ms)^2\. (?!.*^3\. )")),
    ("topK: above 50 means 50", MEMORY, {"query": "gallery", "topK": 99}, gives(matches=r"(?ms)^50\. (?!.*^51\. )")),
    ("topK: at least 1", MEMORY, {"query": "cat", "topK": 0}, refuses("topK")),
    ("topK: an integer", MEMORY, {"query": "cat", "topK": "five"}, refuses("topK")),
    ("minSimilarity", MEMORY, {"query": "We keep the database in PostgreSQL", "minSimilarity": 0.99},
     gives("PostgreSQL", lacks=("\n2. ",))),
    ("minSimilarity: a number", MEMORY, {"query": "cat", "minSimilarity": "half"}, refuses("minSimilarity")),
    ("minSimilarity: at most 1", MEMORY, {"query": "cat", "minSimilarity": 1.1}, refuses("minSimilarity")),
    ("types", MEMORY, {"query": "gallery", "types": ["ARCHITECTURAL_DECISION"]}, gives("PostgreSQL", lacks=("\n2. ",))),
    ("types: any of them", MEMORY, {"query": "we keep the root cause", "types": ["ARCHITECTURAL_DECISION", "RCA"]},
     gives("PostgreSQL", "root cause", lacks=("Gallery",))),
    ("types: one text", MEMORY, {"query": "root", "types": "RCA"}, gives("root cause", lacks=("PostgreSQL",))),
    ("tags: any of them", MEMORY, {"query": "root", "tags": ["rca", "?"]}, gives("root cause", lacks=("PostgreSQL",))),
    ("project_id", MEMORY, {"query": "root", "project_id": "harbour"}, gives("root cause", lacks=("PostgreSQL",))),
    ("filters combine with AND", MEMORY, {"query": "x", "types": ["RCA"], "project_id": "other"},
     gives("No matching memories found.")),
    ("query: is required", MEMORY, {}, refuses("query")),
    ("query: a text", MEMORY, {"query": 5}, refuses("query")),
    ("types: a list", MEMORY, {"query": "cat", "types": 5}, refuses("types")),
    ("types: of texts", MEMORY, {"query": "cat", "types": [1]}, refuses("types.0")),
    ("tags: a list", MEMORY, {"query": "cat", "tags": 5}, refuses("tags")),
    ("tags: of texts", MEMORY, {"query": "cat", "tags": ["rca", 2]}, refuses("tags.1")),
    ("project_id: a text", MEMORY, {"query": "cat", "project_id": 7}, refuses("project_id")),
    ("nobody else's records", MEMORY, {"query": "zeppelin"}, gives(lacks=("is mine",))),
]  # fmt: skip


def history_of(user) -> None:
    def chat(title, said, answered="Noted.", at=TODAY):
        conversation = Conversation.objects.create(user=user, title=title, started_at=at, last_active_at=at)
        return a_turn(user, said, answered, conversation=conversation, said_at=at)

    today = user.local_time(TODAY).date()
    documents.append(user=user, day=today, text='Wants to try the restaurant "Sakura Sushi".', now=TODAY)
    documents.append(user=user, day=NEXT_YEAR, text="Book the restaurant again", now=TODAY)
    documents.create(user=user, day=None, content="The API keys are in the blue folder", now=TODAY)
    chat("Dinner Planning", "Can you help me find a good sushi restaurant near Shibuya station?")
    chat("Restaurant Recommendations", "Hello", "Looking for pasta in Roppongi")
    chat("Weather", "It rained all day", at=LOGGED)
    chat("Plans", "The plan for 14 March 2025 is the aquarium", at=TOLD)
    chat("Shell", "I clean up with rm -rf build && make all")
    chat("Archives", "I unpack with tar -xzf backup.tar")
    chat("Graphs", "I look with git log --oneline -graph")
    chat("Paths", r"I call it as C:\x -r every day")
    chat("Operators", "I type before:2020-01-01 into the search")
    chat("Code", "Parse it with json.loads(payload)")
    chat("Wool", "It is 100% wool")
    chat("Cheap wool", "It is 1000 wool")
    chat("Names", "The variable is a_b")
    chat("Other names", "The variable is axb")
    chat("Tools", 'You called {"tool": "hammer"} first')
    chat("Hall", "The umbrella stand is green and stands in the hall by the door")
    documents.append(
        user=user,
        day=today - timedelta(days=1),
        text="The umbrella stand is green and stands in the hall by the door",
        now=TODAY,
    )
    chat("Lighthouse", f"The lighthouse {'w' * 800}", "It has a wharf")
    trip = Conversation.objects.create(user=user, title="Trip", last_active_at=TODAY)
    for number in range(51):
        word = {7: "seven", 8: "eight"}.get(number, number)
        records.create(user=user, content=f"Gallery {word}", now=TODAY)
        if number < 21:
            a_turn(user, f"Gallery {word}", conversation=trip, said_at=TODAY)
    records.create(
        user=user, content="We keep the database in PostgreSQL", type="ARCHITECTURAL_DECISION", now=TODAY, tags=["db"]
    )
    records.create(user=user, content="The root cause", type="RCA", project_id="harbour", tags=["rca"], now=TODAY)


@pytest.fixture
def people(server):
    alice, bob = a_person(), a_person("bob@example.com")
    with acting_as(alice):
        history_of(alice)
    with acting_as(bob):
        a_turn(bob, "The zeppelin is mine")
        records.create(user=bob, content="The zeppelin is mine", now=TODAY)
    index.embed_pending()
    return alice


@dataclass(frozen=True)
class Told:
    text: str
    is_error: bool


Asks = Callable[[list[tuple[str, dict]]], list[Told]]


def over_rest(request, alice) -> Asks:
    client = client_of(alice)

    def ask(tool, sent):
        answer = call(client, tool, sent)
        body = answer.json()
        return Told(body.get("text") or json.dumps(body, ensure_ascii=False), answer.status_code == 400)

    return lambda calls: [ask(*each) for each in calls]


def over_mcp(request, alice) -> Asks:
    address, secret = request.getfixturevalue("server"), create_token(user=alice).secret

    def ask(tool, sent):
        result = mcp_messages.call(address, secret, tool, sent).json()["result"]
        return Told(result["content"][0]["text"], bool(result.get("isError")))

    return lambda calls: [ask(*each) for each in calls]


def in_the_chat(request, alice) -> Asks:
    language_model = request.getfixturevalue("language_model")
    client = request.getfixturevalue("log_in")(alice)
    request.getfixturevalue("settings").LLM_CONTEXT_TOKENS = 1_000_000

    def ask(calls):
        """A message for ten calls: one for each would take a second."""
        told = []
        for some in batched(calls, 10):
            model = language_model(CallTools(tuple(CallTool(*each) for each in some)), Say(("So it is.",)))
            results = [event.data for event in client.events("Look it up") if event.name == "tool_result"]
            read = [each["content"] for each in model.requests[1]["messages"] if each["role"] == "tool"]
            told += [Told(text, "validation_error" in text) for text in read]
            assert len(read) == len(some) == len(results)
        return told

    return ask


def batched(values, count):
    return [values[start : start + count] for start in range(0, len(values), count)]


def shortcoming(tool: str, told: Told, expected: Gives) -> str | None:
    if expected.error is not None:
        is_refused = told.is_error and "validation_error" in told.text and expected.error in told.text
        return None if is_refused else f"not refused with {expected.error!r}"
    plain = told.text.replace('\\"', '"').replace("\\\\", "\\")
    counted = max(told.text.count('"turnNumber"'), len(re.findall(r"(?m)^id: ", told.text)))
    faults = [
        told.is_error and "refused",
        [f"lacks {words!r}" for words in expected.has if words not in told.text and words not in plain],
        [f"has {words!r}" for words in expected.lacks if words in told.text],
        not re.search(expected.matches, told.text) and f"does not match {expected.matches}",
        expected.results not in (None, counted) and f"has {counted} results",
        tool == HISTORY and score_fault(told.text),
    ]
    return next((str(fault) for fault in faults if fault), None)


def score_fault(text: str) -> str | None:
    """The printed scores never rise, and none is above its source's weight."""
    scores = [
        (float(score), source)
        for score, source in re.findall(r"^--- Result \d+ \(score: ([\d.]+), source: (\w+)", text, re.M)
    ]
    above = [each for each in scores if each[0] > WEIGHTS[each[1]]]
    rises = [after for before, after in pairwise(scores) if after[0] > before[0]]
    return f"scores above their weight {above} or rising {rises}" if above or rises else None


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", [over_rest, over_mcp, in_the_chat])
def test_every_row_of_the_specifications_holds_at_every_place(request, people, place):
    told = place(request, people)([(tool, sent) for _, tool, sent, _ in ROWS])
    faults = [
        f"{tool}: {requirement}: {fault}\n    {each.text[:300]!r}"
        for (requirement, tool, _, expected), each in zip(ROWS, told, strict=True)
        # Over MCP and in the chat the text of the turns is free; the snippet is of the JSON.
        if place is over_rest or not requirement.startswith("snippet")
        if (fault := shortcoming(tool, each, expected))
    ]
    print(f"{place.__name__}: {len(ROWS) - len(faults)} of {len(ROWS)} rows hold")  # noqa: T201 - the table's output
    assert not faults, "\n".join(["", *faults])


FIELDS = {
    CHATS: {"query", "limit"},
    HISTORY: {"query", "scope", "date_from", "date_to", "max_results"},
    MEMORY: {"query", "topK", "minSimilarity", "types", "project_id", "tags"},
}


@pytest.mark.django_db(transaction=True)
def test_every_place_lists_the_three_tools_with_their_inputs(server):
    alice = a_person()
    secret = create_token(user=alice).secret
    of_rest = {each["name"]: each["inputSchema"] for each in client_of(alice).get("/api/v1/tools/").json()["tools"]}
    listed = mcp_messages.post(server, secret, path="/mcp?tools=all").json()["result"]["tools"]
    of_mcp = {each["name"]: each["inputSchema"] for each in listed}
    for name, fields in FIELDS.items():
        assert of_rest[name] == of_mcp[name] == registry.get(name).input_schema
        assert fields <= of_rest[name]["properties"].keys()
        assert of_rest[name]["required"] == ["query"]


def test_the_documents_name_what_the_task_asks_them_to_name(settings):
    page = (settings.BASE_DIR / "docs" / "mcp.md").read_text()
    (paragraph,) = [each for each in page.split("\n\n") if "[3_MCP-TAS-018]" in each]
    for requirement in ("[3_MCP-TAS-018]", "[TAS-057]", "[3_MCP-TAS-097]", "[8_RISKS-REQ-013]", "search_memory"):
        assert requirement in paragraph
    assert "canonical" in paragraph and "search_chat_history" in paragraph


@pytest.mark.django_db(transaction=True)
def test_an_agent_reads_in_the_instructions_that_long_term_memory_can_be_searched(server):
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    secret = create_token(user=a_person()).secret
    begun = mcp_messages.post(server, secret, "initialize", client, version=mcp_messages.LEGACY).json()["result"]
    for words in ("`search_memory`", "long-term memory", "`type`, `project_id`, `tags`", "threshold", "Max topK: 50"):
        assert words in begun["instructions"]


@pytest.mark.django_db
def test_the_chats_rows_are_the_migrations_and_the_indexers():
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'intake_conversations'")
        assert ("idx_ic_user_id",) in cursor.fetchall()
    alice = a_person()
    turn = a_turn(alice, "A cat")
    (row,) = Embedding.objects.all()
    assert (row.corpus, row.source_id, row.chunk_index, row.user) == ("chat", turn.conversation_id, 1, alice)
    assert row.visibility == "AUTHENTICATED"
