"""The pages as the server makes them: what they show, what they bound, and what they tell nobody else."""

import re
from datetime import timedelta
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from chat.answers.tool_call_view import draw
from chat.pages import chats as pages
from chat.pages.chats import PART
from intake.accounts import activity
from intake.accounts.identity import RegisteredMiddleware
from intake.chats.tree import conversation_path
from intake.chats.versions import branch
from intake.models import Activity, Conversation, Turn, User
from intake.tests.factories import NOW, a_long_conversation, a_person, a_turn, a_visitor, a_visitors_turn, caller_for

pytestmark = pytest.mark.django_db

HOME = reverse("intake:home")
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def client(alice) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def ended(turn: Turn, status: str, **fields) -> Turn:
    Turn.objects.filter(pk=turn.pk).update(status=status, **fields)
    turn.refresh_from_db()
    return turn


def page_of(client: Client, conversation: Conversation, **query) -> str:
    response = client.get(conversation_path(conversation.pk), query)
    assert response.status_code == 200
    return response.content.decode()


def turns_on(page: str) -> list[int]:
    return [number for number in range(1, 200) if f'id="turn-{number}"' in page]


def test_a_visitor_is_welcomed_with_examples_and_told_what_is_kept():
    page = Client().get(HOME).content.decode()
    assert page.count("data-example") == 4
    assert "for 30 days after your last message" in page
    assert reverse("intake:register") in page


def test_opening_the_page_begins_no_session():
    client = Client()
    client.get(HOME)
    assert "sessionid" not in client.cookies


def test_a_person_sees_their_email_and_the_way_out(client):
    page = client.get(HOME).content.decode()
    assert "alice@example.com" in page
    assert reverse("intake:logout") in page


def test_a_conversation_is_shown_from_the_database(client, alice):
    a_turn(alice, "Plan a dinner\nfor six", "Gladly: **risotto**.")
    page = page_of(client, Conversation.objects.get())
    assert ">Plan a dinner\nfor six</p>" in page
    assert "<strong>risotto</strong>" in page
    assert turns_on(page) == [1]
    assert "<title>Plan a dinner · Recollect</title>" in page
    assert 'datetime="2026-03-01T04:00:00-08:00"' in page


def test_a_visitor_sees_their_own_conversation():
    client = Client()
    visitor = a_visitor()
    client.force_login(visitor)
    mine = a_visitors_turn(visitor, "Mine alone").conversation
    page = client.get(conversation_path(mine.pk)).content.decode()
    assert "Mine alone" in page
    assert "for 30 days after your last message" in page
    assert Client().get(conversation_path(mine.pk)).status_code == 404


def test_nobody_sees_a_conversation_from_before_there_were_owners():
    orphan = Conversation.objects.create(user=None, title="Nobody's")
    visiting = Client()
    visiting.force_login(a_visitor())
    for client in (Client(), visiting):
        assert client.get(conversation_path(orphan.pk)).status_code == 404


def test_a_page_that_says_nothing_of_visitors_is_for_registered_users():
    def page(request):
        return HttpResponse("For registered users")

    middleware = RegisteredMiddleware(page)
    for user, is_let_in in ((AnonymousUser(), False), (a_visitor(), False), (a_person(), True)):
        request = RequestFactory().get("/new/")
        request.user = user
        refusal = middleware.process_view(request, page, (), {})
        assert (refusal is None) == is_let_in
        assert is_let_in or refusal["Location"] == "/login/?next=/new/"


def test_what_is_somebody_elses_nobodys_or_malformed_is_answered_with_the_same_bytes(client):
    theirs = a_long_conversation(a_person("bob@example.com"), 1)
    paths = [
        conversation_path(theirs.pk),
        conversation_path(uuid4()),
        conversation_path("nonsense"),
        conversation_path(theirs.pk) + "?turn=1",
        reverse("intake:conversations") + "?after=nonsense",
        reverse("intake:conversations") + f"?after=2026-01-01T00:00:00_{uuid4()}",
        reverse("intake:conversations") + f"?after=0001-01-01T00:00:00%2B23:59_{uuid4()}",
        "/c/a/b/c/",
        "/nowhere",
    ]
    answers = [client.get(path) for path in paths]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert b"Page not found" in answers[0].content
    # Who is logged in to no account may have been, and is not told either whether there is such a chat.
    invited = [(path, Client().get(path)) for path in paths if path.startswith("/c/") and path != "/c/a/b/c/"]
    assert {answer.status_code for _, answer in invited} == {404}
    assert len({answer.text.replace(quote(path, safe=""), "") for path, answer in invited}) == 1
    assert "Log in to see this chat" in invited[0][1].text


IN_THE_SHELL = [
    "intake:home",
    "intake:conversations",
    "intake:account",
    "intake:password",
    "intake:sessions",
    "intake:activity",
    "account_email",
    "mfa_index",
    "agent_tools:agents",
    "agent_tools:tokens",
    "about",
    "memory:memory",
    "imports:home",
]
STAFF_PAGES = ["staff_index", *(f"intake:staff_{name}" for name in ("settings", "models", "people", "usage"))]


def test_a_branch_finds_the_turns_that_it_shares_with_its_origin(client, alice):
    shared = a_turn(alice, "Where is the key?", said_at=NOW)
    a_turn(alice, "Is the key lost?", conversation=shared.conversation, said_at=NOW)
    made = branch(caller=caller_for(alice), conversation_id=shared.conversation_id, turn_number=1, now=NOW)
    found = client.get(reverse("intake:conversation_outline", args=[made.pk]), {"q": "key"}).content.decode()
    assert "Where is the key?" in found and "Is the key lost?" not in found
    assert f'href="{conversation_path(shared.conversation_id, turn_number=1)}" data-number=""' in found


@pytest.mark.medium
def test_every_page_of_a_registered_user_is_beside_the_list_of_chats(client, alice):
    chat = a_turn(alice, "Where is the key?").conversation
    for name in ("conversation_outline", "rename_conversation", "delete_conversation"):
        assert "data-conversation-id" in client.get(reverse(f"intake:{name}", args=[chat.pk])).text, name
    for name in IN_THE_SHELL:
        page = client.get(reverse(name)).text
        assert (page.count("data-sidebar "), "data-drawer-button" in page) == (1, True), name
    missing = client.get("/nowhere/")
    assert (missing.status_code, "data-sidebar " in missing.text) == (404, True)
    root = Client()
    root.force_login(User.objects.create_superuser("root@example.com", "administers well"))
    for name in STAFF_PAGES:
        assert "data-sidebar " in root.get(reverse(name)).text, name


@pytest.mark.parametrize("is_visitor", [False, True])
def test_pages_for_logging_in_and_errors_stand_alone_for_strangers(is_visitor):
    stranger = Client()
    if is_visitor:
        stranger.force_login(a_visitor())
    for path in (reverse("intake:login"), reverse("intake:register"), reverse("account_reset_password"), "/nowhere/"):
        page = stranger.get(path).text
        assert ('class="plain"' in page, "data-sidebar " in page) == (True, False), path


def test_a_script_that_takes_a_part_of_a_page_gets_no_list_of_chats(client, alice):
    chat = a_turn(alice, "Where is the key?").conversation
    for path in (conversation_path(chat.pk), reverse("intake:conversations"), f"/c/{chat.pk}/outline/"):
        whole = client.get(path).text
        part = client.get(path, headers={PART: "main"}).text
        assert ("data-sidebar " in whole, "data-sidebar " in part, "Where is the key?" in part) == (True, False, True)


def test_the_list_of_chats_costs_the_account_page_the_same_statements_however_long(client, alice):
    def statements():
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("intake:sessions"))
        return [query["sql"] for query in queries if "intake_conv" in query["sql"]]

    client.get(reverse("intake:sessions"))
    few = statements()
    for number in range(5):
        a_turn(alice, f"Chat {number}")
    # The groups of projects, the chats, and which of them are answering.
    assert (len(few), len(statements())) == (3, 3)


def test_a_missing_page_is_shown_alone_when_the_chats_cannot_be_read(client, monkeypatch):
    def lost(**_):
        raise OperationalError

    monkeypatch.setattr(pages, "list_in_order", lost)
    answer = client.get("/nowhere/")
    assert (answer.status_code, 'class="plain"' in answer.text) == (404, True)


def test_a_missing_page_is_in_the_language_of_its_reader(client, alice):
    User.objects.filter(pk=alice.pk).update(language="de")
    page = client.get("/nowhere/", headers={"Accept-Language": "es"}).text
    assert '<html lang="de"' in page


def test_an_account_with_a_language_that_is_not_here_gets_the_browsers(client, alice):
    User.objects.filter(pk=alice.pk).update(language="xx")
    for path in (HOME, "/settings/account/", "/nowhere/"):
        assert '<html lang="es"' in client.get(path, headers={"Accept-Language": "es"}).text
    User.objects.filter(pk=alice.pk).update(language="de-at")
    assert '<html lang="de"' in client.get(HOME, headers={"Accept-Language": "es"}).text


def test_a_place_in_the_list_with_an_odd_offset_is_a_place_all_the_same(client, alice):
    a_long_conversation(alice, 1)
    odd = f"?after=2026-06-01T00:00:00%2B23:59:59.999999_{uuid4()}"
    assert client.get(reverse("intake:conversations") + odd).status_code == 200


def test_no_cache_keeps_a_personal_page(client, alice):
    paths = [HOME, conversation_path(a_long_conversation(alice, 1).pk), reverse("intake:conversations")]
    for path in paths:
        assert "no-store" in client.get(path)["Cache-Control"]


def test_pages_are_for_reading(client):
    assert client.post(HOME).status_code == 405


def test_nothing_runs_from_outside_the_page(client, alice):
    policy = client.get(HOME)["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    page = page_of(client, a_long_conversation(alice, 1))
    assert "<script>" not in page
    assert " style=" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_what_people_and_models_write_stays_text(client, alice):
    turn = a_turn(alice, HOSTILE, HOSTILE)
    call = {"id": "1", "name": HOSTILE, "input": {"query": HOSTILE}, "summary": HOSTILE}
    ended(turn, "failed", tool_calls=[call], error={"code": "x", "detail": HOSTILE, "retryable": True})
    page = page_of(client, turn.conversation)
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_the_latest_turns_are_shown_with_a_way_to_the_earlier(client, alice):
    conversation = a_long_conversation(alice, 60)
    page = page_of(client, conversation)
    assert turns_on(page) == list(range(51, 61))
    assert "?before=51" in page
    page = page_of(client, conversation, before=51)
    assert turns_on(page) == list(range(31, 51))
    assert "?before=31" in page
    page = page_of(client, conversation, before=31)
    page = page_of(client, conversation, before=11)
    assert turns_on(page) == list(range(1, 11))
    assert "?before=" not in page


def test_a_turn_that_is_named_is_shown_however_long_ago_it_was(client, alice):
    conversation = a_long_conversation(alice, 120)
    assert turns_on(page_of(client, conversation, turn=3)) == list(range(1, 21))
    assert turns_on(page_of(client, conversation, turn=40)) == list(range(30, 50))
    assert turns_on(page_of(client, conversation, turn=110)) == list(range(101, 121))


def test_each_turn_bears_its_own_addresses(client, alice):
    conversation = a_long_conversation(alice, 3)
    page = page_of(client, conversation)
    for number in (1, 2, 3):
        assert f'href="{conversation_path(conversation.pk, turn_number=number)}"' in page
        assert f'href="{reverse("intake:delete_turn", args=[conversation.pk, number])}"' in page


def test_an_earlier_part_leads_to_the_latest_rather_than_taking_messages(client, alice):
    page = page_of(client, a_long_conversation(alice, 60), turn=1)
    assert "Go to the latest turns" in page
    assert '<div class="dock" hidden>' in page


@pytest.mark.parametrize("number", ["0", "-1", "x", "", "99999999999999999999", "61", "³"])
@pytest.mark.parametrize("name", ["turn", "before"])
def test_a_number_that_makes_no_sense_shows_the_latest(client, alice, name, number):
    page = page_of(client, a_long_conversation(alice, 60), **{name: number})
    assert turns_on(page)[-1] == 60


def test_the_list_is_bounded_and_goes_on(client, alice):
    # In threes at the same moment, so that a page ends between equals.
    Conversation.objects.bulk_create(
        Conversation(user=alice, title=f"Chat {number:02}", last_active_at=NOW + timedelta(hours=number // 3))
        for number in range(35)
    )
    first = client.get(HOME)
    titles = [item.title for item in first.context["page"].conversations]
    after = str(first.context["page"].more)
    rest = client.get(reverse("intake:conversations"), {"after": after})
    titles += [item.title for item in rest.context["page"].conversations]
    assert titles == list(Conversation.objects.newest_first().values_list("title", flat=True))
    assert len(titles) == 35
    assert rest.context["page"].more is None


def test_the_list_holds_nobody_elses(client):
    a_turn(a_person("bob@example.com"), "A secret of Bob's")
    assert "A secret of Bob" not in client.get(HOME).content.decode()
    assert "A secret of Bob" not in client.get(reverse("intake:conversations")).content.decode()


def test_the_open_conversation_is_marked_in_the_list(client, alice):
    a_turn(alice, "Another")
    page = page_of(client, a_turn(alice, "This one").conversation)
    assert page.count('aria-current="page"') == 1


@pytest.mark.parametrize(
    ("tool", "more", "place"),
    [
        ("search_chat_history", {}, "chats"),
        ("search_history", {"scope": "sessions"}, "chats"),
        ("search_history", {"scope": "memory"}, "notes"),
        ("search_memory", {}, "notes"),
        ("search_history", {}, "history"),
        ("search_history", {"scope": ["memory"]}, "history"),
        ("search", {}, "history"),
    ],
)
def test_tool_calls_are_shown_again_with_their_place_and_links(client, alice, tool, more, place):
    turn = a_turn(alice, "Where did we eat?")
    summary = "Found 1 turn: [Dinner](/c/0190/?turn=2#turn-2)"
    call = {"id": "1", "name": tool, "input": {"query": "dinner", **more}, "summary": summary}
    ended(turn, "complete", tool_calls=[call])
    page = page_of(client, turn.conversation)
    assert f"Searched your {place} for “dinner”" in page
    assert '<a href="/c/0190/?turn=2#turn-2"' in page


def shown_retries(page: str) -> int:
    return page.count('data-action="retry">')


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_a_turn_that_went_wrong_says_why_and_the_last_can_be_tried_again(client, alice, status):
    first = a_turn(alice, "One")
    last = a_turn(alice, "Two", conversation=first.conversation)
    error = {"code": "unavailable", "detail": "The model is away.", "retryable": True}
    ended(first, status, error=error, assistant_message="")
    ended(last, status, error=error, assistant_message="")
    page = page_of(client, first.conversation)
    assert page.count("The model is away.") == page.count('data-part="trouble">') == 2
    assert shown_retries(page) == 1


def test_a_failure_that_trying_again_cannot_mend_offers_no_retry(client, alice):
    turn = a_turn(alice, "One")
    ended(turn, "failed", error={"code": "too_large", "detail": "Too long.", "retryable": False})
    assert shown_retries(page_of(client, turn.conversation)) == 0


@pytest.mark.parametrize(("status", "mark"), [("interrupted", "Stopped"), ("streaming", "Still being written")])
def test_how_a_turn_ended_is_marked(client, alice, status, mark):
    turn = ended(a_turn(alice, "One", "Half an ans"), status)
    page = page_of(client, turn.conversation)
    assert "Half an ans" in page
    assert f">{mark}</span>" in page


def test_a_page_costs_the_same_few_queries_however_much_there_is(client, alice):
    conversation = a_long_conversation(alice, 60)
    for _ in range(40):
        a_long_conversation(alice, 1)
    with CaptureQueriesContext(connection) as queries:
        page_of(client, conversation)
    # What opens the transaction and says who is asking reads no table.
    assert len([query for query in queries if " FROM " in query["sql"]]) <= 9


def test_a_stored_text_is_shown_in_place_of_the_sentence_that_it_was_stored(alice):
    turn = a_turn(alice, "Six people come")
    search = {"id": "a", "name": "search_memory", "input": {"query": "dinner"}, "summary": "Found 1 record: x"}
    saving = {"id": "b", "name": "save_memory", "input": {}, "summary": "Saved a note", "stored": "Six people come"}
    failed = {**saving, "summary": "The memory is full", "is_error": True}
    shown = [(draw(call, turn), call) for call in (search, saving, failed)]
    briefs = [re.search(r'data-part="brief">(.*?)<', step)[1] for step, _ in shown]
    assert briefs == ["Found 1 record", "", "The memory is full"]
    assert [" writing" in step for step, _ in shown] == [False, True, True]


def test_the_list_of_all_chats_says_when_each_was_last_used(client, alice):
    conversation = a_long_conversation(alice, 1)
    page = client.get(reverse("intake:conversations")).content.decode()
    assert f'<time class="conversation-day" datetime="{conversation.last_active_at:%Y-%m-%dT}' in page


def test_import_moves_to_the_menu_of_the_account_after_the_first_one(client, alice):
    def places_and_menu() -> tuple[bool, bool]:
        page, link = client.get(reverse("intake:home")).content.decode(), f'href="{reverse("imports:home")}"'
        sidebar = page[page.index('class="places"') : page.index('id="person-menu"')]
        menu = page[page.index('id="person-menu"') : page.index("data-logout")]
        return f"<li><a {link}" in sidebar, link in menu

    client.force_login(alice)
    assert places_and_menu() == (True, False)
    activity.note(alice, Activity.IMPORT_STARTED)
    assert places_and_menu() == (False, True)
