"""Versions in a real browser: answering again, another wording, the rest of an answer, a branch, deleting from here."""

import re

import pytest
from playwright.sync_api import Page, expect

from chat.tests.test_browser_chat import answered, last_turn, say
from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def press(page: Page, name: str, *, turn=None) -> None:
    (turn or last_turn(page)).get_by_role("button", name=name).click()


def open_chat(open_page, person, *answers: str) -> Page:
    """A chat with an exchange for each answer."""
    conversation = None
    for number, answer in enumerate(answers, 1):
        conversation = a_turn(person, f"Message {number}", answer, conversation=conversation).conversation
    return open_page(f"/c/{conversation.pk}/", user=person)


def answers_shown(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(".turn .prose").all_text_contents()]


def test_answering_again_shows_another_version_and_the_arrows_lead_back_and_forth(open_page, person, language_model):
    language_model(Say(("Seven.",)))
    page = open_chat(open_page, person, "Six.")
    press(page, "Answer again")
    answered(page)
    expect(last_turn(page).locator(".versions")).to_have_text("2/2")
    page.get_by_role("link", name="Version before").click()
    expect(page.locator(".turn .prose")).to_have_text("Six.")
    expect(last_turn(page).locator(".versions")).to_have_text("1/2")
    expect(page.get_by_role("link", name="Version after")).to_be_focused()
    page.reload()
    assert answers_shown(page) == ["Six."]
    page.keyboard.press("Tab")
    page.get_by_role("link", name="Version after").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".turn .prose")).to_have_text("Seven.")
    assert Conversation.objects.get().current_number == 2


def test_what_follows_a_version_comes_and_goes_with_it(open_page, person, language_model):
    language_model(Say(("Elsewhere.",)), Say(("Further.",)))
    page = open_chat(open_page, person, "One.", "Two.", "Three.")
    press(page, "Answer again", turn=page.locator(".turn").nth(1))
    answered(page)
    assert answers_shown(page) == ["One.", "Elsewhere."]
    say(page, "Go on")
    expect(page.locator(".turn")).to_have_count(3)
    answered(page)
    page.get_by_role("link", name="Version before").click()
    expect(page.locator(".turn").last.locator(".prose")).to_have_text("Three.")
    assert answers_shown(page) == ["One.", "Two.", "Three."]
    assert Turn.objects.get(turn_number=5).parent_number == 4


def test_a_message_is_edited_in_its_place_and_escape_leaves_it_as_it_was(open_page, person, language_model):
    language_model(Say(("Three better.",)))
    page = open_chat(open_page, person, "One.", "Two.")
    page.get_by_label("Message", exact=True).press("ArrowUp")
    field = last_turn(page).get_by_label("Your message")
    expect(field).to_be_focused()
    expect(field).to_have_value("Message 2")
    field.fill("Something else")
    page.keyboard.press("Escape")
    expect(last_turn(page).locator(".said")).to_have_text("Message 2")
    expect(last_turn(page).get_by_role("button", name="Edit what you said")).to_be_focused()
    page.keyboard.press("Enter")
    last_turn(page).get_by_label("Your message").fill("Message 2, better")
    page.keyboard.press("Enter")
    answered(page)
    expect(last_turn(page).locator(".said")).to_have_text("Message 2, better")
    expect(last_turn(page).locator(".versions")).to_have_text("2/2")
    turn = Turn.objects.get(turn_number=3)
    assert (turn.parent_number, turn.user_message, turn.assistant_message) == (1, "Message 2, better", "Three better.")


def test_an_answer_that_was_cut_says_so_and_continues_in_its_place(open_page, person, language_model):
    language_model(Say(("One, two, ",), finish_reason="length"), Say(("three.",)))
    page = open_page(user=person)
    say(page, "Count")
    answered(page)
    expect(
        page.get_by_text("The answer reached the model\N{RIGHT SINGLE QUOTATION MARK}s length limit.")
    ).to_be_visible()
    page.reload()
    press(page, "Continue")
    expect(page.locator(".turn .prose")).to_have_text("One, two, three.")
    answered(page)
    expect(page.get_by_role("button", name="Continue")).to_be_hidden()
    assert page.locator(".turn").count() == 1
    about = page.get_by_role("menuitem", name=re.compile("^About this answer"))
    press(page, "More")
    expect(about).to_have_accessible_name(re.compile(r"scripted · 200 tokens in, 40 out · [\d.]+ s · stop"))
    page.reload()
    press(page, "More")
    expect(about).to_have_accessible_name(re.compile(r"scripted · 200 tokens in, 40 out · [\d.]+ s · stop"))


def test_a_branch_shows_what_it_shares_and_goes_on_by_itself(open_page, person, language_model):
    model = language_model(Say(("Another way.",)))
    page = open_chat(open_page, person, "One.", "Two.")
    press(page, "More", turn=page.locator(".turn").first)
    page.get_by_role("menuitem", name="Go on from here in a new chat").click()
    expect(page.locator("[data-branch-note]")).to_have_text("Branched from here")
    assert answers_shown(page) == ["One."]
    say(page, "Another question")
    answered(page)
    assert [message["content"] for message in model.requests[0]["messages"][1:]] == [
        "Message 1",
        "One.",
        "Another question",
    ]
    page.reload()
    assert answers_shown(page) == ["One.", "Another way."]
    page.get_by_role("link", name="Branched from here").click()
    expect(page.locator(".turn")).to_have_count(2)
    Conversation.objects.get(branched_from=None).delete()
    page.go_back()
    page.reload()
    expect(page.locator("[data-branch-note]")).to_contain_text("has been deleted")
    assert answers_shown(page) == ["Another way."]


def test_deleting_from_here_says_how_much_it_is_and_takes_exactly_that(open_page, person):
    page = open_chat(open_page, person, "One.", "Two.", "Three.")
    press(page, "More", turn=page.locator(".turn").nth(1))
    page.get_by_role("menuitem", name="Delete this turn").click()
    dialog = page.get_by_role("dialog", name="Delete this message?")
    expect(dialog).to_contain_text("Message 2")
    expect(dialog).to_contain_text("this turn and 1 more")
    dialog.get_by_role("button", name="Delete all 2 turns from here on").click()
    expect(page.get_by_text("2 turns are deleted.")).to_be_visible()
    assert answers_shown(page) == ["One."]


def test_a_turn_is_deleted_in_a_dialog_that_can_be_left_by_escape(open_page, person):
    page = open_chat(open_page, person, "One.", "Two.")
    address = page.url
    press(page, "More")
    page.get_by_role("menuitem", name="Delete this turn").click()
    dialog = page.get_by_role("dialog", name="Delete this message?")
    expect(dialog.get_by_role("button", name="Keep")).to_be_focused()
    expect(dialog.get_by_role("button", name="from here on")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(last_turn(page).get_by_role("button", name="More")).to_be_focused()
    assert answers_shown(page) == ["One.", "Two."]
    page.keyboard.press("Enter")
    page.get_by_role("menuitem", name="Delete this turn").click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("The message and its answer are deleted.")).to_be_visible()
    assert answers_shown(page) == ["One."]
    assert page.url == address


def test_on_a_phone_with_the_chats_closed_the_dialog_is_there_too(open_page, person):
    turn = a_turn(person, "Only one")
    path = f"/c/{turn.conversation_id}/"
    page = open_page(path, user=person, viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    press(page, "More")
    page.get_by_role("menuitem", name="Delete this turn").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("The message and its answer are deleted.")).to_be_visible()
    assert not Conversation.objects.exists()


def test_a_link_to_a_version_opens_the_path_on_which_it_lies_and_what_is_said_there_goes_on_there(
    open_page, person, language_model
):
    language_model(Say(("Noted.",)))
    first = a_turn(person, "First")
    for number in (2, 3, 4):
        a_turn(person, f"Second, {number}", f"Answer {number}", conversation=first.conversation, parent=1)
    page = open_page(f"/c/{first.conversation_id}/?turn=3#turn-3", user=person)
    expect(page.locator("#turn-3 .prose")).to_have_text("Answer 3")
    expect(page.locator("#turn-3 .versions")).to_have_text("2/3")
    assert Conversation.objects.get().current_number == 4
    say(page, "Go on")
    answered(page)
    assert Turn.objects.get(turn_number=5).parent_number == 3


def test_a_visitor_answers_again_and_goes_back_and_forth_too(open_page, language_model):
    language_model(Say(("Six.",)), Say(("Seven.",)), Say(("Noted.",)))
    page = open_page()
    say(page, "How many?")
    answered(page)
    press(page, "More")
    expect(page.get_by_role("menuitem", name="Delete this turn")).to_be_visible()
    expect(page.get_by_role("menuitem", name="Go on from here in a new chat")).to_be_hidden()
    page.keyboard.press("Escape")
    press(page, "Answer again")
    answered(page)
    page.get_by_role("link", name="Version before").click()
    expect(page.locator(".turn .prose")).to_have_text("Six.")
    say(page, "Go on")
    expect(page.locator(".turn")).to_have_count(2)
    answered(page)
    assert Turn.objects.get(turn_number=3).parent_number == 1
