"""The line under an answer in a real browser: what it was given of the memory, and what a press leaves out."""

import pytest
from playwright.sync_api import expect

from core.isolation.acting import acting_as
from intake.models import ChatPreferences
from intake.tests.factories import NOW
from memory import documents, index, records
from testing.model_server import CallTool, Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def test_the_sources_of_an_answer_unfold_are_cited_and_are_left_out(open_page, person, language_model):
    with acting_as(person):
        documents.append(user=person, day=None, text="- Tea, not coffee\n- Trains, not planes", now=NOW)
        kept = records.create(user=person, content="The worktop is oak, 40 mm thick", type="decision", now=NOW)
    index.embed_pending()
    language_model(
        CallTool("search_memory", {"query": "worktop"}), Say(("The worktop is **oak** [1], not beech [4].",))
    )
    page = open_page("/", user=person)
    page.get_by_label("Message").fill("What is the worktop?")
    page.get_by_label("Message").press("Enter")
    line = page.get_by_text("From your memory: 2")
    expect(line).to_be_visible()
    expect(page.get_by_role("link", name="[1]", exact=True)).to_have_attribute("href", f"/memory/records/{kept.id}/")
    expect(page.get_by_role("link", name="[4]", exact=True)).to_have_count(0)
    line.click()
    expect(page.get_by_role("link", name="The worktop is oak, 40 mm thick")).to_be_visible()
    page.get_by_text("2 lines").click()
    tea = page.locator("li.source", has_text="Tea, not coffee").last
    tea.get_by_role("button", name="Never again").click()
    expect(page.get_by_text("Left out. No agent and no chat gets it any more.")).to_be_visible()
    assert len(ChatPreferences.objects.get(user=person).left_out) == 1
