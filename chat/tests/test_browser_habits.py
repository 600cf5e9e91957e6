"""What people expect of a page that they live in: their colours, their phone's keys, long pastes, a page when offline."""

import json
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import staticfiles_storage
from playwright.sync_api import Page, expect

from intake.attachments.services import bytes_of
from intake.chats.tree import conversation_path
from intake.models import Attachment, Turn
from intake.tests.factories import a_turn

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
LONG = "A line of a log\n" * 400
PASTE = """([input, text]) => {
  const data = new DataTransfer();
  data.setData("text/plain", text);
  input.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
}"""


def paste(page: Page, text: str) -> None:
    field = page.get_by_label("Message", exact=True)
    page.evaluate(PASTE, [field.element_handle(), text])


def paper(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def choose_theme(page: Page, theme: str) -> None:
    page.locator(".person-button").click()
    choice = page.locator(f"[data-theme-choice={theme}]")
    choice.click()
    expect(choice).to_have_attribute("aria-checked", "true")
    page.keyboard.press("Escape")


def test_a_visitors_button_goes_through_the_colours(open_page):
    page = open_page(color_scheme="light")
    as_system = paper(page)
    button = page.locator("[data-theme-button]")
    button.click()
    assert paper(page) != as_system
    button.click()
    button.click()
    assert paper(page) == as_system
    assert not page.locator("html").get_attribute("data-theme")


@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_colours_one_chose_are_there_before_any_script_and_win_over_the_system(open_page, person, system):
    page = open_page(user=person, color_scheme=system)
    as_system = paper(page)
    other = "dark" if system == "light" else "light"
    choose_theme(page, other)
    chosen = paper(page)
    assert chosen != as_system
    page.goto("/search/")
    assert paper(page) == chosen
    # A page in which nothing ran has them, too.
    cookies = page.context.cookies()
    still = page.context.browser.new_context(java_script_enabled=False, color_scheme=system)
    still.add_cookies(cookies)
    unscripted = still.new_page()
    unscripted.goto(page.url)
    assert unscripted.locator("html").get_attribute("data-theme") == other
    still.close()
    choose_theme(page, "system")
    assert paper(page) == as_system
    assert not page.locator("html").get_attribute("data-theme")


def test_a_cookie_that_is_no_theme_is_none(open_page, person):
    page = open_page(user=person)
    page.context.add_cookies([{"name": "theme", "value": '"onload=alert(1)', "url": page.url}])
    page.reload()
    assert page.locator("html").get_attribute("data-theme") is None


def test_on_a_phone_enter_begins_a_line_and_the_button_sends(open_page, person):
    page = open_page(user=person, **PHONE)
    page.get_by_label("Message", exact=True).fill("One")
    page.get_by_label("Message", exact=True).press("Enter")
    page.keyboard.type("Two")
    expect(page.locator(".turn")).to_have_count(0)
    assert page.get_by_label("Message", exact=True).get_attribute("enterkeyhint") == "enter"
    page.get_by_role("button", name="Send").tap()
    expect(page.locator(".said")).to_have_text("One\nTwo")


def test_the_last_words_stay_in_view_when_a_phones_keyboard_opens_and_closes(open_page, person):
    conversation = a_turn(person, "First").conversation
    for number in range(12):
        last = a_turn(person, f"Number {number}", "Some words.\n\n" * 4, conversation=conversation)
    page = open_page(conversation_path(conversation.pk), user=person, **PHONE)
    words = page.locator(f"#turn-{last.turn_number} .prose p").last
    expect(words).to_be_in_viewport()
    page.get_by_label("Message", exact=True).tap()
    # As `interactive-widget=resizes-content` has it: what is left is the page's.
    page.set_viewport_size({"width": 390, "height": 460})
    expect(page.get_by_label("Message", exact=True)).to_be_in_viewport()
    expect(words).to_be_in_viewport()
    page.set_viewport_size(PHONE["viewport"])
    expect(words).to_be_in_viewport()


def test_a_long_paste_becomes_a_file_and_is_sent_whole(open_page, person):
    page = open_page(user=person)
    page.get_by_label("Message", exact=True).fill("What is wrong here?")
    paste(page, LONG)
    expect(page.get_by_label("Message", exact=True)).to_have_value("What is wrong here?")
    expect(page.locator("[data-attached] li")).to_contain_text("Pasted text.txt6,400 characters, 401 lines")
    expect(page.locator("[data-attached] progress")).to_be_hidden()
    page.reload()
    # The draft keeps both.
    expect(page.get_by_label("Message", exact=True)).to_have_value("What is wrong here?")
    expect(page.locator("[data-attached] li")).to_contain_text("Pasted text.txt")
    page.get_by_label("Message", exact=True).press("Enter")
    page.wait_for_url("**/c/*/")
    assert Turn.objects.get().user_message == "What is wrong here?"
    stored = Attachment.objects.get()
    assert (stored.kind, bytes_of(stored).decode()) == ("pasted", LONG)
    expect(page.locator("[data-attached]")).to_be_hidden()
    page.reload()
    page.get_by_text("Read it here").click()
    expect(page.locator(".file-text pre")).to_have_text(LONG)


def test_what_was_said_at_length_is_folded_where_it_is_read(open_page, person):
    turn = a_turn(person, LONG)
    page = open_page(conversation_path(turn.conversation_id), user=person)
    expect(page.locator(".said")).to_have_class("said folded")
    page.get_by_role("button", name="Show all 6,").click()
    expect(page.locator(".said")).to_have_class("said")


def test_a_pasted_file_can_be_taken_out_or_put_into_the_text(open_page, person):
    page = open_page(user=person)
    paste(page, LONG)
    page.get_by_role("button", name="Remove Pasted text.txt").click()
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    paste(page, LONG)
    page.get_by_role("button", name="Put into the message").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value(LONG)
    paste(page, "x" * 4000)
    expect(page.locator("[data-attached] li")).to_have_count(0)


def test_a_draft_survives_a_reload_and_logging_in(open_page, person):
    page = open_page()
    page.get_by_label("Message", exact=True).fill("Half a thought\nand another")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Half a thought\nand another")
    page.get_by_role("link", name="Log in").click()
    page.get_by_label("Email").fill(person.email)
    page.get_by_label("Password", exact=True).fill("password")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Half a thought\nand another")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Half a thought\nand another")


def test_without_a_connection_a_page_says_so(open_page, person):
    page = open_page(user=person)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.context.set_offline(True)
    page.goto("/memory/")
    expect(page.get_by_role("heading", name="No connection")).to_be_visible()
    assert page.locator(".card").evaluate("card => getComputedStyle(card).borderRadius") == "18px"
    page.context.set_offline(False)
    page.get_by_role("link", name="Try again").click()
    expect(page.get_by_role("heading", name="Who I am")).to_be_visible()
    # Nothing of the person's is kept for it.
    kept = page.evaluate(
        "caches.keys().then((names) => Promise.all(names.map((name) => caches.open(name).then((cache) => cache.keys()))))"
        ".then((all) => all.flat().map((request) => new URL(request.url).pathname))"
    )
    assert all(path == "/offline/" or path.startswith("/static/") for path in kept)


def test_the_manifest_names_icons_that_are_there():
    manifest = json.loads(Path(finders.find("intake/manifest.json")).read_text())
    # From the folder of static files, so that it is right below the path of PUBLIC_URL too.
    assert (manifest["start_url"], manifest["display"]) == ("../../", "standalone")
    for icon in manifest["icons"]:
        assert finders.find(f"intake/{icon['src']}"), icon
    assert staticfiles_storage.url("intake/manifest.json").startswith("/static/intake/manifest.")


@pytest.mark.parametrize("is_staff", [False, True])
def test_an_operators_advice_is_for_staff(person, log_in, is_staff):
    type(person).objects.update(is_staff=is_staff)
    log_in(person).events("Hello there")
    assert ("/staff/models/" in Turn.objects.get().assistant_message) == is_staff
    assert "Without a model I only quote what you wrote." in Turn.objects.get().assistant_message


def test_a_visitors_first_minute_speaks_of_no_setting(open_page):
    page = open_page()
    page.get_by_label("Message", exact=True).fill("Hello there")
    page.keyboard.press("Enter")
    expect(page.locator(".turn")).to_have_attribute("data-status", "complete")
    assert "LLM_" not in page.content()
    expect(page.locator(".prose")).to_contain_text("Without a model I only quote what you wrote.")


def test_a_registration_that_is_refused_says_why_in_words(open_page, person):
    page = open_page("/register/")
    page.get_by_label("Email").fill(person.email)
    page.get_by_label("Password", exact=True).fill("12345")
    page.get_by_role("button", name="Register").click()
    errors = page.locator(".field-error").all_text_contents()
    assert "There is an account with this email already" in errors[0]
    assert "too short" in errors[1]
    assert not any("[" in error or "<" in error for error in errors)
    expect(page.get_by_label("Email")).to_have_value(person.email)


def test_the_chat_is_open_on_a_phone_with_nothing_beside_the_screen(open_page, person):
    turn = a_turn(person, LONG, "Noted.")
    page = open_page(conversation_path(turn.conversation_id), user=person, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
