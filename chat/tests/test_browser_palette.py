"""Finding things while one types: the palette under Ctrl or ⌘ K, by keys alone."""

import re

import pytest
from playwright.sync_api import Page, expect

from intake.chats.tree import conversation_path
from intake.tests.factories import a_turn
from memory import documents, index
from memory.tests.rows import NOW

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True}


@pytest.fixture
def things(person):
    for number in range(35):
        a_turn(person, f"Something else {number}")
    a_turn(person, "Music", "You play the cello at every dinner.")
    a_turn(person, "Plan a dinner for six")
    documents.append(user=person, day=None, text="Likes <b>risotto</b>, dislikes aubergines", now=NOW)
    index.embed_pending()


def palette(page: Page):
    return page.get_by_role("combobox", name="Search chats, notes, pages and commands")


def options(page: Page):
    return page.get_by_role("option")


def active(page: Page) -> str:
    """The option that the field says is the active one."""
    return page.evaluate(
        "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))?.innerText ?? ''"
    )


def test_a_chat_is_found_and_opened_by_keys_alone(open_page, person, things):
    page = open_page(user=person)
    page.keyboard.press("Control+k")
    expect(palette(page)).to_be_focused()
    page.keyboard.type("dinner")
    expect(options(page).first).to_contain_text("Plan a dinner for six")
    assert "Plan a dinner for six" in active(page)
    expect(page.get_by_role("group", name="In your chats and notes")).to_contain_text("cello at every dinner")
    page.keyboard.press("ArrowUp")
    assert "with filters" in active(page)
    page.keyboard.press("ArrowDown")
    assert "Plan a dinner for six" in active(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*/")
    expect(page.locator("[data-title]")).to_have_text("Plan a dinner for six")


def test_notes_are_found_with_their_matches_marked_and_their_markup_as_text(open_page, person, things):
    page = open_page("/search/", user=person)
    page.keyboard.press("Meta+k")
    palette(page).fill("risotto")
    note = options(page).filter(has_text="What always holds")
    expect(note.locator("mark")).to_have_text("risotto")
    expect(note).to_contain_text("Likes <b>risotto</b>")
    note.click()
    page.wait_for_url("**/memory/")


def test_pages_and_commands_are_a_few_letters_away(open_page, person):
    page = open_page(user=person)
    page.keyboard.press("/")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.press("Control+k")
    expect(palette(page)).to_be_focused()
    page.keyboard.type("logs")
    expect(options(page).first).to_contain_text("Journal")
    page.keyboard.press("Enter")
    page.wait_for_url("**/memory/logs/")
    page.keyboard.press("/")
    expect(palette(page)).to_be_focused()
    page.keyboard.type("dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(palette(page)).to_have_count(0)


def choose(page: Page, words: str, title: str) -> None:
    page.keyboard.press("Control+k")
    expect(palette(page)).to_be_focused()
    page.keyboard.type(words)
    expect(options(page).first).to_contain_text(title)
    page.keyboard.press("Enter")


def test_the_palette_leads_to_the_next_and_previous_and_a_temporary_chat(open_page, person):
    below, here, above = (a_turn(person, name).conversation_id for name in ("Below", "Here", "Above"))
    page = open_page(f"/c/{here}/", user=person)
    choose(page, "next chat", "Next chat")
    page.wait_for_url(f"**/c/{below}/")
    page.keyboard.press("Control+k")
    page.keyboard.type("next chat")
    expect(options(page).get_by_text("Next chat", exact=True)).to_have_count(0)
    page.keyboard.press("Escape")
    choose(page, "previous chat", "Previous chat")
    page.wait_for_url(f"**/c/{here}/")
    choose(page, "previous chat", "Previous chat")
    page.wait_for_url(f"**/c/{above}/")
    choose(page, "temporary", "New temporary chat")
    page.wait_for_url("**/?temporary=1")
    page.keyboard.press("Control+k")
    page.keyboard.type("archive this")
    expect(options(page).get_by_text("Archive this chat", exact=True)).to_have_count(0)


def test_the_palette_archives_this_chat_and_undo_brings_it_back_also_without_a_list(open_page, person):
    chat = a_turn(person, "Here").conversation
    page = open_page(f"/c/{chat.pk}/", user=person, viewport={"width": 1280, "height": 800})
    for has_list in (True, False):
        if not has_list:
            page.keyboard.press("Control+b")
        choose(page, "archive this", "Archive this chat")
        status = page.locator("[data-sidebar-status]")
        expect(status).to_contain_text("Archived")
        expect(status).to_be_in_viewport()
        chat.refresh_from_db()
        assert chat.archived_at is not None
        status.get_by_role("button", name="Undo").click()
        expect(page.locator("[data-all-chats] [data-conversation-id]")).to_have_count(1)
        chat.refresh_from_db()
        assert chat.archived_at is None


def test_commands_of_the_open_chat_have_a_heading_of_their_own(open_page, person):
    page = open_page(conversation_path(a_turn(person, "The lighthouse").conversation_id), user=person)
    page.keyboard.press("Control+k")
    groups = page.locator(".palette-list [role=group]")
    expect(groups).to_have_count(3)
    assert groups.evaluate_all("(groups) => groups.map((each) => each.ariaLabel)") == ["Chats", "This chat", "Go to"]
    expect(groups.nth(1)).to_contain_text("Copy the last answer")
    expect(groups.nth(2)).not_to_contain_text("Copy the last answer")
    page.keyboard.type("dark")
    expect(page.locator(".palette [role=status]")).to_have_text(re.compile(r"^\d suggestions?$"))


def test_the_palette_copies_the_last_answer(open_page, person):
    first = a_turn(person, "One", "First answer")
    a_turn(person, "Two", "A **second** answer", conversation=first.conversation)
    may_copy = {"permissions": ["clipboard-read", "clipboard-write"]}
    page = open_page(f"/c/{first.conversation_id}/", user=person, **may_copy)
    choose(page, "copy last", "Copy the last answer")
    expect(page.locator("[data-said]")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "A **second** answer"


def test_a_question_mark_lists_the_keys_but_not_in_a_text(open_page, person):
    page = open_page("/memory/edit/", user=person)
    page.get_by_label("Content").press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("heading", name="What always holds").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_escape_closes_the_palette_and_gives_the_focus_back(open_page, person):
    page = open_page(user=person)
    page.get_by_label("Message").fill("Half a thought")
    page.keyboard.press("Control+k")
    expect(palette(page)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Message")).to_be_focused()
    expect(page.get_by_label("Message")).to_have_value("Half a thought")


def test_on_a_phone_the_palette_is_a_sheet(open_page, person, things):
    page = open_page(user=person, **PHONE)
    page.get_by_role("button", name="Your chats").click()
    page.get_by_role("link", name="Search").click()
    palette(page).fill("dinner")
    expect(options(page).first).to_contain_text("Plan a dinner for six")
    assert page.locator("dialog.palette").bounding_box()["width"] == 390
    options(page).first.click()
    page.wait_for_url("**/c/*/")


def test_a_visitor_finds_pages_and_their_own_chats(open_page):
    page = open_page()
    page.keyboard.press("Control+k")
    expect(palette(page)).to_be_focused()
    page.keyboard.type("regis")
    expect(options(page).first).to_contain_text("Register")
    page.keyboard.press("Enter")
    page.wait_for_url("**/register/")


def test_commands_have_an_icon_and_a_key_and_the_key_does_the_same(open_page, person, language_model):
    below, here = (a_turn(person, name, "An answer.").conversation for name in ("Below", "Here"))
    page = open_page(f"/c/{here.pk}/", user=person)
    page.keyboard.press("Control+k")
    page.keyboard.type("last answer")
    option = options(page).first
    expect(option.locator("kbd")).to_have_text(["Ctrl", "Shift", "C"])
    expect(option.locator(".icon")).to_be_visible()
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Control+Shift+KeyC")
    expect(page.locator('[data-action="copy"][data-said]')).to_be_visible()
    page.keyboard.press("Alt+ArrowDown")
    page.wait_for_url(f"**/c/{below.pk}/")
    page.keyboard.press("Alt+ArrowUp")
    page.wait_for_url(f"**/c/{here.pk}/")
    # With a draft the arrows belong to the text.
    page.get_by_label("Message", exact=True).fill("A draft\nof two lines")
    page.keyboard.press("Alt+ArrowDown")
    page.keyboard.press("Control+Shift+KeyY")
    page.wait_for_url("**/?temporary=1")
    page.keyboard.press("Control+Shift+KeyO")
    page.wait_for_url("**/")
    page.goto(f"/c/{here.pk}/")
    page.keyboard.press("Control+Shift+KeyA")
    expect(page.locator("[data-sidebar-status]")).to_contain_text("Archived")


def test_the_list_of_keys_names_every_command(open_page, person):
    page = open_page(user=person)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    listed = page.get_by_role("dialog")
    for title in ("New chat", "New temporary chat", "Copy the last answer", "Switch the model", "Archive this chat"):
        expect(listed.get_by_text(title, exact=True)).to_be_visible()
    shown = page.evaluate(
        """async () => {
          const { COMMANDS, keysOf } = await import("/static/intake/shortcuts_list.js");
          return COMMANDS.map((command) => keysOf(command).join(" "));
        }"""
    )
    keys = " ".join(listed.locator("dd").all_inner_texts())
    assert [key for key in shown if key.replace("Alt ↑", "↑") not in keys] == []
