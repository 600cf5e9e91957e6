"""The card of a call that waits, in a real browser: answered, corrected, refused, and gone on from on this page."""

import json

import pytest
from playwright.sync_api import expect

from chat.tests.test_browser_chat_tools import answered, say
from chat.tests.test_consent import ISSUE, others  # noqa: F401 - a fixture
from intake.models import Turn
from testing.model_server import CallTool, CallTools, Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def test_a_call_is_corrected_and_allowed_on_its_card(open_page, person, language_model, others):  # noqa: F811
    language_model(ISSUE, Say(("It is made.",)))
    page = open_page(user=person)
    say(page, "The door is broken")
    turn = page.locator(".turn").last
    expect(turn).to_have_attribute("data-status", "waiting")
    expect(turn.locator('[data-part="mark"]')).to_have_text("Waits for you")
    card = turn.get_by_role("group", name="May create_issue of tracker be called?")
    expect(card).to_contain_text(others.address)
    words = card.get_by_label("What is sent")
    assert json.loads(words.input_value()) == {"title": "Broken door"}
    words.fill("{broken")
    card.get_by_role("button", name="Once").click()
    expect(card).to_contain_text("This is no JSON")
    page.reload()
    words.fill('{"title": "Broken window"}')
    card.get_by_role("button", name="Once").click()
    answered(page)
    expect(turn.locator(".prose")).to_have_text("It is made.")
    expect(turn.locator(".step")).to_have_count(1)
    expect(turn.locator(".step-what")).to_have_text("Called create_issue of tracker")
    assert others.calls == [("create_issue", "Broken window")]


def test_two_calls_are_answered_one_after_the_other(open_page, person, language_model, others):  # noqa: F811
    language_model(CallTools((ISSUE, CallTool("tracker_wipe", {}))), Say(("One of them.",)))
    page = open_page(user=person)
    say(page, "The door is broken")
    cards = page.locator("[data-approval]")
    expect(cards).to_have_count(2)
    expect(cards.last.get_by_role("button", name="Always for this tool at this server")).to_have_count(0)
    cards.last.get_by_label("Why not, for the model").fill("Keep it.")
    cards.last.get_by_role("button", name="No").click()
    expect(cards).to_have_count(1)
    cards.first.get_by_role("button", name="Always for this tool at this server").click()
    answered(page)
    assert others.calls == [("create_issue", "Broken door")]
    expect(page.locator(".step.failed .step-brief")).to_have_text("You did not allow it.")


def test_allowed_calls_elsewhere_stay_in_view_each_by_its_name(open_page, person, language_model, others):  # noqa: F811
    language_model(CallTools((ISSUE, CallTool("tracker_look_up", {"query": "door"}))), Say(("Both.",)))
    page = open_page(user=person)
    say(page, "The door is broken")
    for _ in range(2):
        page.get_by_role("button", name="Once").first.click()
    answered(page)
    expect(page.locator(".step-what:visible")).to_have_text(
        ["Called create_issue of tracker", "Called look_up of tracker"]
    )
    expect(page.get_by_text("Searched your chats and notes")).to_be_hidden()


def test_another_message_closes_what_waits(open_page, person, language_model, others):  # noqa: F811
    language_model(ISSUE, Say(("Fine.",)))
    page = open_page(user=person)
    say(page, "The door is broken")
    # The composer is free once the turn says that it waits.
    expect(page.locator(".turn")).to_have_attribute("data-status", "waiting")
    say(page, "Never mind")
    answered(page)
    expect(page.locator("[data-approval]")).to_have_count(0)
    page.reload()
    expect(page.locator(".step-brief")).to_have_text("It was not called, because nobody answered.")
    assert Turn.objects.earliest("pk").status == "interrupted" and others.calls == []
