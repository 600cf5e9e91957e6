"""The map in a real browser: thousands of points, pointed at, opened and searched, with names beside them."""

import re

import pytest
from playwright.sync_api import expect

from intake.tests.factories import a_turn
from memory.tests.overview.drawn import draw
from memory.tests.overview.histories import a_history

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

COUNT = 2_000


def test_thousands_of_points_are_drawn_and_each_says_what_it_is_and_opens(open_page, person, record_property):
    a_history(person, COUNT)
    assert draw(person).placed == COUNT
    page = open_page("/memory/map/", user=person)
    stage, canvas, card = (page.locator(f"[data-{name}]") for name in ("stage", "canvas", "card"))
    expect(stage).to_have_attribute("data-draw-ms", re.compile(r"\d"))
    record_property("drawing", stage.get_attribute("data-draw-ms"))
    # The text that is the farthest to the left lies at the edge.
    box = canvas.bounding_box()
    for level in range(24, int(box["height"]) - 24, 24):
        canvas.hover(position={"x": 30, "y": level})
        if page.locator("[data-ring]").is_visible():
            break
    expect(card.locator("[data-snippet]")).to_contain_text("What about the")
    page.mouse.move(0, 0)
    expect(card).to_be_hidden()
    canvas.click(position={"x": 30, "y": level})
    page.mouse.move(0, 0)
    card.locator("[data-open]").click()
    page.wait_for_url(re.compile("/c/.*turn="))


SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 300);
})"""


def test_a_search_on_the_map_goes_to_what_it_finds(open_page, person):
    for number in range(6):
        a_turn(person, f"How do I water the tomatoes in bed {number} of the garden?", "Water the soil.")
        a_turn(person, f"Play suite {number} for the cello by Bach", "The strings need tuning before a concert.")
    draw(person)
    page = open_page("/memory/map/", user=person)
    stage, card, note = (page.locator(f"[data-{name}]") for name in ("stage", "card", "note"))
    expect(stage).to_have_attribute("data-draw-ms", re.compile(r"\d"))
    assert page.evaluate(SHIFTS) <= 0.02
    field = page.get_by_role("searchbox", name="Find on the map")
    field.fill("cello suite")
    field.press("Enter")
    expect(card).to_contain_text("cello")
    expect(note).to_contain_text(re.compile(r"\d+ of 12 shown"))
    first = card.inner_text()
    field.press("Enter")
    expect(card).not_to_have_text(first)
    field.fill("")
    expect(note).to_have_text("")
    expect(card).to_be_hidden()
    assert stage.get_attribute("data-covered") == "0", "A name lies on a point."
