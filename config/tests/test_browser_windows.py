"""What a page says of a model's window: a line where the sent part begins, and ways out where it was too long."""

import pytest
from playwright.sync_api import expect

from chat.tests.test_browser_chat import answered, last_turn, say
from config.tests.test_chat_models import entry
from intake.models import Turn
from intake.tests.factories import a_turn
from testing.model_server import Refuse, Say, ScriptedModel
from testing.serving import serving

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

OLLAMA = {"/api/ps": {"models": [{"name": "scripted", "context_length": 4_096}]}}
MENDS = "Load it with a longer context of at least 16,384 tokens."


@pytest.fixture
def small_model(settings):
    """And a larger one at another server."""
    small, large = ScriptedModel(others=OLLAMA), ScriptedModel(names=["large"])
    with serving(small.application) as small_at, serving(large.application) as large_at:
        settings.LLM_MODEL, settings.LLM_BASE_URL, settings.CHAT_TITLES = "scripted", f"{small_at}/v1", False
        settings.LLM_MODELS = {"large": {**entry(f"{large_at}/v1", model="large"), "CONTEXT_TOKENS": "100000"}}
        yield small, large


def a_long_chat(person, turns=30, times=12):
    """`times`: how often each answer says the same."""
    conversation = None
    for number in range(1, turns + 1):
        said = "we sailed on past the islands and saw seals "
        conversation = a_turn(person, f"Day {number}", said * times, conversation=conversation).conversation
    return conversation


def test_a_line_says_where_the_sent_part_begins_now_and_after_a_reload(open_page, person, small_model):
    small, large = small_model
    small.follow(Say(("Seals.",)))
    # So long that the sent part begins within the turns that a page shows first.
    page = open_page(f"/c/{a_long_chat(person, times=36).pk}/", user=person)
    say(page, "What did we see?")
    answered(page)
    line = page.locator("[data-not-sent-line]")
    used = Turn.objects.get(turn_number=31).usage
    assert used["not_sent"] + used["sent"] == 30
    expect(line).to_contain_text(f"{used['not_sent']} earlier messages are not sent to this model")
    following = page.locator("[data-not-sent-line] + .turn")
    expect(following).to_have_attribute("data-number", str(used["not_sent"] + 1))
    expect(page.locator("[data-window-note]")).to_contain_text(MENDS)
    page.reload()
    expect(following).to_have_attribute("data-number", str(used["not_sent"] + 1))
    line.get_by_role("button", name="Choose another model").click()
    expect(page.get_by_label("Model", exact=True)).to_be_focused()
    page.keyboard.press("Escape")
    page.get_by_label("Model", exact=True).select_option("large")
    expect(page.locator("[data-window-note]")).to_be_hidden()
    large.follow(Say(("Everything.",)))
    say(page, "And now?")
    answered(page)
    expect(line).to_have_count(0)
    assert len(large.requests[0]["messages"]) == 1 + 2 * 31 + 1


def test_a_conversation_that_was_too_long_is_sent_again_by_half_or_to_another_model(open_page, person, small_model):
    small, large = small_model
    refused = Refuse(400, message="the request exceeds the available context size")
    small.follow(refused, Say(("By half.",)), refused)
    page = open_page(f"/c/{a_long_chat(person, 10).pk}/", user=person)
    say(page, "And now?")
    expect(last_turn(page).locator(".trouble")).to_contain_text("too small here")
    expect(last_turn(page).get_by_role("button", name="Retry")).to_be_hidden()
    last_turn(page).get_by_role("button", name="Send only the newest part").click()
    answered(page)
    expect(last_turn(page).locator(".prose")).to_have_text("By half.")
    expect(page.locator("[data-not-sent-line]")).to_be_visible()
    assert len(small.requests[1]["messages"]) < len(small.requests[0]["messages"])
    say(page, "And then?")
    expect(last_turn(page).locator(".trouble")).to_be_visible()
    # The line moves above, and the page still follows what is below.
    expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()
    page.reload()
    last_turn(page).get_by_role("button", name="Choose another model").click()
    page.keyboard.press("Escape")
    page.get_by_label("Model", exact=True).select_option("large")
    large.follow(Say(("At large.",)))
    last_turn(page).get_by_role("button", name="Retry").click()
    answered(page)
    expect(last_turn(page).locator(".prose")).to_have_text("At large.")


def test_a_message_that_is_too_long_says_so_and_offers_another_model(open_page, person, small_model):
    page = open_page("/", user=person)
    page.get_by_label("Message", exact=True).fill("a lighthouse " * 2_000)
    page.keyboard.press("Enter")
    trouble = last_turn(page).locator(".trouble")
    expect(trouble).to_contain_text("This model's window (4,096 tokens) is too small here.")
    expect(last_turn(page).get_by_role("button", name="Send only the newest part")).to_be_hidden()
    expect(last_turn(page).get_by_role("button", name="Choose another model")).to_be_visible()
    assert small_model[0].requests == []
