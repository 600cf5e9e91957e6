"""What a model may write to get at its reader: streamed or stored, it asks no other site, runs nothing, goes nowhere."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from chat.pages.chats import EXAMPLES
from intake.chats.tree import conversation_path
from intake.models import Conversation, Turn, User
from intake.tests.blocks import changes_of
from intake.tests.factories import NOW
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PAYLOADS: list[str] = json.loads((Path(__file__).parent / "data/hostile_markdown.json").read_text())
PER_PAGE = 50

# Whatever of a page could load, run or send, and every address that a click would follow.
DANGERS = """parts => parts.flatMap(part => [...part.querySelectorAll("*")]).filter(element =>
    ["script", "img", "image", "iframe", "frame", "style", "link", "meta", "base", "form", "input", "object", "embed",
     "video", "audio", "source", "maction", "semantics", "annotation-xml", "mglyph", "template", "textarea", "select"].includes(element.localName)
    || (element.localName === "svg" && !element.classList.contains("icon"))
    || [...element.attributes].some(({name}) => name.startsWith("on") || ["style", "src", "srcset", "ping"].includes(name))
    || (element.localName === "a" && element.hasAttribute("href")
        && !["http:", "https:", "mailto:"].includes(new URL(element.href, location.href).protocol))
).map(element => element.outerHTML)"""

# Draws each as an answer that arrives in pieces, all beside each other, and lets the browser act on every state in between.
STREAM_ALL = """async (answers) => {
  const { Drawing } = await import("/static/intake/drawing.js");
  const thread = document.querySelector("[data-thread]");
  const drawings = answers.map((changes) => {
    const target = document.createElement("div");
    target.className = "prose";
    thread.append(target);
    return [new Drawing(target), changes];
  });
  for (let piece = 0; drawings.some(([, changes]) => piece < changes.length); piece += 1) {
    for (const [drawing, changes] of drawings) if (piece < changes.length) drawing.show(changes[piece]);
    await new Promise(requestAnimationFrame);
  }
  for (const [drawing] of drawings) drawing.finish();
}"""


def dangers(page: Page, where: str = ".prose") -> list[str]:
    return page.locator(where).evaluate_all(DANGERS)


def test_there_are_enough_of_them():
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 100


def a_hostile_conversation(user: User) -> Conversation:
    """Every payload as message, answer, title, tool input and tool summary."""
    count = len(PAYLOADS)
    conversation = Conversation.objects.create(
        user=user, title=PAYLOADS[0][:80], turn_count=count, current_number=count
    )
    Turn.objects.bulk_create(
        Turn(
            conversation=conversation,
            user=user,
            turn_number=number,
            parent_number=number - 1 or None,
            user_message=payload.replace("\x00", ""),
            assistant_message=payload.replace("\x00", ""),
            tool_calls=[{"id": "1", "name": "search", "input": {"query": payload}, "summary": payload}]
            if "\x00" not in payload
            else [],
            status=Turn.Status.FAILED if number % 7 == 0 else Turn.Status.COMPLETE,
            error={"code": "unavailable", "detail": payload.replace("\x00", ""), "retryable": True},
            said_at=NOW,
        )
        for number, payload in enumerate(PAYLOADS, 1)
    )
    return conversation


def test_stored_answers_load_run_and_send_nothing(open_page, person):
    """Requests, dialogs and breaches of the page's policy are counted by `open_page`; none may happen."""
    path = conversation_path(a_hostile_conversation(person).pk)
    page = open_page(user=person)
    for before in range(len(PAYLOADS) + 1, 1, -PER_PAGE):
        page.goto(f"{path}?before={before}")
        expect(page.locator(".turn").first).to_be_attached()
        assert dangers(page, ".prose, .said, .step, [data-part=detail]") == []
    page.wait_for_timeout(300)


# A picture is drawn after every piece, so the finest pieces are for a part of them.
@pytest.mark.parametrize(("size", "every"), [(1, 12), (5, 3), (100_000, 1)])
def test_streamed_answers_load_run_and_send_nothing_at_any_moment(open_page, person, size, every):
    payloads = PAYLOADS[::every]
    page = open_page(user=person)
    page.evaluate(STREAM_ALL, [changes_of(text, size) for text in payloads])
    expect(page.locator(".prose")).to_have_count(len(payloads))
    assert dangers(page) == []
    page.wait_for_timeout(300)


def test_over_the_wire_too(open_page, person, language_model):
    answer = "\n\n".join(payload for payload in PAYLOADS if "```" not in payload and "\x00" not in payload)
    language_model(Say(tuple(answer[at : at + 40] for at in range(0, len(answer), 40))))
    page = open_page(user=person)
    page.get_by_label("Message").fill(str(EXAMPLES[0]))
    page.keyboard.press("Enter")
    expect(page.locator(".turn").last).to_have_attribute("data-status", "complete")
    assert dangers(page) == []
    page.reload()
    assert dangers(page) == []
