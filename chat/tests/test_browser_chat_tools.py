"""The chat's tools in a real browser: what the model asks for is seen, led to, and taken back, also after a reload."""

import re
from datetime import UTC, date, datetime

import pytest
from playwright.sync_api import Locator, Page, expect

from intake.models import Turn
from intake.tests.factories import a_turn
from memory import documents, index
from memory.models import MemoryDocument, MemoryRecord
from testing.model_server import CallTool, CallTools, Hang, Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

DAY = date(2026, 2, 28)
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SAVE = CallTool("save_memory", {"content": "Ana is allergic\nto **nuts**", "type": "fact", "tags": ["food"]})
APPEND = CallTool("append_daily_log", {"text": "- Planned the dinner", "date": DAY.isoformat()})


def say(page: Page, message: str) -> None:
    page.get_by_label("Message").fill(message)
    page.keyboard.press("Enter")


def answered(page: Page) -> None:
    expect(page.locator(".turn").last).to_have_attribute("data-status", "complete")


def steps(page: Page) -> list[Locator]:
    return page.locator(".turn").last.locator(".step").all()


def test_three_rounds_with_a_corrected_call_and_a_saving_that_is_undone(open_page, person, language_model):
    earlier = a_turn(person, "The dinner on Friday will be risotto")
    index.embed_pending()
    language_model(
        CallTool("search_chat_history", {"query": "dinner", "limit": 50}),
        CallTool("search_chat_history", {"query": "dinner", "limit": 5}),
        SAVE,
        Say(("It will be risotto. ", "I noted the allergy.")),
    )
    page = open_page(user=person)
    say(page, "Ana is allergic to nuts. What was the dinner?")
    answered(page)
    wrong, right, saved = steps(page)

    expect(wrong).to_have_class(re.compile("failed"))
    expect(wrong.locator(".step-brief")).to_contain_text("limit: Input should be less than or equal to 20")
    expect(right).not_to_have_class(re.compile("failed"))
    expect(right.locator(".step-what")).to_have_text("Searched your chats for “dinner”")
    expect(right.locator(".step-tool")).to_have_text("search_chat_history · limit: 5")
    expect(right.locator(".step-brief")).to_have_text("Found 1 turn")
    expect(right.locator(".step-tool")).to_be_hidden()
    right.locator("summary").click()
    expect(right.locator(".step-tool")).to_be_visible()
    link = right.get_by_role("link", name="The dinner on Friday will be risotto")
    expect(link).to_have_attribute("href", f"/c/{earlier.conversation_id}/?turn=1#turn-1")

    expect(saved.locator(".step-tool")).to_have_text("save_memory · type: fact")
    expect(saved.locator(".step-summary")).to_have_text("Saved a fact, tagged food")
    expect(saved.locator("blockquote.step-text")).to_have_text("Ana is allergic\nto **nuts**")
    assert MemoryRecord.objects.for_user(person).get().content == "Ana is allergic\nto **nuts**"
    saved.get_by_role("button", name="Undo").click()
    expect(saved.get_by_text("Undone")).to_be_visible()
    expect(saved.get_by_role("button", name="Undo")).to_be_hidden()
    assert not MemoryRecord.objects.exists()

    page.reload()
    wrong, right, saved = steps(page)
    expect(wrong).to_have_class(re.compile("failed"))
    expect(right.locator(".step-brief")).to_have_text("Found 1 turn")
    right.locator("summary").click()
    expect(right.get_by_role("link")).to_have_count(1)
    expect(saved).to_have_class(re.compile("undone"))
    expect(saved.locator(".step-tool")).to_have_text("save_memory · type: fact")
    expect(saved.locator("blockquote.step-text")).to_have_text("Ana is allergic\nto **nuts**")
    expect(saved.get_by_text("Undone")).to_be_visible()
    expect(saved.get_by_role("button", name="Undo")).to_be_hidden()


def test_after_a_reload_an_addition_to_the_log_can_still_be_undone(open_page, person, language_model):
    documents.append(user=person, day=DAY, text="- Woke up", now=NOW)
    language_model(APPEND, Say(("Noted.",)))
    page = open_page(user=person)
    say(page, "Note in my log that I planned the dinner")
    answered(page)
    documents.append(user=person, day=DAY, text="- Slept", now=NOW)
    page.reload()
    (added,) = steps(page)
    expect(added.locator("blockquote.step-text")).to_have_text("- Planned the dinner")
    added.get_by_role("button", name="Undo").focus()
    page.keyboard.press("Enter")
    expect(added.get_by_text("Undone")).to_be_visible()
    expect(added.locator("blockquote.step-text")).to_be_focused()
    assert MemoryDocument.objects.for_user(person).get().content == "- Woke up\n- Slept\n"


def test_what_cannot_be_undone_any_more_says_why(open_page, person, language_model):
    language_model(APPEND, Say(("Noted.",)))
    page = open_page(user=person)
    say(page, "Save")
    answered(page)
    documents.replace(user=person, day=DAY, content="- All new\n", expected=None, now=NOW)
    (added,) = steps(page)
    added.get_by_role("button", name="Undo").click()
    expect(added.get_by_role("status")).to_contain_text("not in the document any more")
    expect(added.get_by_role("button", name="Undo")).to_be_enabled()
    page.context.set_offline(True)
    added.get_by_role("button", name="Undo").click()
    expect(added.get_by_role("status")).to_contain_text("No connection")
    assert MemoryDocument.objects.get().content == "- All new\n"


def test_a_saving_is_seen_as_it_happens_and_undone_once_the_answer_is_stopped(open_page, person, language_model):
    language_model(CallTools((SAVE, APPEND)), Hang())
    page = open_page(user=person)
    say(page, "Note both")
    expect(page.locator("blockquote.step-text")).to_have_count(2)
    record = steps(page)[0]
    expect(record.locator("blockquote.step-text")).to_contain_text("allergic")
    expect(record.get_by_role("button", name="Undo")).to_be_disabled()
    page.get_by_role("button", name="Stop").click()
    expect(record.get_by_role("button", name="Undo")).to_be_enabled()
    for _ in range(100):
        if Turn.objects.get().status == "interrupted":
            break
        page.wait_for_timeout(50)
    record.get_by_role("button", name="Undo").click()
    expect(record.get_by_text("Undone")).to_be_visible()
    assert not MemoryRecord.objects.exists()
    assert MemoryDocument.objects.exists()


def test_what_the_model_stores_is_shown_as_text(open_page, person, language_model):
    hostile = "<img src=x onerror=alert(1)> [x](https://evil.example) <script>alert(2)</script>"
    language_model(
        CallTool("save_memory", {"content": hostile, "type": hostile, "tags": ["[y](//evil.example)"]}), Say(("Done.",))
    )
    page = open_page(user=person)
    say(page, "Save it")
    answered(page)
    for _ in ("as it came", "as it is kept"):
        (saved,) = steps(page)
        expect(saved.locator("blockquote.step-text")).to_have_text(hostile)
        expect(saved.locator("a, img, script")).to_have_count(0)
        page.reload()
