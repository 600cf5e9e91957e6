"""`get_conversation` and `list_recent_conversations`: bounded, in the person's time, and nobody else's."""

from datetime import UTC, datetime, timedelta

import pytest

from agent_tools.tests.callers import call
from agent_tools.tools import registry
from agent_tools.tools.conversations import CHARACTERS
from core.errors import AuthenticationRequired
from core.isolation.acting import Caller, acting_as
from intake.chats import services, versions
from intake.models import Conversation, Turn
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_long_conversation, a_person, a_temporary_turn, a_turn
from memory.search.excerpts import fair_limit

pytestmark = pytest.mark.django_db

MISSING = "01890a5d-ac96-774b-bcce-b302099a8057"


def read(api, conversation, **fields):
    return call(api, "get_conversation", {"conversationId": str(conversation.id), **fields})


def numbers(response):
    return [turn["turnNumber"] for turn in response.json()["turns"]]


def a_conversation(user, title, last_active_at):
    started_at = last_active_at - timedelta(hours=1)
    return Conversation.objects.create(user=user, title=title, started_at=started_at, last_active_at=last_active_at)


def titles(api, **fields):
    response = call(api, "list_recent_conversations", fields)
    assert response.status_code == 200, response.json()
    return [conversation["title"] for conversation in response.json()["conversations"]]


def test_the_turns_around_a_hit_with_the_way_on(api, alice):
    conversation = a_long_conversation(alice, 20)
    response = read(api, conversation, around=10, window=2)
    assert numbers(response) == [8, 9, 10, 11, 12]
    body = response.json()
    assert (body["earlier"], body["later"], body["turnCount"]) == (7, 13, 20)
    assert body["turns"][2] == {
        "turnNumber": 10,
        "saidAt": "2026-03-01T04:00:00-08:00",
        "person": "Message 10",
        "assistant": "Answer 10",
    }


def test_a_turn_names_its_files_with_the_ids_by_which_they_are_read(api, alice):
    file = a_file(alice, name="lease.pdf")
    with acting_as(alice):
        begun = services.create_turn(
            services.TurnRequest(message="", attachments=[file.pk]), caller=Caller(user_id=alice.pk), now=NOW
        )
        answer = services.Answer(text="Read.", status=Turn.Status.COMPLETE)
        services.finish_turn(turn_id=begun.pk, answer=answer)
    (turn,) = read(api, begun.conversation).json()["turns"]
    assert (turn["person"], turn["files"]) == ("", [f"lease.pdf ({file.pk})"])
    assert "files" not in read(api, a_turn(alice, "No file").conversation).json()["turns"][0]


def test_a_temporary_chat_is_read_by_no_agent(api, alice):
    temporary = a_temporary_turn(alice, "Between us").conversation
    assert read(api, temporary).status_code == 404
    assert titles(api) == []


def test_at_the_ends_of_a_conversation(api, alice):
    conversation = a_long_conversation(alice, 20)
    assert numbers(read(api, conversation, around=1, window=2)) == [1, 2, 3]
    assert numbers(read(api, conversation, around=20, window=2)) == [18, 19, 20]
    assert numbers(read(api, conversation, window=0)) == [20]
    assert numbers(read(api, conversation)) == list(range(14, 21))
    assert "later" not in read(api, conversation).json()


def test_a_turn_that_there_is_not_is_refused_with_the_number_there_are(api, alice):
    response = read(api, a_long_conversation(alice, 3), around=4)
    assert (response.status_code, response.json()["errors"]) == (400, {"around": ["The conversation has 3 turns."]})


def test_the_turns_around_a_version_are_those_of_its_path_and_the_latest_those_of_the_chosen_one(api, alice):
    conversation = a_turn(alice, "First").conversation
    for parent in (1, 1, 2, 3):
        a_turn(alice, "Next", conversation=conversation, parent=parent)
    assert numbers(read(api, conversation)) == [1, 3, 5]
    around = read(api, conversation, around=2, window=1)
    assert numbers(around) == [1, 2, 4]
    assert "earlier" not in around.json()
    assert "later" not in around.json()
    alone = read(api, conversation, around=3, window=0).json()
    assert (alone["earlier"], alone["later"], alone["turnCount"]) == (1, 5, 5)


def test_a_branch_names_the_turn_that_it_goes_on_from(api, alice):
    first = a_turn(alice, "First")
    branch = versions.branch(
        caller=Caller(user_id=alice.pk), conversation_id=first.conversation_id, turn_number=1, now=NOW
    )
    assert read(api, branch).json()["turns"] == []
    a_turn(alice, "Elsewhere", conversation=branch)
    body = read(api, branch).json()
    assert [turn["person"] for turn in body["turns"]] == ["Elsewhere"]
    assert body["branchedFrom"] == {"conversationId": str(first.conversation_id), "turnNumber": 1}


def test_long_texts_are_cut_fairly_and_marked(api, alice):
    turn = a_turn(alice, "short", "x" * 30_000)
    a_turn(alice, "also short", "y" * 30_000, conversation=turn.conversation)
    first, second = read(api, turn.conversation).json()["turns"]
    assert first["truncated"] is second["truncated"] is True
    assert (first["person"], second["person"]) == ("short", "also short")
    total = sum(len(turn[side]) for turn in (first, second) for side in ("person", "assistant"))
    assert CHARACTERS - 4 <= total <= CHARACTERS
    (alone,) = read(api, turn.conversation, around=1, window=0).json()["turns"]
    assert len(alone["assistant"]) > len(first["assistant"])


@pytest.mark.parametrize(
    ("lengths", "limit"), [([], 12), ([3, 4], 12), ([100, 100], 6), ([2, 100], 10), ([1, 2, 100, 100], 4), ([12], 12)]
)
def test_short_texts_leave_their_share_to_long_ones(lengths, limit):
    assert fair_limit(lengths, budget=12) == limit
    assert sum(min(length, limit) for length in lengths) <= 12


def test_somebody_elses_a_missing_and_a_malformed_id_get_the_same_bytes(api):
    theirs = a_turn(a_person("bob@example.com"), "secret").conversation
    answers = [
        call(api, "get_conversation", {"conversationId": str(key)}) for key in (theirs.id, MISSING, "x", "", "\x00")
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize(
    "fields",
    [{"around": 0}, {"around": "one"}, {"window": -1}, {"window": 11}, {"conversationId": [5]}, {"userId": 1}],
)
def test_a_wrong_input_of_get_conversation_names_the_field(api, fields):
    response = call(api, "get_conversation", {"conversationId": MISSING, **fields})
    assert (response.status_code, list(response.json()["errors"])) == (400, list(fields))


def test_the_latest_conversations_come_first_and_are_bounded(api, alice):
    for day in range(1, 13):
        a_conversation(alice, f"Day {day}", datetime(2026, 3, day, 12, tzinfo=UTC))
    a_conversation(a_person("bob@example.com"), "Not hers", NOW)
    assert titles(api) == [f"Day {day}" for day in range(12, 2, -1)]
    assert titles(api, limit=1) == ["Day 12"]


def test_days_are_the_persons_own(api, alice):
    alice.time_zone = "Pacific/Auckland"
    alice.save()
    # In Auckland, thirteen hours ahead, these are the last hour of 1 March and the first of 2 March.
    a_conversation(alice, "Sunday night", datetime(2026, 3, 1, 10, 30, tzinfo=UTC))
    a_conversation(alice, "Monday morning", datetime(2026, 3, 1, 11, 30, tzinfo=UTC))
    assert titles(api, after="2026-03-02") == ["Monday morning"]
    assert titles(api, before="2026-03-02") == ["Sunday night"]
    assert titles(api, after="2026-03-02T00:45:00") == []
    assert titles(api, after="2026-03-01T11:00:00Z") == ["Monday morning"]
    body = call(api, "list_recent_conversations", {}).json()
    assert body["timeZone"] == "Pacific/Auckland"
    assert body["conversations"][0]["lastActiveAt"] == "2026-03-02T00:30:00+13:00"


def test_the_last_ones_time_leads_to_the_next_page(api, alice):
    for day in (1, 2, 3):
        a_conversation(alice, f"Day {day}", datetime(2026, 3, day, 12, tzinfo=UTC))
    first = call(api, "list_recent_conversations", {"limit": 2}).json()["conversations"]
    assert titles(api, before=first[-1]["lastActiveAt"]) == ["Day 1"]


def test_page_by_page_none_is_left_out_or_listed_twice_even_of_those_of_one_moment(api, alice):
    for number in range(7):
        a_conversation(alice, f"Imported {number}", datetime(2026, 3, 1, 12, tzinfo=UTC))
    seen, more = [], {}
    while more is not None and len(seen) < 10:
        answer = call(api, "list_recent_conversations", {"limit": 2, **more}).json()
        seen += [each["title"] for each in answer["conversations"]]
        more = {"before": answer["more"]} if "more" in answer else None
    assert sorted(seen) == [f"Imported {number}" for number in range(7)]


@pytest.mark.parametrize("field", ["before", "after"])
@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "2026-13-01", "01/03/2026", "\x00"])
def test_what_is_no_date_is_refused_naming_the_field(api, field, text):
    response = call(api, "list_recent_conversations", {field: text})
    assert (response.status_code, list(response.json()["errors"])) == (400, [field])


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_the_ends_of_time_are_dates_too(api, alice, text):
    alice.time_zone = "Pacific/Auckland"
    alice.save()
    assert call(api, "list_recent_conversations", {"after": text}).status_code == 200


@pytest.mark.parametrize("fields", [{"limit": 0}, {"limit": 51}, {"limit": "five"}, {"before": [5]}, {"user": 1}])
def test_a_wrong_input_of_the_list_names_the_field(api, fields):
    response = call(api, "list_recent_conversations", fields)
    assert (response.status_code, list(response.json()["errors"])) == (400, list(fields))


def test_a_visitor_is_told_that_an_identity_is_needed():
    for name, data in (("get_conversation", {"conversationId": MISSING}), ("list_recent_conversations", {})):
        with pytest.raises(AuthenticationRequired):
            registry.get(name).call(data, user=None)


def test_people_are_shown_what_was_read(alice):
    conversation = a_long_conversation(alice, 5)
    tool = registry.get("get_conversation")
    output = tool.call({"conversationId": str(conversation.id), "around": 3, "window": 0}, user=alice)
    assert tool.summarise(output, alice) == f"Read 1 turn of [Message 1](/c/{conversation.id}/?turn=3#turn-3)"
    tool = registry.get("list_recent_conversations")
    link = f"[Message 1](/c/{conversation.id}/)"
    assert tool.summarise(tool.call({}, user=alice), alice) == f"Listed 1 conversation: {link}"
    for _ in range(4):
        a_long_conversation(alice, 1)
    summary = tool.summarise(tool.call({}, user=alice), alice)
    assert summary.startswith("Listed 5 conversations: [Message 1](/c/")
    assert summary.endswith(" and 2 more")
    nobody = tool.summarise(tool.call({"before": "2020-01-01"}, user=alice), alice)
    assert nobody == "Listed 0 conversations"
