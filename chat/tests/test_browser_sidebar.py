"""The list of chats in a real browser: found, kept in order, changed in place, by pointer, by keys and on a phone."""

import json
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import CDPSession, Locator, Page, expect

from chat.endpoint.tests.test_conversations import Program
from intake.chats.tree import conversation_path
from intake.models import Conversation, Turn
from intake.models.conversations import TitledBy
from intake.tests.factories import a_turn, a_visitor, a_visitors_turn
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True}


def some_chats(person, *titles: str) -> list[Conversation]:
    """The first one was active last."""
    now = timezone.now()
    chats = [a_turn(person, title).conversation for title in titles]
    for number, chat in enumerate(chats):
        Conversation.objects.filter(pk=chat.pk).update(last_active_at=now - timedelta(minutes=number))
    return chats


def listed(page: Page, title: str) -> Locator:
    """A chat's link in the list; the home page may have another one."""
    return page.locator("[data-all-chats]").get_by_role("link", name=title)


def titles(page: Page) -> list[str]:
    return page.locator("[data-all-chats] [data-conversation-id] a").all_text_contents()


def choose(page: Page, title: str, what: str) -> None:
    item = page.locator("[data-all-chats] [data-conversation-id]", has=page.get_by_role("link", name=title, exact=True))
    item.get_by_role("button", name="Options").click()
    page.get_by_role("menuitem", name=what, exact=True).click()


def test_chats_stand_under_the_days_on_which_they_were_active(open_page, person):
    chats = some_chats(person, "Now", "A day ago", "Five days ago", "Twenty days ago", "Long ago")
    now = timezone.now()
    for chat, days in zip(chats, (0, 1, 5, 20, 400), strict=True):
        Conversation.objects.filter(pk=chat.pk).update(last_active_at=now - timedelta(days=days))
    page = open_page(user=person)
    headings = page.locator(".day").all_inner_texts()
    assert headings[:4] == ["Today", "Yesterday", "Previous 7 days", "Previous 30 days"]
    assert headings[4] == f"{now - timedelta(days=400):%B %Y}"


def test_a_chat_of_another_program_appears_with_its_name(open_page, person, new_client, language_model):
    language_model(Say(("Hello.",)))
    page = open_page(user=person)
    Program(new_client(), person).say("From the tram")
    item = page.locator("[data-all-chats] [data-conversation-id]")
    expect(item.locator(".conversation-source")).to_have_text("My phone")
    expect(item.get_by_role("link")).to_have_text("From the tram")


def count_tasks(page: Page, domain: str) -> CDPSession:
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": domain})
    return devtools


def seconds_of_tasks(devtools: CDPSession) -> float:
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def test_five_thousand_chats_are_scrolled_without_a_click_and_without_long_waits(open_page, person):
    now = timezone.now()
    Conversation.objects.bulk_create(
        Conversation(user=person, title=f"Chat {number}", last_active_at=now - timedelta(hours=number))
        for number in range(5000)
    )
    page = open_page(user=person)
    chats = page.locator("[data-all-chats] [data-conversation-id]")
    page.evaluate(
        """() => {
          window.longest = 0;
          new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
          }).observe({ type: "longtask" });
        }"""
    )
    by_the_clock, of_the_processor = (count_tasks(page, domain) for domain in ("timeTicks", "threadTicks"))
    page.evaluate(
        """() => {
          const list = document.querySelector("[data-sidebar-list]");
          setInterval(() => (list.scrollTop = list.scrollHeight), 30);
        }"""
    )
    expect(chats).to_have_count(5000, timeout=60_000)
    assert titles(page) == [f"Chat {number}" for number in range(5000)]
    # A frame is 16 ms. Where the machine does other things as well, every task takes longer than it is computed.
    slowness = seconds_of_tasks(by_the_clock) / seconds_of_tasks(of_the_processor)
    assert page.evaluate("window.longest") < 500 * max(1, slowness)


def test_a_pinned_chat_stays_on_top_until_it_is_let_go(open_page, person):
    some_chats(person, "First", "Second", "Third")
    page = open_page(user=person)
    choose(page, "Third", "Pin")
    expect(page.locator(".day").first).to_have_text("Pinned")
    assert titles(page) == ["Third", "First", "Second"]
    page.reload()
    assert titles(page) == ["Third", "First", "Second"]
    choose(page, "Third", "Unpin")
    expect(page.locator(".day").first).to_have_text("Today")
    assert titles(page) == ["First", "Second", "Third"]


def test_an_archived_chat_leaves_the_list_and_can_be_had_back(open_page, person):
    some_chats(person, "First", "Second")
    page = open_page(user=person)
    choose(page, "Second", "Archive")
    expect(listed(page, "Second")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(listed(page, "Second")).to_be_visible()
    choose(page, "Second", "Archive")
    expect(listed(page, "Second")).to_have_count(0)
    page.goto("/conversations/?archived=1")
    page.get_by_label("Choose Second").check()
    page.get_by_role("button", name="Put back").click()
    expect(page.get_by_role("status")).to_have_text("1 chat back in the list.")
    assert not Conversation.objects.filter(archived_at__isnull=False).exists()


def test_a_new_message_brings_an_archived_chat_back(person, log_in):
    chat = some_chats(person, "First")[0]
    Conversation.objects.update(archived_at=timezone.now())
    log_in(person).events("More of it", conversation_id=str(chat.pk))
    assert Conversation.objects.get().archived_at is None


def test_a_title_is_changed_in_its_place_and_is_the_persons_own_from_then_on(open_page, person):
    chat = some_chats(person, "A message")[0]
    page = open_page(conversation_path(chat.pk), user=person)
    page.locator("[data-all-chats] [data-conversation-id] a").focus()
    page.keyboard.press("F2")
    page.get_by_label("Title of the chat").fill("  My   cello ")
    page.keyboard.press("Enter")
    expect(page.locator("[data-all-chats] [data-conversation-id] a")).to_be_focused()
    expect(page.locator("[data-title]")).to_have_text("My cello")
    assert page.title() == "My cello · Recollect"
    chat.refresh_from_db()
    assert (chat.title, chat.titled_by) == ("My cello", TitledBy.PERSON)
    page.keyboard.press("F2")
    page.get_by_label("Title of the chat").fill("Never mind")
    page.keyboard.press("Escape")
    expect(page.locator("[data-all-chats] [data-conversation-id] a")).to_have_text("My cello")
    assert Conversation.objects.get().title == "My cello"


def test_a_title_that_cannot_be_saved_says_why_and_the_old_one_stays(open_page, person):
    some_chats(person, "A message")
    page = open_page(user=person)
    page.context.set_offline(True)
    choose(page, "A message", "Rename")
    page.get_by_label("Title of the chat").fill("Another")
    page.keyboard.press("Enter")
    expect(page.locator("[data-sidebar-status]")).to_contain_text("No connection")
    expect(page.locator("[data-all-chats] [data-conversation-id] a")).to_have_text("A message")


def test_a_chat_is_deleted_by_keys_alone_after_a_question(open_page, person):
    some_chats(person, "First", "Second")
    page = open_page(user=person)
    listed(page, "First").focus()
    page.keyboard.press("ArrowDown")
    expect(listed(page, "Second")).to_be_focused()
    page.keyboard.press("Delete")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert Conversation.objects.count() == 2
    page.keyboard.press("Delete")
    page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    expect(listed(page, "Second")).to_have_count(0)
    assert [chat.title for chat in Conversation.objects.all()] == ["First"]


def test_several_are_archived_deleted_and_exported_at_once(open_page, person):
    some_chats(person, *[f"Chat {number}" for number in range(6)])
    page = open_page(user=person)
    choose(page, "Chat 1", "Select")
    listed(page, "Chat 3").click(modifiers=["Shift"])
    expect(page.locator("[data-selected-count]")).to_have_text("3 selected")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Export the selected chats").click()
    exported = json.loads(downloading.value.path().read_text())
    assert {chat["title"] for chat in exported["conversations"]} == {"Chat 1", "Chat 2", "Chat 3"}
    assert exported["conversations"][0]["turns"][0]["assistant_message"] == "Noted."
    page.get_by_role("button", name="Delete the selected chats").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("[data-all-chats] [data-conversation-id]")).to_have_count(3)
    assert set(Conversation.objects.values_list("title", flat=True)) == {"Chat 0", "Chat 4", "Chat 5"}
    choose(page, "Chat 0", "Select")
    page.get_by_role("button", name="Archive the selected chats").click()
    expect(page.locator("[data-all-chats] [data-conversation-id]")).to_have_count(2)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-all-chats] [data-conversation-id]")).to_have_count(3)


def test_without_a_script_several_are_deleted_after_a_question(open_page, person):
    some_chats(person, "First", "Second", "Third")
    page = open_page("/conversations/", user=person, java_script_enabled=False)
    page.get_by_label("Choose First").check()
    page.get_by_label("Choose Third").check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Delete 2 chats?")
    page.get_by_role("button", name="Delete").click()
    assert [chat.title for chat in Conversation.objects.all()] == ["Second"]
    page.goto("/conversations/")
    page.get_by_label("Words of a title").fill("second")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("main [data-conversation-id]")).to_have_count(1)


def test_a_visitor_keeps_order_as_well(open_page):
    visitor = a_visitor()
    a_visitors_turn(visitor, "Mine alone")
    page = open_page(user=visitor)
    choose(page, "Mine alone", "Pin")
    expect(page.locator(".day")).to_have_text("Pinned")
    choose(page, "Mine alone", "Rename")
    page.get_by_label("Title of the chat").fill("Still mine")
    page.keyboard.press("Enter")
    expect(page.locator("[data-sidebar-status]")).to_contain_text("Renamed")
    assert Conversation.objects.get().title == "Still mine"
    assert Turn.objects.count() == 1


def test_on_a_phone_the_menu_is_a_tap_away_and_nothing_overflows(open_page, person):
    some_chats(person, "unbroken" * 10, "Second")
    page = open_page(user=person, **PHONE)
    page.get_by_role("button", name="Your chats").click()
    choose(page, "Second", "Pin")
    expect(page.locator(".day").first).to_have_text("Pinned")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.locator(".person-line").bounding_box()["height"] < 60


def test_what_happens_in_another_tab_shows_by_itself(open_page, person, language_model):
    language_model(Say(("One.",)), Say(("Two.",)))
    first = some_chats(person, "First", "Second")[0]
    page = open_page(conversation_path(first.pk), user=person)
    other = page.context.new_page()
    other.goto("/")
    page.wait_for_timeout(1000)
    # Nothing but an event brings about what follows.
    other.get_by_label("Message", exact=True).fill("A new one")
    other.keyboard.press("Enter")
    expect(page.locator("[data-all-chats] [data-conversation-id] a").first).to_have_text("A new one")
    expect(other.locator(".turn").last).to_have_attribute("data-status", "complete")
    choose(other, "Second", "Pin")
    expect(page.locator("[data-all-chats] [data-conversation-id] a").first).to_have_text("Second")
    choose(other, "Second", "Delete")
    other.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(listed(page, "Second")).to_have_count(0)
    # The chat that is open there gets its new turn and its new name.
    other.goto(conversation_path(first.pk))
    other.get_by_label("Message", exact=True).fill("And more")
    other.keyboard.press("Enter")
    expect(other.locator(".turn").last).to_have_attribute("data-status", "complete")
    expect(page.locator("#turn-2 .prose")).to_have_text("Two.")
    choose(other, "First", "Rename")
    other.get_by_label("Title of the chat").fill("Renamed there")
    other.keyboard.press("Enter")
    expect(page.locator("[data-title]")).to_have_text("Renamed there")
    choose(other, "Renamed there", "Delete")
    other.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("[data-gone]")).to_be_visible()


@pytest.mark.parametrize("locale", ["de", "es"])
def test_the_longer_words_of_other_languages_fit_into_the_sidebar(open_page, person, locale):
    some_chats(person, "One", "Two")
    page = open_page(user=person, locale=locale)
    page.locator("[data-all-chats] [data-item-button]").first.click()
    page.locator("[data-item-do=select]").click()
    selection = page.locator("[data-selected-count]").evaluate(
        "one => one.getClientRects().length === 1 && one.offsetHeight < 1.9 * parseFloat(getComputedStyle(one).fontSize)"
    )
    assert selection, "The number of selected chats is on two lines."
    visitors = open_page(locale=locale)
    visitors.locator("[data-theme-button]").wait_for()
    for shown in (page, visitors):
        stick_out = shown.locator("#sidebar").evaluate(
            "bar => [...bar.querySelectorAll('*')].filter(one => one.checkVisibility()"
            " && one.getBoundingClientRect().right > bar.getBoundingClientRect().right).length"
        )
        assert stick_out == 0


def test_the_list_of_chats_is_collapsed_by_a_key_and_a_button_and_stays_so(open_page, person):
    chat = some_chats(person, "One")[0]
    page = open_page(conversation_path(chat.pk), user=person, viewport={"width": 1280, "height": 800})
    sidebar = page.locator("#sidebar")
    page.get_by_label("Message", exact=True).focus()
    page.keyboard.press("Control+b")
    expect(sidebar).to_be_hidden()
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    for path in (page.url, "/", "/search/"):
        page.goto(path)
        expect(sidebar).to_be_hidden()
    page.get_by_role("button", name="Your chats").click()
    expect(sidebar).to_be_visible()
    collapse = page.get_by_role("button", name="Hide your chats")
    expect(collapse).to_be_focused()
    page.keyboard.press("Enter")
    expect(sidebar).to_be_hidden()
    expect(page.get_by_role("button", name="Your chats")).to_be_focused()
    page.keyboard.press("Enter")
    page.reload()
    expect(sidebar).to_be_visible()


def test_a_collapsed_list_is_still_a_drawer_on_a_narrow_screen(open_page, person):
    page = open_page("/search/", user=person, viewport={"width": 1280, "height": 800})
    page.keyboard.press("Control+b")
    page.set_viewport_size({"width": 400, "height": 800})
    page.keyboard.press("Control+b")
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    expect(page.locator("#sidebar")).to_be_in_viewport()
    page.keyboard.press("Control+b")
    expect(page.locator("#sidebar")).to_be_hidden()


def test_the_drawer_of_the_account_page_opens_a_chat(open_page, person):
    some_chats(person, "About the cello")
    page = open_page("/settings/account/", user=person, **PHONE)
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("button", name="Your chats").click()
    page.locator("#sidebar").get_by_role("link", name="About the cello").click()
    expect(page.get_by_role("heading", name="About the cello")).to_be_visible()


@pytest.mark.parametrize(("options", "height"), [({}, 34), (PHONE, 44)], ids=["desktop", "phone"])
def test_the_rows_of_chats_are_dense_and_a_finger_hits_them(open_page, person, options, height):
    some_chats(person, "One", "Two")
    page = open_page(user=person, **options)
    if options:
        page.get_by_role("button", name="Your chats").click()
    rows = page.locator("[data-all-chats] [data-conversation-id] a")
    assert {row.bounding_box()["height"] for row in rows.all()} == {height}


def test_the_foot_of_the_list_is_a_menu_with_words(open_page, person):
    page = open_page(user=person)
    page.get_by_role("button", name=person.email).focus()
    page.keyboard.press("Enter")
    entries = page.get_by_role("menu", name=person.email).locator("[role^=menuitem]")
    expect(entries.first).to_be_focused()
    expect(entries).to_have_text(
        [
            "Account",
            "Open on your phone",
            "About Recollect",
            "Colours as the system has them",
            "Light colours",
            "Dark colours",
            "Log out",
        ]
    )
    page.keyboard.press("End")
    expect(page.get_by_role("menuitem", name="Log out")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=person.email)).to_be_focused()


def entries(page: Page) -> list[str]:
    menu = page.get_by_role("menu", name="This chat")
    expect(menu).to_be_visible()
    return menu.get_by_role("menuitem").all_inner_texts()


def test_the_list_and_the_open_chat_offer_one_menu(open_page, person):
    (chat,) = some_chats(person, "Pears")
    page = open_page(conversation_path(chat.pk), user=person)
    listed(page, "Pears").click(button="right")
    in_list = entries(page)
    page.keyboard.press("Escape")
    head = page.locator("[data-chat-menu]")
    head.focus()
    page.keyboard.press("ArrowDown")
    assert entries(page) == in_list
    page.keyboard.press("Escape")
    expect(head).to_be_focused()
    head.click()
    page.get_by_role("menuitem", name="Archive").click()
    expect(listed(page, "Pears")).to_have_count(0)
    head.click()
    assert "Put back" in entries(page)
    page.get_by_role("menuitem", name="Put back").click()
    expect(listed(page, "Pears")).to_be_visible()


def test_the_open_chat_is_renamed_in_place(open_page, person):
    (chat,) = some_chats(person, "Pears")
    page = open_page(conversation_path(chat.pk), user=person)
    page.locator("[data-chat-menu]").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.keyboard.type("Quinces")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Quinces")).to_be_visible()
    expect(listed(page, "Quinces")).to_be_visible()
    expect(page.locator("[data-chat-menu]")).to_be_focused()
