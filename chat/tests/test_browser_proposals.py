"""Proposals in a real browser: kept, edited, refused and undone by button and by key; one quiet line in the chat."""

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_turn
from memory import proposals
from memory.models import MemoryRecord, Proposal
from testing.accessibility import bring_axe, look_at

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

TEXTS = ("We take the oak worktop.", "Cats are grey at night.", "My sister lives in Rome.")


@pytest.fixture
def turn(person):
    person.proposes_since = timezone.now()
    person.save()
    turn = a_turn(person, " ".join(TEXTS))
    source = {"source_conversation": turn.conversation_id, "source_turn": 1, "type": "fact"}
    drafts = [source | {"content": text, "quote": text} for text in TEXTS]
    proposals.propose(user=person, drafts=drafts, now=NOW)
    return turn


def states() -> dict[str, str]:
    return dict(Proposal.objects.values_list("content", "state"))


def item(page: Page, text: str):
    return page.locator("[data-proposal]", has_text=text)


def decided(page: Page):
    return page.locator(".proposal-decided li")


def test_proposals_are_kept_edited_refused_and_undone_by_button(open_page, person, turn):
    page = open_page("/memory/proposals/", user=person)
    item(page, TEXTS[0]).get_by_role("button", name="Edit").click()
    field = item(page, TEXTS[0]).get_by_label("Note")
    expect(field).to_be_focused()
    field.fill("We take the oak worktop, 40 mm thick.")
    item(page, TEXTS[0]).get_by_role("button", name="Keep").click()
    expect(decided(page)).to_have_count(1)
    assert MemoryRecord.objects.get().content == "We take the oak worktop, 40 mm thick."
    item(page, TEXTS[1]).get_by_role("button", name="No", exact=True).click()
    expect(decided(page)).to_have_count(2)
    item(page, TEXTS[2]).get_by_role("button", name="Never about this").click()
    expect(decided(page)).to_have_count(3)
    assert states() == dict(zip(TEXTS, ("accepted", "rejected", "never"), strict=True))
    for left in (2, 1, 0):
        decided(page).first.get_by_role("button", name="Undo").click()
        expect(decided(page)).to_have_count(left)
    assert set(states().values()) == {"waiting"}
    assert not MemoryRecord.objects.exists()


def test_proposals_are_decided_by_keys_alone(open_page, person, turn):
    page = open_page(user=person)
    bring_axe(page)
    page.goto(f"{page.url.rstrip('/')}/memory/proposals/")
    page.keyboard.press("a")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="Keep", exact=True).first).to_be_focused()
    page.keyboard.press("e")
    page.keyboard.press("Control+a")
    page.keyboard.type("r n a")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Edit").first).to_be_focused()
    page.keyboard.press("a")
    expect(decided(page)).to_have_count(1)
    assert MemoryRecord.objects.get().content == "r n a"
    page.keyboard.press("n")
    expect(decided(page)).to_have_count(2)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("u")
    expect(decided(page)).to_have_count(1)
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+A")
    expect(page.locator(".proposal")).to_have_count(0)
    assert set(states().values()) == {"accepted"}
    assert look_at(page) == {}


def test_a_full_page_can_be_used_by_everybody_and_scrolls_only_down(open_page, person, turn):
    long = "Donaudampfschifffahrtsgesellschaftskapitän " * 20
    proposals.propose(user=person, drafts=[{"content": long, "type": "lesson", "project_id": "x" * 150}], now=NOW)
    with acting_as(person):
        (first, *_) = proposals.list_proposals(user=person).rows[1:]
        proposals.decide(user=person, proposal_id=first.id, state="never", now=NOW)
    page = open_page(user=person, has_touch=True)
    bring_axe(page)
    page.goto(f"{page.url.rstrip('/')}/memory/proposals/")
    page.get_by_role("button", name="Edit").first.click()
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    # In both colours, at a desk and on a phone.
    assert look_at(page) == {}


def test_a_chat_says_in_one_line_what_is_proposed_from_it(open_page, person, turn):
    page = open_page(f"/c/{turn.conversation_id}/", user=person)
    line = page.get_by_role("link", name="3 things to remember?")
    expect(line).to_be_visible()
    line.click()
    expect(page.locator(".proposal")).to_have_count(3)
    with acting_as(person):
        (first, *_) = proposals.list_proposals(user=person).rows
        proposals.decide(user=person, proposal_id=first.id, state="rejected", now=NOW)
    page.go_back()
    expect(page.get_by_role("link", name="2 things to remember?")).to_be_visible()


def test_without_scripts_the_forms_do_the_same(open_page, person, turn):
    page = open_page("/memory/proposals/", user=person, java_script_enabled=False)
    item(page, TEXTS[0]).get_by_role("button", name="Keep", exact=True).click()
    decided(page).get_by_role("button", name="Undo").click()
    expect(decided(page)).to_have_count(0)
    assert set(states().values()) == {"waiting"}
