"""Search and notes in a real browser: what is written is found, a result leads to its turn, and the keys work."""

import re

import pytest
from playwright.sync_api import Page, expect

from core.isolation.acting import acting_as
from intake.models import User
from intake.tests.factories import NOW, a_long_conversation, a_turn
from memory import documents, index, records
from testing.accessibility import bring_axe, look_at

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 700}, "has_touch": True}
LONG = f"{'unbroken' * 90} cello {'word ' * 200}"


def overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def search_for(page: Page, words: str) -> None:
    page.get_by_role("searchbox").fill(words)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search/\?"))


def tab(page: Page, name: str):
    return page.get_by_role("navigation", name="Where to search").get_by_role("link", name=name)


def note(user: User, text: str) -> None:
    with acting_as(user):
        documents.append(user=user, day=None, text=text, now=NOW)
        documents.append(user=user, day=NOW.date(), text=text, now=NOW)
        records.create(user=user, content=text, type="x" * 100, tags=["y" * 100], now=NOW)


def notes(user: User) -> None:
    """One of each kind, none of which repeats another."""
    with acting_as(user):
        documents.append(user=user, day=None, text="Plays the cello on Thursdays", now=NOW)
        documents.append(user=user, day=NOW.date(), text="Bought new strings for a cello today", now=NOW)
        records.create(user=user, content="Grandmother's cello was built in Mirecourt", now=NOW)


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
    page.get_by_role("link", name="Write").last.click()
    page.get_by_label("Content").fill("- Plays the cello on Thursdays")
    expect(page.get_by_text("Not saved yet")).to_be_visible()
    page.keyboard.press("Control+s")
    expect(page.get_by_role("status").first).to_have_text("Saved.")
    index.embed_pending()
    page.get_by_role("heading", name="What always holds").click()
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Search chats")).to_be_focused()
    page.keyboard.type("Search page")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/")
    search_for(page, "cello")
    expect(page.locator("[data-result]", has_text="What always holds").locator("mark")).to_have_text("cello")
    page.locator("[data-result]", has_text="Message").get_by_role("link").click()
    expect(page.locator(f"#turn-{turn.turn_number}")).to_have_class(re.compile("asked-for"))
    expect(page.locator(f"#turn-{turn.turn_number}")).to_be_in_viewport()


def test_another_place_is_searched_at_a_click_and_an_address_says_only_what_was_asked(open_page, person):
    notes(person)
    page = open_page("/search/", user=person)
    search_for(page, "cello")
    assert page.url.endswith("/search/?q=cello")
    tab(page, "Daily logs").click()
    page.wait_for_url("**/search/?q=cello&scope=daily_log")
    expect(tab(page, "Daily logs")).to_have_attribute("aria-current", "true")
    expect(page.locator("[data-result]")).to_have_count(1)
    # What this search does not count is known from the one before.
    expect(tab(page, "Everything")).to_contain_text("3")
    expect(tab(page, "Notes")).to_contain_text("2")
    page.go_back()
    page.wait_for_url("**/search/?q=cello")
    expect(page.locator("[data-result]")).to_have_count(3)


def test_a_tab_and_the_dates_are_chosen_by_the_keys_alone(open_page, person):
    notes(person)
    page = open_page("/search/?q=cello", user=person)
    tab(page, "Everything").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=cello&scope=sessions")
    expect(tab(page, "Chats")).to_be_focused()
    dates = page.locator("[data-when] summary")
    dates.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Last year")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Last year")).to_be_hidden()
    expect(dates).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Last year").press("Enter")
    page.wait_for_url("**from=*")
    expect(dates).to_contain_text("Last year")
    page.get_by_role("link", name="Remove the dates").press("Enter")
    page.wait_for_url("**/search/?q=cello&scope=sessions")
    expect(dates).to_contain_text("Any time")
    page.locator("body").press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_results_come_while_one_types_and_the_address_follows(open_page, person):
    notes(person)
    page = open_page("/memory/", user=person)
    page.goto("/search/")
    page.get_by_role("searchbox").press_sequentially("cello")
    page.wait_for_url("**/search/?q=cello")
    expect(page.locator("[data-result]")).to_have_count(3)
    expect(page.get_by_role("searchbox")).to_be_focused()
    expect(page).to_have_title("cello · Search · Recollect")
    expect(page.locator("[data-search-status]")).to_have_text("3 results")
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("cello")
    expect(page.locator("[data-result]")).to_have_count(3)
    page.go_back()
    page.wait_for_url("**/memory/")


def test_a_slow_answer_to_fewer_letters_is_never_shown(open_page, person):
    notes(person)
    page = open_page("/search/", user=person)
    waiting = []

    def hold_the_first(route):
        if waiting:
            route.continue_()
        else:
            waiting.append(route)

    page.route(re.compile(r"/search/\?q="), hold_the_first)
    page.get_by_role("searchbox").fill("viola")
    expect(page.locator("[data-search-found]")).to_have_attribute("aria-busy", "true")
    page.get_by_role("searchbox").fill("cello")
    expect(page.locator("[data-result]")).to_have_count(3)
    assert len(waiting) == 1
    expect(page.locator("[data-search-found]")).not_to_have_attribute("aria-busy", "true")
    assert page.url.endswith("/search/?q=cello")


@pytest.mark.parametrize("refusal", ["429", "no connection"])
def test_results_of_an_earlier_search_say_so_until_one_is_answered(open_page, person, refusal):
    notes(person)
    page = open_page("/search/?q=cello", user=person)
    live = re.compile(r"/search/\?q=viola")
    page.route(live, lambda route: route.fulfill(status=429) if refusal == "429" else route.abort())
    notice = page.locator("[data-search-failed]")
    page.get_by_role("searchbox").fill("viola")
    expect(notice).to_be_visible()
    expect(page.locator("[data-search-status]")).to_contain_text("an earlier search")
    expect(page.locator("[data-result]")).to_have_count(3)
    assert page.url.endswith("/search/?q=cello")
    page.unroute(live)
    page.get_by_role("searchbox").fill("viola ")
    page.wait_for_url("**/search/?q=viola*")
    expect(notice).to_be_hidden()


def test_nothing_beside_the_results_moves_while_one_types(open_page, person):
    notes(person)
    page = open_page("/search/?q=cello", user=person)
    places = "() => [...document.querySelectorAll('.search-line, [data-tab], [data-when]')].map((each) => each.offsetLeft + ' ' + each.offsetTop)"
    before = page.evaluate(places)
    page.get_by_role("searchbox").fill("no such thing")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    assert page.evaluate(places) == before
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_role("heading", name="Find what you said")).to_be_visible()
    assert page.evaluate(places) == before
    assert page.url.endswith("/search/")


def test_a_day_is_chosen_in_the_menu_of_dates(open_page, person):
    notes(person)
    page = open_page("/search/?q=cello", user=person)
    page.locator("[data-when] summary").click()
    page.get_by_label("From").fill("2026-02-01")
    page.get_by_label("to", exact=True).fill("2026-02-28")
    page.get_by_role("button", name="Show these days").click()
    page.wait_for_url("**/search/?q=cello&from=2026-02-01&to=2026-02-28")
    expect(page.locator("[data-when] summary")).to_contain_text("February 2026")
    expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()


def test_the_tabs_and_the_open_menu_of_dates_are_accessible(open_page, person):
    notes(person)
    page = open_page(user=person)
    bring_axe(page)
    page.goto("/search/?q=cello&from=2026-02-05&to=2026-03-17")
    expect(page.locator("[data-result]")).to_have_count(3)
    page.locator("[data-when] summary").click()
    assert look_at(page) == {}


def test_a_slash_in_a_text_is_a_slash(open_page, person):
    page = open_page("/memory/edit/", user=person)
    page.get_by_label("Content").press("/")
    expect(page.get_by_label("Content")).to_have_value("/")
    assert page.url.endswith("/memory/edit/")


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
    tab(page, "Daily logs").click()
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


def test_what_is_kept_is_narrowed_while_one_types_and_offers_the_kinds_that_there_are(open_page, person):
    with acting_as(person):
        for content, kind in (("Oil the worktop", "todo"), ("The worktop is oak", "fact")):
            records.create(user=person, content=content, type=kind, now=NOW)
    page = open_page("/memory/records/", user=person)
    kinds = page.get_by_role("navigation", name="Kinds").get_by_role("link")
    expect(kinds).to_have_text(["To-dos", "Facts", "Files"])
    page.get_by_role("searchbox").press_sequentially("oak")
    expect(page.locator(".kept-rows li")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=oak"))
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.locator(".kept-rows .row-title").bounding_box()["width"] > 250
    page.get_by_role("searchbox").fill("zebra")
    expect(page.get_by_text("No record fits")).to_be_visible()
