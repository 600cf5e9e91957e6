"""A phone: the drawer follows the finger, the message stands above the keyboard, and other apps share with this one."""

import json
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from playwright.sync_api import CDPSession, Page, expect

from intake.chats.tree import conversation_path
from intake.models import Attachment, Conversation, User
from intake.tests.factories import a_turn
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 700}, "has_touch": True, "is_mobile": True}
WIDE = "```python\n" + "wide = 'x' * 100 + " * 20 + "\n```"


def swipe(page: Page, start: tuple[float, float], end: tuple[float, float], *, lifts: bool = True) -> CDPSession:
    """A finger, in steps, and slowly, so that the distance counts and not the speed."""
    devtools = page.context.new_cdp_session(page)
    (x, y), (to_x, to_y) = start, end
    devtools.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for step in range(1, 11):
        point = {"x": x + (to_x - x) * step / 10, "y": y + (to_y - y) * step / 10}
        devtools.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
        page.wait_for_timeout(60)
    if lifts:
        devtools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    return devtools


def is_open(page: Page) -> bool:
    return page.locator("[data-sidebar]").evaluate("(sidebar) => sidebar.classList.contains('open')")


def left_of_drawer(page: Page) -> float:
    return page.locator("[data-sidebar]").evaluate("(sidebar) => sidebar.getBoundingClientRect().left")


def a_phone(open_page, person, answer="Hello.\n\n" * 30 + WIDE):
    turn = a_turn(person, "Hello", answer)
    return open_page(conversation_path(turn.conversation_id), user=person, **PHONE)


def test_a_swipe_opens_the_drawer_with_the_finger_and_one_back_closes_it(open_page, person):
    page = a_phone(open_page, person)
    finger = swipe(page, (60, 200), (160, 205), lifts=False)
    assert -260 < left_of_drawer(page) < -100
    # What the system takes over, as its own gesture, is no swipe.
    finger.send("Input.dispatchTouchEvent", {"type": "touchCancel", "touchPoints": []})
    assert not is_open(page)
    swipe(page, (60, 200), (260, 205))
    expect(page.locator("[data-sidebar]")).to_have_class("sidebar open")
    expect(page.locator("[data-backdrop]")).to_be_visible()
    swipe(page, (250, 300), (60, 305))
    expect(page.locator("[data-sidebar]")).to_have_class("sidebar")
    assert page.locator("[data-room]").evaluate("(room) => room.inert") is False


def test_a_short_swipe_and_one_up_or_down_leave_the_drawer_closed(open_page, person):
    page = a_phone(open_page, person)
    page.evaluate("scrollTo(0, 300)")
    swipe(page, (60, 200), (120, 205))
    assert not is_open(page)
    swipe(page, (60, 500), (130, 200))
    assert not is_open(page)
    assert page.evaluate("scrollY") > 400
    swipe(page, (260, 200), (60, 205))
    assert not is_open(page)


def test_code_scrolls_sideways_under_the_finger_and_no_drawer_opens(open_page, person):
    page = a_phone(open_page, person)
    code = page.locator(".code-frame pre")
    code.scroll_into_view_if_needed()
    code.evaluate("(pre) => (pre.scrollLeft = 300)")
    box = code.bounding_box()
    middle = box["y"] + box["height"] / 2
    swipe(page, (80, middle), (280, middle))
    assert not is_open(page)
    assert code.evaluate("(pre) => pre.scrollLeft") < 200


def test_where_text_goes_leftwards_so_does_the_swipe(open_page, person):
    page = a_phone(open_page, person)
    page.evaluate("document.documentElement.dir = 'rtl'")
    swipe(page, (100, 200), (300, 205))
    assert not is_open(page)
    swipe(page, (300, 200), (100, 205))
    expect(page.locator("[data-sidebar]")).to_have_class("sidebar open")
    page.wait_for_timeout(400)
    assert page.locator("[data-sidebar]").evaluate("(bar) => Math.round(bar.getBoundingClientRect().right)") == 360


def test_on_a_desktop_a_drag_is_no_swipe(open_page, person):
    page = open_page(user=person, viewport={"width": 1280, "height": 800})
    page.mouse.move(500, 400)
    page.mouse.down()
    page.mouse.move(900, 400, steps=5)
    page.mouse.up()
    assert not is_open(page)


KEYBOARD = """Object.defineProperty(window, "visualViewport", { value: Object.assign(new EventTarget(), {
  height: innerHeight, width: innerWidth, offsetTop: 0, scale: 1 }) });"""


def test_a_keyboard_that_lies_over_the_page_lifts_the_message_above_it(open_page, person):
    page = a_phone(open_page, person)
    page.add_init_script(KEYBOARD)
    page.reload()
    bottom = "Math.round(document.querySelector('[data-composer]').getBoundingClientRect().bottom)"
    before = page.evaluate(bottom)
    page.evaluate("visualViewport.height = innerHeight - 280; visualViewport.dispatchEvent(new Event('resize'))")
    assert page.evaluate(bottom) == before - 280
    page.evaluate("visualViewport.height = innerHeight; visualViewport.dispatchEvent(new Event('resize'))")
    assert page.evaluate(bottom) == before


SHARE = """(address) => {
  const form = Object.assign(document.createElement("form"), { method: "post", enctype: "multipart/form-data", action: address });
  for (const [name, value] of Object.entries({ title: "A page", text: "Read this", url: "https://example.com/" })) {
    form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  }
  const files = Object.assign(document.createElement("input"), { type: "file", name: "files" });
  const chosen = new DataTransfer();
  chosen.items.add(new File(["Ask about it"], "notes.txt", { type: "text/plain" }));
  files.files = chosen.files;
  form.append(files);
  document.body.append(form);
  form.submit();
}"""


def with_a_worker(open_page, person, **options):
    page = open_page(user=person, is_alone=True, **options)
    page.evaluate("navigator.serviceWorker.register('/worker.js').then(() => navigator.serviceWorker.ready)")
    page.reload()
    assert page.evaluate("Boolean(navigator.serviceWorker.controller)")
    return page


def test_what_is_shared_waits_on_the_device_and_goes_into_the_message(open_page, person):
    page = with_a_worker(open_page, person)
    message = page.get_by_label("Message", exact=True)
    message.fill("My draft")
    page.evaluate(SHARE, "/share/")
    page.wait_for_url("**/")
    expect(message).to_have_value("My draft\n\nA page\nRead this\nhttps://example.com/")
    # In a browser's tab, where another site could have sent it, a file is not uploaded unasked.
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("notes.txt")
    assert (Attachment.objects.count(), Conversation.objects.count()) == (0, 0)
    dialog.get_by_role("button", name="Attach", exact=True).click()
    expect(page.locator("[data-attached] li")).to_contain_text("notes.txt")
    expect(page.locator("[data-attached] progress:visible")).to_have_count(0)
    assert Attachment.objects.get().name == "notes.txt"
    assert page.evaluate("caches.has('recollect-shared')") is False
    assert page.url.endswith("/")
    assert Conversation.objects.count() == 0


def test_shared_files_that_are_refused_are_not_uploaded(open_page, person):
    page = with_a_worker(open_page, person)
    page.evaluate(SHARE, "/share/")
    page.get_by_role("dialog").get_by_role("button", name="Do not attach").click()
    expect(page.locator("[data-attached] li")).to_have_count(0)
    assert Attachment.objects.count() == 0


def test_the_message_field_keeps_its_height_while_an_answer_is_written(open_page, person, language_model):
    language_model(Say(("Half of it, ", *["and more "] * 50), seconds_apart=0.3))
    page = open_page(user=person, **PHONE)
    message = page.get_by_label("Message", exact=True)
    before = message.bounding_box()["height"]
    message.fill("Hello")
    page.get_by_role("button", name="Send", exact=True).click()
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_visible()
    assert message.bounding_box()["height"] == before
    stop.click()
    expect(stop).to_be_hidden()
    assert message.bounding_box()["height"] == before


def test_what_is_shared_twice_or_too_late_is_said_to_be_gone(open_page, person):
    page = open_page("/?shared=1", user=person)
    expect(page.get_by_text("What was shared is not here any more. Share it again.")).to_be_visible()


def test_without_a_worker_the_server_passes_the_text_on_and_says_what_is_missing(open_page, person):
    page = open_page(user=person)
    page.evaluate(
        "navigator.serviceWorker.getRegistrations().then((all) => Promise.all(all.map((one) => one.unregister())))"
    )
    page.evaluate(SHARE, "/share/")
    expect(page.get_by_label("Message", exact=True)).to_have_value("A page\nRead this\nhttps://example.com/")
    expect(page.get_by_text("The shared files did not arrive")).to_be_visible()
    assert (Attachment.objects.count(), Conversation.objects.count()) == (0, 0)
    # A reload sends nothing again.
    assert page.url.endswith("/")


def test_sharing_needs_no_token_saves_nothing_and_repeats_no_markup(settings):
    client = Client(enforce_csrf_checks=True)
    sent = {"text": '"><script>alert(1)</script>'}
    page = client.post("/share/", sent)
    assert page.status_code == 200
    assert "<script>alert" not in page.text and "&lt;script&gt;alert" in page.text
    assert User.objects.count() == 0
    assert client.get("/share/").headers["Location"] == "/"
    settings.VISITORS = False
    page = client.post("/share/", sent)
    assert (page.status_code, "/login/?next=" in page.text) == (401, True)
    assert "&lt;script&gt;alert" in page.text


def test_the_manifest_shares_text_links_and_files_with_the_route_of_sharing():
    target = json.loads(Path(finders.find("intake/manifest.json")).read_text())["share_target"]
    assert (target["action"], target["method"], target["enctype"]) == ("../../share/", "POST", "multipart/form-data")
    assert {*target["params"]} == {"title", "text", "url", "files"}
