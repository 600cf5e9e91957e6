"""Deleting and renaming, over REST and in forms: what goes, what stays, and what nobody else can do or learn."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from rest_framework.test import APIClient

from core.errors import NotFound
from core.isolation.acting import Caller
from core.text import Sentence, in_language, kept, restored
from intake.chats import arranging, deleting, services
from intake.chats.running import close_abandoned_turns
from intake.chats.tree import conversation_path
from intake.models import Conversation, Session, Turn, User
from intake.tests.factories import NOW, a_long_conversation, a_person, a_turn, a_visitor, a_visitors_turn

pytestmark = pytest.mark.django_db

API = "/api/v1/conversations/"
ACCOUNT = "/api/v1/account/"


@pytest.fixture
def alice() -> User:
    return a_person("alice@example.com")


@pytest.fixture
def bob() -> User:
    return a_person("bob@example.com")


def api_of(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def browser_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def caller_of(user: User) -> Caller:
    return Caller(user_id=user.pk)


def numbers(conversation: Conversation) -> list[int]:
    return list(conversation.turns.in_order().values_list("turn_number", flat=True))


def test_a_deleted_turn_leaves_the_others_their_numbers_and_its_own_is_not_given_again(alice):
    conversation = a_long_conversation(alice, 3)
    for gone in (2, 3):
        assert deleting.delete_turn(caller=caller_of(alice), conversation_id=conversation.pk, turn_number=gone)
    turn = services.create_turn(
        services.TurnRequest(message="More", conversation_id=conversation.pk), caller=caller_of(alice), now=NOW
    )
    assert turn.turn_number == 4
    assert numbers(conversation) == [1, 4]


def test_the_title_made_of_a_deleted_message_goes_with_it(alice):
    first = a_turn(alice, "Where I hid the key")
    a_turn(alice, "What is for dinner?", conversation=first.conversation)
    deleting.delete_turn(caller=caller_of(alice), conversation_id=first.conversation_id, turn_number=1)
    assert Conversation.objects.get().title == "What is for dinner?"


def test_a_title_the_person_gave_stays(alice):
    first = a_turn(alice, "Where I hid the key")
    a_turn(alice, "What is for dinner?", conversation=first.conversation)
    key = first.conversation_id
    deleting.rename_conversation(caller=caller_of(alice), conversation_id=key, title="House")
    deleting.delete_turn(caller=caller_of(alice), conversation_id=key, turn_number=1)
    assert Conversation.objects.get().title == "House"


def test_a_conversation_goes_with_its_last_turn(alice):
    turn = a_turn(alice, "Only this")
    assert not deleting.delete_turn(caller=caller_of(alice), conversation_id=turn.conversation_id, turn_number=1)
    assert not Conversation.objects.exists()


def quoting(user: User, quoted: Turn, *, is_recall: bool) -> Turn:
    """A turn whose answer and tool call quote another, as recall mode and the search tool write them."""
    link = f"[{quoted.conversation.title}]({conversation_path(quoted.conversation_id, turn_number=quoted.turn_number)})"
    answer = f"Here is:\n\n- **1 March 2026**, in {link}:\n  > {quoted.user_message}\n\n- **2 March 2026**, in [Else](/c/x/?turn=1#turn-1):\n  > Else\n\n"
    turn = a_turn(user, "What did I say?", answer)
    call = {"id": "1", "name": "search_chat_history", "summary": f"Found 2 turns: {link}, [Else](/c/x/?turn=1#turn-1)"}
    Turn.objects.filter(pk=turn.pk).update(is_recall=is_recall, tool_calls=[call])
    return turn


def test_recall_quotes_and_links_to_what_is_deleted_are_withdrawn_and_others_stay(alice):
    hidden = a_turn(alice, "Where I hid the key")
    turn = quoting(alice, hidden, is_recall=True)
    deleting.delete_conversation(caller=caller_of(alice), conversation_id=hidden.conversation_id)
    turn.refresh_from_db()
    assert "hid the key" not in turn.assistant_message + str(turn.tool_calls)
    assert "> Else" in turn.assistant_message
    assert turn.tool_calls[0]["summary"] == "Found 2 turns: a deleted chat, [Else](/c/x/?turn=1#turn-1)"


def test_a_kept_summary_names_nothing_of_what_is_deleted_in_any_language(alice):
    hidden = a_turn(alice, "Where I hid the key")
    turn = quoting(alice, hidden, is_recall=False)
    link, *others = turn_call(turn)["summary"].removeprefix("Found 2 turns: ").split(", ")
    summary = Sentence("Found %(count)s turns: %(places)s", count=2, places=[link, *others])
    Turn.objects.filter(pk=turn.pk).update(tool_calls=[{**turn_call(turn), "summary": summary, **kept(summary)}])
    deleting.delete_conversation(caller=caller_of(alice), conversation_id=hidden.conversation_id)
    turn.refresh_from_db()
    assert "hid the key" not in str(turn.tool_calls)
    shown = in_language(restored(turn.tool_calls[0], "summary"), "de")
    assert shown == "2 Beiträge gefunden: ein gelöschter Chat, [Else](/c/x/?turn=1#turn-1)"


def turn_call(turn: Turn) -> dict:
    turn.refresh_from_db()
    return turn.tool_calls[0]


def test_what_a_model_wrote_itself_stays_with_the_turn_it_wrote_it_in(alice):
    hidden = a_turn(alice, "Where I hid the key")
    turn = quoting(alice, hidden, is_recall=False)
    deleting.delete_turn(caller=caller_of(alice), conversation_id=hidden.conversation_id, turn_number=1)
    turn.refresh_from_db()
    assert "hid the key" in turn.assistant_message
    assert "hid the key" not in str(turn.tool_calls)


def test_a_turn_deleted_while_it_is_answered_does_not_come_back(alice):
    conversation = a_long_conversation(alice, 1)
    turn = services.create_turn(
        services.TurnRequest(message="Tell", conversation_id=conversation.pk), caller=caller_of(alice), now=NOW
    )
    deleting.delete_turn(caller=caller_of(alice), conversation_id=conversation.pk, turn_number=turn.turn_number)
    services.save_progress([services.Progress(turn_id=turn.pk, user_id=alice.pk, text="Once")], now=NOW)
    assert (
        services.finish_turn(turn_id=turn.pk, answer=services.Answer(text="Once", status=Turn.Status.COMPLETE)) is None
    )
    assert close_abandoned_turns(now=NOW + timedelta(days=1)) == 0
    assert numbers(conversation) == [1]


def test_a_deleted_conversation_cannot_be_gone_on_with(alice):
    conversation = a_long_conversation(alice, 1)
    deleting.delete_conversation(caller=caller_of(alice), conversation_id=conversation.pk)
    with pytest.raises(NotFound):
        services.create_turn(
            services.TurnRequest(message="More", conversation_id=conversation.pk), caller=caller_of(alice), now=NOW
        )


@pytest.mark.parametrize("method", ["get", "patch", "delete"])
def test_what_is_somebody_elses_nobodys_or_malformed_gets_the_same_bytes(alice, bob, method):
    theirs = a_long_conversation(bob, 1).pk
    client = api_of(alice)
    body = {"title": "Mine"} if method == "patch" else None
    answers = [getattr(client, method)(f"{API}{key}/", body, format="json") for key in (theirs, uuid4(), "nonsense")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert Conversation.objects.get().title == "Message 1"


@pytest.mark.parametrize("number", ["1", "2", "0", "-1", "x", "³", "99999999999999999999"])
def test_somebody_elses_turn_and_no_turn_get_the_same_bytes(alice, bob, number):
    theirs = a_long_conversation(bob, 1)
    answer = api_of(alice).delete(f"{API}{theirs.pk}/turns/{number}/")
    missing = api_of(alice).delete(f"{API}{uuid4()}/turns/7/")
    assert (answer.status_code, answer.content) == (404, missing.content)
    assert numbers(theirs) == [1]


def test_conversations_are_listed_read_renamed_and_deleted_over_rest(alice):
    conversation = a_long_conversation(alice, 60)
    client = api_of(alice)
    listed = client.get(API).json()["conversations"]
    assert [(item["conversationId"], item["title"], item["lastTurnNumber"]) for item in listed] == [
        (str(conversation.pk), "Message 1", 60)
    ]
    path = f"{API}{conversation.pk}/"
    latest = client.get(path).json()
    assert ([turn["turnNumber"] for turn in latest["turns"]], latest["earlier"]) == (list(range(11, 61)), 11)
    earlier = client.get(path, {"before": 11}).json()
    assert ([turn["turnNumber"] for turn in earlier["turns"]], earlier["later"]) == (list(range(1, 11)), 11)
    assert "earlier" not in earlier
    assert client.patch(path, {"title": "  Our\n dinner "}, format="json").json()["title"] == "Our dinner"
    assert client.delete(f"{path}turns/60/").status_code == 204
    assert client.get(path).json()["turns"][-1]["turnNumber"] == 59
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404


def test_a_long_list_goes_on_where_it_was_left(alice):
    for number in range(35):
        a_turn(alice, f"Chat {number}")
    first = api_of(alice).get(API).json()
    rest = api_of(alice).get(API, {"after": first["more"]}).json()
    keys = [item["conversationId"] for page in (first, rest) for item in page["conversations"]]
    assert len(set(keys)) == len(keys) == 35
    assert "more" not in rest


@pytest.mark.parametrize("title", ["", "  ", "x" * 81, 5, None, "\x00"])
def test_a_title_that_is_none_is_refused_by_name(alice, title):
    conversation = a_long_conversation(alice, 1)
    answer = api_of(alice).patch(f"{API}{conversation.pk}/", {"title": title}, format="json")
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["title"])


@pytest.mark.parametrize(
    ("scope", "reads", "changes"), [("search", 200, 403), ("read", 200, 403), ("write", 403, 403), ("delete", 403, 204)]
)
def test_a_token_does_what_it_was_made_for(alice, scope, reads, changes):
    conversation = a_long_conversation(alice, 1)
    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=alice, scopes=[scope])
    client = APIClient(headers={"Authorization": f"Token {token}"})
    assert client.get(API).status_code == reads
    assert client.get(f"{API}{conversation.pk}/").status_code == reads
    assert client.delete(f"{API}{conversation.pk}/turns/1/").status_code == changes
    if changes == 403:
        assert client.delete(f"{API}{conversation.pk}/").status_code == 403
        assert client.patch(f"{API}{conversation.pk}/", {"title": "x"}, format="json").status_code == 403
        assert client.delete(ACCOUNT, {"password": "password"}, format="json").status_code == 403


def test_nobody_deletes_without_credentials(alice):
    conversation = a_long_conversation(alice, 1)
    for path in (f"{API}{conversation.pk}/", f"{API}{conversation.pk}/turns/1/", ACCOUNT):
        assert Client().delete(path).status_code == 401
    assert Turn.objects.exists()


def test_a_session_needs_its_csrf_token_to_delete(alice):
    conversation = a_long_conversation(alice, 1)
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(alice)
    assert client.delete(f"{API}{conversation.pk}/").status_code == 401
    assert Conversation.objects.exists()


def test_an_account_goes_with_everything_and_takes_nothing_of_others(alice, bob):
    a_turn(alice, "Mine")
    theirs = a_turn(bob, "Bob's")
    staff = User.objects.create_user("staff@example.com")
    LogEntry.objects.create(
        user=staff,
        content_type=ContentType.objects.get_for_model(User),
        object_id=str(alice.pk),
        object_repr=alice.email,
        action_flag=CHANGE,
    )
    client, other = browser_of(alice), browser_of(bob)
    assert api_of(alice).delete(ACCOUNT, {"password": "password"}, format="json").status_code == 200
    assert list(User.objects.order_by("pk")) == [bob, staff]
    assert list(Turn.objects.all()) == [theirs]
    assert list(Session.objects.values_list("user", flat=True)) == [bob.pk]
    assert not LogEntry.objects.exists()
    assert "alice@example.com" not in client.get("/").text
    assert "bob@example.com" in other.get("/").text


@pytest.mark.parametrize("body", [{}, {"password": "wrong"}, {"password": ""}, {"password": 5}, {"password": "\x00"}])
def test_an_account_is_not_deleted_without_its_password(alice, body):
    answer = api_of(alice).delete(ACCOUNT, body, format="json")
    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["password"])
    assert User.objects.filter(pk=alice.pk).exists()


def test_sessions_know_whose_they_are(alice):
    client, visitor = Client(), a_visitor()
    client.force_login(visitor)
    assert list(Session.objects.values_list("user", flat=True)) == [visitor.pk]
    client.post(reverse("intake:login"), {"username": alice.email, "password": "password"})
    assert list(Session.objects.values_list("user", flat=True)) == [alice.pk]


# -- In the browser, without a script ---------------------------------------------------------------------------------


def change_path(conversation: Conversation, what: str) -> str:
    return f"/c/{conversation.pk}/{what}/"


def test_deleting_a_chat_asks_first(alice):
    conversation = a_long_conversation(alice, 2)
    client = browser_of(alice)
    page = client.get(change_path(conversation, "delete"))
    assert "Delete this chat?" in page.text
    assert Conversation.objects.exists()
    answer = client.post(change_path(conversation, "delete"), follow=True)
    assert "Chat deleted." in answer.text
    assert not Turn.objects.exists()


def test_deleting_a_message_asks_first_and_returns_to_the_chat(alice):
    conversation = a_long_conversation(alice, 2)
    client = browser_of(alice)
    path = change_path(conversation, "turns/1/delete")
    assert "Message 1" in client.get(path).text
    answer = client.post(path)
    assert answer["Location"] == conversation_path(conversation.pk)
    assert numbers(conversation) == [2]
    assert client.post(change_path(conversation, "turns/2/delete"))["Location"] == "/"


def test_a_chat_is_renamed_in_a_form_that_says_what_is_wrong(alice):
    conversation = a_long_conversation(alice, 1)
    client = browser_of(alice)
    assert "required" in client.post(change_path(conversation, "rename"), {"title": " "}).text
    assert client.post(change_path(conversation, "rename"), {"title": "\x00"}).status_code == 200
    client.post(change_path(conversation, "rename"), {"title": "Dinner"})
    assert '<h1 data-title dir="auto">Dinner</h1>' in client.get(conversation_path(conversation.pk)).text


@pytest.mark.parametrize("what", ["rename", "delete", "turns/1/delete"])
@pytest.mark.parametrize("method", ["get", "post"])
def test_the_forms_know_nothing_of_what_is_somebody_elses(alice, bob, what, method):
    theirs = a_long_conversation(bob, 1)
    client = browser_of(alice)
    answer = getattr(client, method)(change_path(theirs, what), {"title": "Mine"} if method == "post" else {})
    assert (answer.status_code, answer.content) == (404, client.get("/nowhere").content)
    assert numbers(theirs) == [1]


def test_a_visitor_deletes_their_own_chat_and_no_other(alice):
    client, visitor = Client(), a_visitor()
    client.force_login(visitor)
    mine, other = (a_visitors_turn(each, "Hello").conversation for each in (visitor, a_visitor()))
    assert client.post(change_path(other, "delete")).status_code == 404
    assert client.post(change_path(mine, "delete")).status_code == 302
    assert list(Conversation.objects.all()) == [other]


@pytest.mark.medium
def test_the_account_page_sets_the_time_zone(alice):
    client = browser_of(alice)
    path = reverse("intake:account")
    assert 'name="time_zone" value="America/Los_Angeles"' in client.get(path).text
    assert "Saved." in client.post(path, {"time_zone": "Europe/Lisbon"}, follow=True).text
    alice.refresh_from_db()
    assert alice.time_zone == "Europe/Lisbon"
    assert "There is no such time zone" in client.post(path, {"time_zone": "../etc"}).text


def test_the_account_page_is_for_people_who_are_logged_in():
    answer = Client().get(reverse("intake:account"))
    assert answer["Location"] == f"{reverse('intake:login')}?next={reverse('intake:account')}"


def test_an_account_is_deleted_in_the_browser_with_the_password_only(alice):
    client = browser_of(alice)
    path = reverse("intake:delete_account")
    assert client.get(path).status_code == 405
    assert "This is not your password." in client.post(path, {"password": "wrong"}).text
    assert User.objects.exists()
    answer = client.post(path, {"password": "password"})
    assert '"storage"' in answer["Clear-Site-Data"]
    assert "everything in it are deleted" in answer.text
    assert not User.objects.exists()


@pytest.mark.medium
def test_a_gap_in_the_numbers_takes_no_room_on_a_page(alice):
    conversation = a_long_conversation(alice, 120)
    conversation.turns.filter(turn_number=81).update(parent_number=30)
    conversation.turns.filter(turn_number__range=(31, 80)).delete()
    page = browser_of(alice).get(conversation_path(conversation.pk), {"before": 91}).context["window"]
    assert [turn.turn_number for turn in page.turns] == [*range(21, 31), *range(81, 91)]
    assert (page.earlier, page.later) == (21, 91)
    named = browser_of(alice).get(conversation_path(conversation.pk), {"turn": 25}).context["window"]
    assert [turn.turn_number for turn in named.turns] == [*range(15, 31), *range(81, 85)]
    assert (named.earlier, named.later) == (15, 85)


def test_a_chat_is_deleted_without_loading_its_texts():
    alice = a_person()
    turn = a_turn(alice, "I adopted a cat")
    with CaptureQueriesContext(connection) as queries:
        deleting.delete_conversation(caller=Caller(user_id=alice.pk), conversation_id=turn.conversation_id)
    assert not Turn.objects.exists() and not Conversation.objects.exists()
    # The search for quotes reads the turns that quote it, of which there are none.
    reading = [query["sql"] for query in queries.captured_queries if '"assistant_message"' in query["sql"]]
    assert len(reading) == 1 and "LIKE" in reading[0]


def test_deleting_many_chats_searches_the_history_for_quotes_once():
    alice = a_person()
    ids = [a_turn(alice, f"cat {number}").conversation_id for number in range(10)]
    kept = a_turn(alice, "dog")
    with CaptureQueriesContext(connection) as queries:
        arranging.delete_all(caller=Caller(user_id=alice.pk), conversation_ids=ids)
    assert list(Turn.objects.all()) == [kept]
    assert sum("tool_calls" in query["sql"] and "LIKE" in query["sql"] for query in queries.captured_queries) == 1
