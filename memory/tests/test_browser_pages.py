"""Search and notes in a real browser: what is written is found, a result leads to its turn, and the keys work."""

import re

import pytest
from playwright.sync_api import Page, expect

from core.isolation.acting import acting_as
from intake.models import User
from intake.tests.factories import NOW, a_long_conversation, a_turn
from memory import documents, index, records

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 700}, "has_touch": True}
LONG = f"{'unbroken' * 90} cello {'word ' * 200}"


def overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def search_for(page: Page, words: str) -> None:
    page.get_by_role("searchbox").fill(words)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search/\?"))


def note(user: User, text: str) -> None:
    with acting_as(user):
        documents.append(user=user, day=None, text=text, now=NOW)
        documents.append(user=user, day=NOW.date(), text=text, now=NOW)
        records.create(user=user, content=text, type="x" * 100, tags=["y" * 100], now=NOW)


def test_a_result_from_deep_in_a_long_answer_opens_there(open_page, person):
    paragraphs = [f"Paragraph {number} of **many** says nothing of what is wanted here." for number in range(300)]
    paragraphs[200] = "The cello of her grandmother stands in the attic behind the blue trunk."
    turn = a_turn(person, "Tell me everything", "\n\n".join(paragraphs))
    a_turn(person, "And now?", "Nothing more.", conversation=turn.conversation)
    index.embed_pending()
    page = open_page("/search/?q=cello+grandmother&scope=sessions", user=person)
    page.locator("[data-result] a[href*='turn=']").click()
    expect(page.get_by_text("behind the blue trunk")).to_be_in_viewport()


def test_a_note_is_written_and_found_and_a_result_leads_to_its_turn(open_page, person):
    with acting_as(person):
        conversation = a_long_conversation(person, 60)
    turn = a_turn(person, "The cello goes to the workshop", "Which one?", conversation=conversation)
    page = open_page(user=person)
    page.get_by_role("link", name="Memory").click()
    page.get_by_label("Content").fill("- Plays the cello on Thursdays")
    expect(page.get_by_text("Not saved yet")).to_be_visible()
    page.keyboard.press("Control+s")
    expect(page.get_by_role("status").first).to_have_text("Saved.")
    index.embed_pending()
    page.get_by_role("heading", name="MEMORY.md").click()
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search chats")).to_be_focused()
    page.keyboard.type("Search page")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/")
    search_for(page, "cello")
    expect(page.locator("[data-result]", has_text="MEMORY.md").locator("mark")).to_have_text("cello")
    page.locator("[data-result]", has_text="Message").get_by_role("link").click()
    expect(page.locator(f"#turn-{turn.turn_number}")).to_have_class(re.compile("asked-for"))
    expect(page.locator(f"#turn-{turn.turn_number}")).to_be_in_viewport()


def test_another_place_is_searched_at_a_click_and_an_address_says_only_what_was_asked(open_page, person):
    note(person, "The cello is in tune")
    page = open_page("/search/", user=person)
    search_for(page, "cello")
    assert page.url.endswith("/search/?q=cello")
    page.get_by_role("radio", name="Daily logs").click()
    page.wait_for_url("**/search/?q=cello&scope=daily_log")
    expect(page.get_by_role("radio", name="Daily logs")).to_be_checked()
    expect(page.locator("[data-result]")).to_have_count(1)


def test_by_the_keys_alone_nothing_is_searched_before_it_is_asked_for(open_page, person):
    page = open_page("/search/?q=cello", user=person)
    page.get_by_role("radio", name="Everything").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Chats")).to_be_checked()
    assert page.url.endswith("/search/?q=cello")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=cello&scope=sessions")
    page.locator("body").press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_a_slash_in_a_text_is_a_slash(open_page, person):
    page = open_page("/memory/", user=person)
    page.get_by_label("Content").press("/")
    expect(page.get_by_label("Content")).to_have_value("/")
    assert page.url.endswith("/memory/")


def test_a_conflict_shows_both_and_saving_keeps_what_was_chosen(open_page, person):
    with acting_as(person):
        documents.create(user=person, day=None, content="First", now=NOW)
    page = open_page("/memory/", user=person)
    page.get_by_role("link", name="Edit").click()
    with acting_as(person):
        documents.append(user=person, day=None, text="An agent's", now=NOW)
    page.get_by_label("Content").fill("Mine")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_label("Your version, not saved yet")).to_have_value("Mine")
    expect(page.get_by_label("As it is now")).to_have_value("First\nAn agent's\n")
    page.get_by_label("Your version, not saved yet").fill("Mine and the agent's")
    page.get_by_role("button", name="Save my version").click()
    expect(page.locator(".note")).to_have_text("Mine and the agent's")


def test_everything_works_without_javascript(open_page, person):
    note(person, "The cello is in tune")
    page = open_page("/memory/logs/2026-03-01/", user=person, java_script_enabled=False)
    page.get_by_label("Add to it").fill("Bought rosin")
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".note")).to_contain_text("Bought rosin")
    page.get_by_role("link", name="Search").click()
    page.get_by_role("radio", name="Daily logs").click()
    search_for(page, "rosin")
    expect(page.locator("[data-result]")).to_have_count(1)
    page.locator("[data-result] a").click()
    expect(page.get_by_role("heading", name="Sunday, 1 March 2026")).to_be_visible()


def test_a_phone_needs_no_sideways_scrolling(open_page, person):
    a_turn(person, LONG, LONG)
    note(person, LONG)
    index.embed_pending()
    paths = [
        "/search/",
        "/search/?q=cello",
        "/search/?q=cello&order=day",
        f"/search/?q={'unbroken' * 30}&from={'x' * 80}",
        "/memory/",
        "/memory/logs/",
        "/memory/logs/2026-03-01/",
        "/memory/logs/2026-03-01/edit/",
        "/memory/logs/2026-03-01/delete/",
        "/memory/records/",
    ]
    page = open_page(user=person, **PHONE)
    for path in paths:
        page.goto(path)
        assert overflow(page) == 0, path
    assert overflow(open_page("/search/?q=cello", **PHONE)) == 0


@pytest.fixture
def a_better_order(settings, person):
    """A question whose answer the first order puts last and the second one first; gives the answer."""
    settings.RERANKER = {"BACKEND": "memory.backends.minilm.CrossEncoder"}
    settings.RERANK_SECONDS = 60
    for number in range(5):
        a_turn(person, f"Many people sing in flat {number} of the Lisbon house where I live", "How loud")
    answer = "Lisbon has a population of 545,796 inhabitants."
    a_turn(person, answer, "Good to know")
    index.embed_pending()
    return answer


QUESTION = "/search/?q=How+many+people+live+in+Lisbon%3F&scope=sessions"


def test_the_better_order_comes_by_itself_after_the_first_one(open_page, person, a_better_order):
    page = open_page(user=person)
    asked = []
    page.route(
        "**/*again=1*", lambda route: (asked.append(page.locator("[data-result]").all_inner_texts()), route.continue_())
    )
    page.goto(QUESTION)
    expect(page.locator("[data-result]").first).to_contain_text(a_better_order)
    assert a_better_order not in asked[0][0]
    assert sorted(page.locator("[data-result]").all_inner_texts()) == sorted(asked[0])
    expect(page.get_by_role("button", name="Show the better order")).to_be_hidden()
    assert "again" not in page.url


def test_nothing_moves_under_the_pointer_the_better_order_waits_for_a_click(open_page, person, a_better_order):
    page = open_page(user=person)

    def point_at_the_list_first(route):
        page.locator("[data-result]").first.hover()
        route.continue_()

    page.route("**/*again=1*", point_at_the_list_first)
    page.goto(QUESTION)
    button = page.get_by_role("button", name="Show the better order")
    expect(button).to_be_visible()
    expect(page.locator("[data-result]").first).not_to_contain_text(a_better_order)
    button.click()
    expect(page.locator("[data-result]").first).to_contain_text(a_better_order)
    expect(page.locator("[data-result] a").first).to_be_focused()
    expect(button).to_be_hidden()


def test_the_first_order_stands_if_the_better_one_cannot_be_had(open_page, person, a_better_order):
    page = open_page(user=person)
    page.route("**/*again=1*", lambda route: route.abort())
    page.goto(QUESTION)
    expect(page.locator("[data-result]")).to_have_count(6)
    expect(page.locator("[data-result]").first).not_to_contain_text(a_better_order)
