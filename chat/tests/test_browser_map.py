"""The map in a real browser: thousands of points, pointed at, walked through by keys, and searched."""

import re

import pytest
from playwright.sync_api import expect

from intake.tests.factories import a_turn
from memory.tests.overview.drawn import draw
from memory.tests.overview.histories import a_history

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

COUNT = 2_000
# How often it was drawn while it is dragged and zoomed for some frames, and how long each frame and each drawing took.
FRAMES = """async () => {
  const canvas = document.querySelector("[data-canvas]");
  const stage = document.querySelector("[data-stage]");
  const { x, y } = canvas.getBoundingClientRect();
  canvas.focus();
  const [frames, drawings] = [[], []];
  let last = performance.now();
  for (let k = 0; k < 12; k++) {
    const where = { bubbles: true, cancelable: true, clientX: x + 300, clientY: y + 200 };
    canvas.dispatchEvent(new WheelEvent("wheel", { ...where, deltaY: k < 6 ? -40 : 40 }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    frames.push((performance.now() - last) / 2);
    drawings.push(Number(stage.dataset.drawMs));
    last = performance.now();
  }
  return { frames, drawings };
}"""


def test_thousands_of_points_are_walked_through_and_opened(open_page, person, record_property):
    a_history(person, COUNT)
    assert draw(person).placed == COUNT
    page = open_page("/memory/map/", user=person)
    stage, canvas, card = (page.locator(f"[data-{name}]") for name in ("stage", "canvas", "card"))
    expect(stage).to_have_attribute("data-draw-ms", re.compile(r"\d"))
    measured = page.evaluate(FRAMES)
    for name, times in measured.items():
        record_property(name, sorted(times)[len(times) // 2])
    canvas.press("0")
    canvas.press("ArrowRight")
    expect(card.locator("[data-snippet]")).to_contain_text("What about the")
    first = card.inner_text()
    canvas.press("ArrowRight")
    expect(card).not_to_have_text(first)
    expect(page.locator("[data-said]")).to_contain_text("What about the")
    canvas.press("Escape")
    expect(card).to_be_hidden()
    page.locator("[data-go]").first.click()
    expect(canvas).to_be_focused()
    canvas.press("ArrowUp")
    expect(card.locator("[data-open]")).to_be_visible()
    canvas.press("Enter")
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
    nearer = page.get_by_role("button", name="Zoom in")
    # Nine are enough from anywhere.
    nearer.evaluate("(button) => { for (let k = 0; k < 9; k++) button.click(); }")
    expect(nearer).to_be_disabled()
    expect(page.get_by_role("button", name="Zoom out")).to_be_enabled()
