"""Choosing a model, instructions and memory in the browser; folded reasoning; temporary chats."""

import re

import pytest
from playwright.sync_api import expect

from chat.tests.test_browser_chat import answered, last_turn, say
from config.tests.test_chat_models import entry, system_of
from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def two_models(language_model, settings):
    """Both at one scripted server; the name says who was asked."""

    def follow(*script):
        model = language_model(*script)
        settings.CHAT_TITLES = False
        settings.LLM_MODELS = {"slow-and-deep": entry(settings.LLM_BASE_URL, model="deep")}
        return model

    return follow


def test_a_chat_is_given_another_model_and_instructions_by_keyboard_and_keeps_them(open_page, person, two_models):
    model = two_models(Say(("One.",)), Say(("Two.",)), Say(("Three.",)))
    page = open_page(user=person)
    picker = page.get_by_label("Model", exact=True)
    picker.focus()
    page.keyboard.press("ArrowDown")
    expect(picker).to_have_value("slow-and-deep")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_label("Instructions").fill("Answer in Latin.")
    page.get_by_label("Temperature").press("ArrowRight")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    say(page, "Hello")
    answered(page)
    assert (model.requests[0]["model"], model.requests[0]["temperature"]) == ("deep", 1.1)
    assert "Answer in Latin." in system_of(model.requests[0])
    page.reload()
    expect(page.get_by_label("Model", exact=True)).to_have_value("slow-and-deep")
    with page.expect_response(re.compile("/api/v1/conversations/")) as saved:
        page.get_by_label("Model", exact=True).select_option("scripted")
    assert saved.value.ok
    page.locator("[data-choices-opener]").click()
    with page.expect_response(re.compile("/api/v1/conversations/")):
        page.get_by_label("Use my memory").uncheck()
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_text("Memory is off")).to_be_visible()
    last_turn(page).get_by_role("button", name="Answer again").click()
    expect(last_turn(page).locator(".prose")).to_have_text("Two.")
    answered(page)
    assert model.requests[1]["model"] == "scripted"
    assert "tools" not in model.requests[1]
    conversation = Conversation.objects.get()
    assert (conversation.model, conversation.uses_memory) == ("scripted", False)


def test_another_model_answers_again_and_is_the_chats_model_from_then_on(open_page, person, two_models):
    model = two_models(Say(("One.",)), Say(("Deeper.",)))
    page = open_page(user=person)
    say(page, "Hello")
    answered(page)
    last_turn(page).get_by_role("button", name="Other models").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menu", name="Answer again with")).to_be_visible()
    expect(page.get_by_role("menuitem")).to_have_text(["slow-and-deep"])
    expect(page.get_by_role("menuitem", name="slow-and-deep")).to_be_focused()
    page.keyboard.press("Enter")
    expect(last_turn(page).locator(".prose")).to_have_text("Deeper.")
    answered(page)
    expect(last_turn(page).locator(".versions")).to_have_text("2/2")
    assert [request["model"] for request in model.requests] == ["scripted", "deep"]
    expect(page.get_by_label("Model", exact=True)).to_have_value("slow-and-deep")
    assert Conversation.objects.get().model == "slow-and-deep"
    last_turn(page).get_by_role("button", name="Other models").click()
    expect(page.get_by_role("menuitem")).to_have_text(["scripted"])


def test_with_one_model_there_is_no_other_to_answer_again(open_page, person, language_model):
    language_model(Say(("One.",)))
    page = open_page(user=person)
    say(page, "Hello")
    answered(page)
    expect(last_turn(page).get_by_role("button", name="Answer again")).to_be_visible()
    expect(last_turn(page).get_by_role("button", name="Other models")).to_be_hidden()


def test_an_open_page_offers_a_model_that_came_later_once_it_is_looked_at_again(
    open_page, person, two_models, settings
):
    two_models()
    page = open_page(user=person)
    picker = page.get_by_label("Model", exact=True)
    picker.select_option("slow-and-deep")
    settings.LLM_MODELS = {"quick": entry(settings.LLM_BASE_URL, model="quick")}
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    # What was chosen stays, although it is offered no more.
    expect(picker.locator("option")).to_have_text(["scripted", "quick", "slow-and-deep"])
    expect(picker).to_have_value("slow-and-deep")


def test_what_a_model_thinks_is_folded_while_it_thinks_and_afterwards(open_page, person, two_models):
    two_models(Say(("Forty-", "two."), thoughts=("Six times ", "seven ", "is "), seconds_apart=0.5))
    page = open_page(user=person)
    say(page, "What is it?")
    reasoning = last_turn(page).locator(".reasoning")
    expect(reasoning.locator("summary")).to_have_text("Thinking…")
    expect(reasoning.locator(".reasoning-text")).to_be_hidden()
    answered(page)
    label = reasoning.locator("summary").text_content()
    assert re.fullmatch(r"Thought for [12] s", label)
    reasoning.locator("summary").click()
    expect(reasoning.locator(".reasoning-text")).to_have_text("Six times seven is ")
    expect(last_turn(page).locator(".prose")).to_have_text("Forty-two.")
    page.reload()
    expect(last_turn(page).locator(".reasoning summary")).to_have_text(label)


def test_a_temporary_chat_says_so_goes_when_it_is_left_and_can_be_kept(open_page, person, two_models):
    two_models(Say(("First.",)), Say(("Second.",)), Say(("Third.",)))
    kept = a_turn(person, "Something else")
    page = open_page(user=person)
    page.get_by_role("link", name="Temporary chat").click()
    expect(page.get_by_text("It is in no list, no search and no export")).to_be_visible()
    say(page, "A secret")
    answered(page)
    assert page.url.endswith("/?temporary=1")
    say(page, "And another")
    answered(page)
    expect(page.locator("[data-conversation-id]")).to_have_count(1)
    assert Turn.objects.filter(is_temporary=True).count() == 2
    page.goto(f"/c/{kept.conversation_id}/")
    page.wait_for_load_state("networkidle")
    page.goto("/?temporary=1")
    assert not Turn.objects.filter(is_temporary=True).exists()
    say(page, "To be kept")
    answered(page)
    page.get_by_role("button", name="Keep it").click()
    expect(page).to_have_url(re.compile("/c/"))
    expect(last_turn(page).locator(".said")).to_have_text("To be kept")
    expect(page.locator("[data-conversation-id]")).to_have_count(2)
    expect(page.get_by_text("It is in no list")).to_have_count(0)


def test_a_chat_that_has_begun_to_be_kept_offers_no_temporary_one(open_page, person, two_models):
    two_models(Say(("First.",)))
    page = open_page(user=person)
    temporary = page.locator("header.topbar").get_by_role("link", name="Temporary chat")
    expect(temporary).to_be_visible()
    say(page, "Hello")
    answered(page)
    expect(temporary).to_have_count(0)
