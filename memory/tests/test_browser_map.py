"""The map in a real browser: 10,000 points, pointed at, walked through by keys, and narrowed."""

import re

import pytest
from playwright.sync_api import expect

from memory.tests.overview.drawn import draw
from memory.tests.overview.histories import a_history

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

COUNT = 10_000
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


def test_ten_thousand_points_are_walked_through_narrowed_and_opened(open_page, person, record_property):
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
    page.get_by_label("From", exact=True).press("End")
    expect(page.locator("[data-note]")).to_contain_text("of 10,000 shown")
    page.get_by_label("From", exact=True).press("Home")
    page.locator(".pills label", has_text="Chats").click()
    expect(page.locator("[data-note]")).to_have_text("0 of 10,000 shown")
    page.locator(".pills label", has_text="Chats").click()
    page.locator("[data-go]").first.click()
    expect(canvas).to_be_focused()
    canvas.press("ArrowUp")
    expect(card.locator("[data-open]")).to_be_visible()
    canvas.press("Enter")
    page.wait_for_url(re.compile("/c/.*turn="))
