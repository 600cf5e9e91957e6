"""The way through a long chat in a real browser: the map at the edge, finding a turn, going to a day."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from intake.chats.tree import conversation_path
from intake.models import Turn
from intake.tests.factories import NOW, a_long_conversation

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

WIDE = {"viewport": {"width": 1400, "height": 800}}


@pytest.fixture
def chat(person):
    """Three hundred turns, one a day; in the fortieth answer something that stands nowhere else."""
    conversation = a_long_conversation(person, 300)
    turns = list(Turn.objects.order_by("turn_number"))
    for turn in turns:
        turn.said_at = NOW + timedelta(days=turn.turn_number - 1)
        if turn.turn_number == 40:
            turn.assistant_message = "So much for it. " * 10 + "The aubergine was the mistake."
    Turn.objects.bulk_update(turns, ["said_at", "assistant_message"])
    return conversation


def test_the_map_shows_ones_questions_and_leads_to_them(open_page, person, chat):
    page = open_page(conversation_path(chat.pk), user=person, **WIDE)
    marks = page.locator("[data-map] a")
    # Of three hundred every second.
    expect(marks).to_have_count(150)
    expect(page.locator("[data-map] .here")).to_have_count(1)
    expect(marks.nth(20)).to_have_attribute("title", re.compile("Message 41"))
    marks.nth(20).click()
    page.wait_for_url("**/?turn=41#turn-41")
    expect(page.locator("#turn-41")).to_be_in_viewport()
    expect(page.locator("[data-map] .here")).to_have_attribute("data-number", re.compile("^(39|41)$"))


def test_a_word_is_found_wherever_in_the_chat_it_stands(open_page, person, chat):
    page = open_page(conversation_path(chat.pk), user=person)
    page.get_by_role("link", name="Find in this chat").click()
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("aubergine")
    expect(page.locator("[data-outline-count]")).to_have_text("1 turn with this")
    expect(page.locator("[data-outline-entries] a")).to_contain_text("The aubergine was the mistake.")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?turn=40#turn-40")
    expect(page.locator("#turn-40")).to_be_in_viewport()


def test_one_goes_to_the_first_turn_and_to_a_day(open_page, person, chat):
    page = open_page(conversation_path(chat.pk), user=person)
    page.get_by_role("link", name="Find in this chat").click()
    page.get_by_role("link", name="First turn").click()
    expect(page.locator("#turn-1")).to_be_in_viewport()
    page.get_by_role("link", name="Find in this chat").click()
    page.get_by_label("Go to a day").fill("2026-05-01")
    page.get_by_role("button", name="Go", exact=True).click()
    page.wait_for_url("**/?turn=62#turn-62")
    expect(page.locator("#turn-62")).to_be_in_viewport()


def test_without_a_script_the_outline_is_a_page(open_page, person, chat):
    page = open_page(conversation_path(chat.pk), user=person, java_script_enabled=False)
    page.get_by_role("link", name="Find in this chat").click()
    page.get_by_label("Find in this chat").fill("AUBERGINE mistake")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name="aubergine").click()
    assert page.url.endswith("?turn=40#turn-40")


def test_a_chat_is_read_upwards_without_a_click(open_page, person, chat):
    page = open_page(conversation_path(chat.pk), user=person)
    expect(page.locator("#turn-300")).to_be_in_viewport()
    page.mouse.move(600, 300)
    for _ in range(40):
        page.mouse.wheel(0, -3000)
        page.wait_for_timeout(50)
        if page.locator("#turn-221").count():
            break
    expect(page.locator("#turn-221")).to_be_attached()
    numbers = page.locator(".turn").evaluate_all("turns => turns.map(turn => Number(turn.dataset.number))")
    assert numbers == list(range(numbers[0], 301))
