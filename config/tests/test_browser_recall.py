"""What the whole is for, in a real browser: what was said in one chat is found in another, and the link leads there."""

import re

import pytest
from playwright.sync_api import Page, expect

from intake.models import Conversation
from memory import index

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def say(page: Page, message: str) -> None:
    expect(page.get_by_label("Message")).to_be_focused()
    page.get_by_label("Message").fill(message)
    page.keyboard.press("Enter")
    expect(page.locator(".turn").last).to_have_attribute("data-status", "complete")


def test_a_second_chat_finds_what_was_said_in_the_first_and_links_to_it(open_page, person):
    page = open_page(user=person)
    say(page, "The dinner on Friday will be risotto")
    first = Conversation.objects.get()
    index.embed_pending()
    page.get_by_role("link", name="New chat").first.click()
    say(page, "What was the dinner on Friday?")
    page.get_by_text("Searched your chats and notes").click()
    chats, notes = page.locator(".step").all()
    expect(chats.locator(".step-what")).to_have_text("Searched your chats for “What was the dinner on Friday?”")
    expect(notes.locator(".step-what")).to_have_text("Searched your notes for “What was the dinner on Friday?”")
    expect(chats.locator(".step-tool")).to_contain_text("search_chat_history")
    expect(notes.locator(".step-tool")).to_have_text("search_history · max_results: 3 · scope: memory")
    chats.locator("summary").click()
    found = page.locator(".step-summary a, .prose a")
    assert found.count() >= 2
    for link in found.all():
        assert link.get_attribute("href").startswith(f"/c/{first.pk}/?turn=1")
    found.first.click()
    page.wait_for_url(re.compile(f"/c/{first.pk}/"))
    expect(page.locator("#turn-1")).to_have_class(re.compile("asked-for"))
    expect(page.locator("#turn-1 .said")).to_have_text("The dinner on Friday will be risotto")


def test_what_a_visitor_said_is_found_once_they_have_registered(open_page):
    page = open_page()
    say(page, "My cat is called Miso")
    page.get_by_role("link", name="Register").click()
    page.get_by_label("Email").fill("ana@example.com")
    page.get_by_label("Password", exact=True).fill("correct horse battery")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_role("status").first).to_contain_text("yours now")
    expect(page.locator(".said")).to_have_text("My cat is called Miso")
    index.embed_pending()
    page.get_by_role("link", name="New chat").first.click()
    say(page, "What is my cat called?")
    expect(page.locator(".prose")).to_contain_text("My cat is called Miso")
