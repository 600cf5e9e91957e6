"""What a person keeps, in a real browser: a message is remembered and taken back; records are ticked and replaced."""

import pytest
from playwright.sync_api import Page, expect

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_turn
from memory import documents, records
from memory.models import MemoryRecord
from testing.accessibility import bring_axe, look_at

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 700}, "has_touch": True}


@pytest.fixture
def turn(person):
    return a_turn(person, "Which wood is the worktop?", "The worktop is **oak**, and the shelf is pine.")


def open_turn(open_page, person, turn, **options) -> Page:
    return open_page(f"/c/{turn.conversation_id}/", user=person, **options)


def kept_by(person) -> list[str]:
    with acting_as(person):
        return [record.content for record in records.list_records(user=person).rows]


def remember(page: Page, name: str) -> None:
    page.get_by_role("button", name="More", exact=True).last.click()
    page.get_by_role("menuitem", name=name).click()
    expect(page.get_by_role("link", name="Kept in your memory")).to_be_visible()


@pytest.mark.parametrize("look", [{}, PHONE], ids=["desktop", "phone"])
def test_an_answer_is_remembered_in_two_clicks_and_taken_back(open_page, person, turn, look):
    page = open_turn(open_page, person, turn, **look)
    remember(page, "Remember this answer")
    assert kept_by(person) == [turn.assistant_message]
    with page.expect_response(lambda response: response.request.method == "PATCH"):
        page.get_by_label("Kind").select_option("decision")
    with acting_as(person):
        (record,) = records.list_records(user=person).rows
    assert (record.type, record.source_conversation, record.source_turn) == ("decision", turn.conversation_id, 1)
    page.locator(".kept").get_by_role("button", name="Undo").click()
    expect(page.locator(".kept")).to_have_text("Not kept")
    assert kept_by(person) == []


def test_a_selection_is_remembered_by_keyboard_and_linked_both_ways(open_page, person, turn):
    page = open_turn(open_page, person, turn)
    page.locator(".turn .prose strong").dblclick()
    bar = page.get_by_role("group", name="The selected text")
    expect(bar.get_by_role("button")).to_have_text(["Quote", "Remember"])
    for _ in range(4):
        page.keyboard.press("Tab")
    expect(bar.get_by_role("button", name="Remember")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Kept in your memory")).to_be_focused()
    expect(bar).to_be_hidden()
    assert kept_by(person) == ["oak"]
    page.reload()
    page.get_by_role("link", name="Kept in your memory").click()
    page.get_by_role("link", name="From a chat").click()
    expect(page.get_by_text("Which wood is the worktop?").last).to_be_visible()


@pytest.mark.parametrize("look", [{}, PHONE], ids=["desktop", "phone"])
def test_a_selection_is_quoted_below_what_is_being_written(open_page, person, turn, look):
    page = open_turn(open_page, person, turn, **look)
    field = page.get_by_label("Message", exact=True)
    field.fill("And this?")
    page.locator(".turn .prose p").click(click_count=3)
    bar = page.get_by_role("group", name="The selected text")
    below = page.locator(".turn .prose").bounding_box()
    expect(bar).to_be_visible()
    assert bar.bounding_box()["y"] >= below["y"] + below["height"]
    bar.get_by_role("button", name="Quote").click()
    expect(field).to_have_value("And this?\n\n> The worktop is oak, and the shelf is pine.\n\n")
    expect(field).to_be_focused()
    page.locator(".said").click(click_count=3)
    expect(bar).to_be_visible()
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()


def test_my_message_is_remembered(open_page, person, turn):
    page = open_turn(open_page, person, turn)
    remember(page, "Remember my message")
    assert kept_by(person) == [turn.user_message]


def test_a_todo_is_ticked_and_a_record_replaced_and_brought_back(open_page, person):
    with acting_as(person):
        records.create(user=person, content="The worktop is oak", type="fact", now=NOW)
        records.create(user=person, content="Oil the worktop", type="todo", now=NOW)
    page = open_page("/memory/records/", user=person)
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("button", name="Done")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("link", name="The worktop is oak").click()
    page.get_by_role("link", name="Replace this record").click()
    page.get_by_label("Note").fill("The worktop is walnut")
    page.keyboard.press("Control+Enter")
    page.get_by_role("link", name="an earlier one").click()
    expect(page.locator("del")).to_have_text("The worktop is oak")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("del")).to_have_count(0)
    assert MemoryRecord.objects.filter(replaces__isnull=False).count() == 0


@pytest.mark.parametrize("path", ["/memory/records/?replaced=1", "/memory/", "/memory/logs/"])
def test_the_rooms_of_the_memory_are_accessible_and_fit_a_phone(open_page, person, path):
    with acting_as(person):
        old = records.create(user=person, content="The worktop is oak " + "x" * 200, type="fact", now=NOW)
        facts = {"replaces": old.id}
        records.create(user=person, content="The worktop is walnut", type="fact", now=NOW, facts=facts)
        records.create(user=person, content="Oil the worktop", type="todo", tags=["kitchen"], now=NOW)
        documents.append(user=person, day=NOW.date(), text="Bought oil for the worktop", now=NOW)
    page = open_page(user=person, **PHONE)
    bring_axe(page)
    page.goto(f"{page.url.rstrip('/')}{path}")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert look_at(page) == {}
