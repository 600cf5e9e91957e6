"""By keyboard alone: a first message, logging in, the palette, a search to its turn, a new name, a note."""

import re

import pytest
from playwright.sync_api import expect

from intake.models import Conversation
from intake.tests.factories import a_turn
from memory import index
from memory.models import MemoryRecord

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

HAS_FOCUS = "(element) => element === document.activeElement"
# Whether one sees where one is: by an outline of the element, or of what it stands in.
SHOWS_FOCUS = """() => {
  const focused = document.activeElement;
  const around = [focused, focused.parentElement, focused.parentElement.parentElement, focused.nextElementSibling];
  // The parts of a date are drawn by the browser.
  return focused.type === "date" || around.filter(Boolean).some((each) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(each);
    return outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
  });
}"""


def _wait_for_scripts(page):
    """What a page shows is there before the scripts that listen to its keys, and that move the focus at the beginning."""
    page.wait_for_load_state("load")


def go_to(page, target, *, key="Tab", within=80):
    """Presses the key until the target has the focus, if a page does not begin there; at each step one sees where one is."""
    expect(target).to_be_attached()
    _wait_for_scripts(page)
    for _ in range(within):
        if target.evaluate(HAS_FOCUS):
            return
        page.keyboard.press(key)
        if page.evaluate("document.activeElement === document.body"):
            continue
        assert page.evaluate(SHOWS_FOCUS), page.evaluate("document.activeElement.outerHTML.slice(0, 300)")
    raise AssertionError(f"{key} does not lead to {target}")


def choose(page, words, first):
    """In the palette, what these words find first."""
    _wait_for_scripts(page)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Search chats, notes, pages and commands")).to_be_focused()
    page.keyboard.type(words)
    expect(page.get_by_role("option").first).to_contain_text(first)
    page.keyboard.press("Enter")


def test_every_flow_goes_by_keyboard_alone(open_page, person):
    a_turn(person, "We plan a dinner for six", "Risotto, then pears.")
    another = a_turn(person, "Something else").conversation
    a_turn(person, "The lighthouse keeper plays the cello", conversation=another)
    index.embed_pending()
    page = open_page()
    message = page.get_by_label("Message", exact=True)
    keyboard = page.keyboard

    # The first message of a visitor.
    expect(message).to_be_focused()
    keyboard.type("What is the capital of France?")
    keyboard.press("Enter")
    expect(page.locator(".turn .said")).to_have_text("What is the capital of France?")
    expect(message).to_be_focused()

    # Logging in, to where one was.
    expect(page).to_have_url(re.compile("/c/"))
    go_to(page, page.get_by_role("link", name="Log in", exact=True), key="Shift+Tab")
    keyboard.press("Enter")
    go_to(page, page.get_by_label("Email"))
    keyboard.type(person.email)
    go_to(page, page.get_by_label("Password", exact=True))
    keyboard.type("password")
    keyboard.press("Enter")
    expect(page.locator(".turn .said")).to_have_text("What is the capital of France?")

    # The palette opens a chat.
    choose(page, "dinner", "We plan a dinner for six")
    expect(page.locator("[data-title]")).to_have_text("We plan a dinner for six")

    # A new name for it.
    go_to(page, page.locator("[data-chat-menu]"))
    keyboard.press("Enter")
    go_to(page, page.get_by_role("menuitem", name="Rename"), key="ArrowDown")
    keyboard.press("Enter")
    expect(page.get_by_label("Title of the chat")).to_be_focused()
    keyboard.press("Control+a")
    keyboard.type("The dinner")
    keyboard.press("Enter")
    expect(page.locator("[data-title]")).to_have_text("The dinner")
    expect(page.locator("[data-sidebar-status]")).to_contain_text("Renamed")
    assert Conversation.objects.for_user(person).filter(title="The dinner").exists()

    # A search, to the turn itself.
    choose(page, "search page", "Search page")
    expect(page.locator("[data-search-field]")).to_be_focused()
    keyboard.type("lighthouse keeper")
    keyboard.press("Enter")
    go_to(page, page.locator(".result a").first)
    keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"#turn-2$"))
    expect(page.locator("#turn-2")).to_be_in_viewport()
    expect(page.locator("#turn-2")).to_contain_text("The lighthouse keeper plays the cello")

    # A note.
    choose(page, "records", "Kept")
    go_to(page, page.get_by_label("Note", exact=True))
    keyboard.type("We take the oak worktop.")
    keyboard.press("Control+s")
    expect(page.locator(".kept-rows")).to_contain_text("We take the oak worktop.")
    assert MemoryRecord.objects.for_user(person).get().content == "We take the oak worktop."
