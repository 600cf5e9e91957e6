"""The chat in a real browser against the whole application: what a person sees, does, and never loses."""

import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from testing.model_server import CallTool, Refuse, Say

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]

ANSWER = "## Menu\n\n1. **Soup**\n2. Risotto\n\n```python\nprint('six')\n```\n\nEnjoy `it`."

# What the answer looked like at each change: its words, its bold ones, whether it was said to be unfinished.
RECORD_ANSWER = """() => {
  window.seen = [];
  const record = () => {
    const answer = document.querySelector(".turn:last-child .prose");
    const bold = answer?.querySelector("strong")?.textContent;
    if (answer?.textContent) seen.push([answer.textContent.trim(), bold, answer.ariaBusy]);
  };
  new MutationObserver(record).observe(document.querySelector("[data-thread]"), { childList: true, subtree: true });
}"""


# Of a turn, what has to be the same after a reload.
SHOWN = (".said", ".prose", ".step")


def say(page: Page, message: str) -> None:
    page.get_by_label("Message").fill(message)
    page.keyboard.press("Enter")


def last_turn(page: Page):
    return page.locator(".turn").last


def answered(page: Page) -> None:
    expect(last_turn(page)).to_have_attribute("data-status", "complete")


def pieces_of(text: str, size: int = 7) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size))


def test_registering_and_chatting_with_an_answer_that_appears_as_it_is_written(open_page, language_model):
    language_model(Say(("Let us ", "begin **with", " soup**", " and see."), seconds_apart=0.4))
    page = open_page("/register/")
    page.get_by_label("Email").fill("ana@example.com")
    page.get_by_label("Password", exact=True).fill("correct horse battery")
    page.get_by_role("button", name="Register").click()
    expect(page.get_by_label("Message")).to_be_focused()
    page.evaluate(RECORD_ANSWER)
    say(page, "Plan a dinner for six")
    answered(page)
    seen = page.evaluate("seen")
    texts = [text for text, _, _ in seen]
    assert texts[-1] == "Let us begin with soup and see."
    assert "Let us begin with" in texts
    # Bold from its first word on, though its end had not been written yet; and said to be unfinished.
    assert ["Let us begin with", "with", "true"] in seen
    conversation = Conversation.objects.get()
    assert page.url.endswith(f"/c/{conversation.pk}/")
    assert page.title() == "Plan a dinner for six · Recollect"
    expect(page.locator("[data-conversations] [aria-current]")).to_have_text("Plan a dinner for six")
    assert conversation.user.email == "ana@example.com"


def test_a_reload_shows_what_was_there(open_page, person, language_model):
    language_model(
        CallTool("search_chat_history", {"query": "dinner", "limit": 3, "mode": "hybrid"}), Say(pieces_of(ANSWER))
    )
    page = open_page(user=person)
    say(page, "Plan a dinner\nfor six")
    answered(page)
    turn = last_turn(page)
    before = [turn.locator(part).inner_html() for part in SHOWN]
    page.reload()
    turn = last_turn(page)
    expect(turn.locator(".code-bar")).to_be_visible()
    assert [turn.locator(part).inner_html() for part in SHOWN] == before


def test_a_search_is_shown_while_it_runs_and_then_what_it_found(open_page, person, language_model):
    language_model(CallTool("search_chat_history", {"query": "our dinner"}), Say(("Nothing.",)))
    page = open_page(user=person)
    say(page, "What did we say about dinner?")
    answered(page)
    expect(last_turn(page).locator(".step-what")).to_have_text("Searched your chats for “our dinner”")
    expect(last_turn(page).locator(".step-summary")).not_to_be_empty()


def test_a_second_message_goes_on_with_the_conversation(open_page, person, language_model):
    language_model(Say(("One.",)), Say(("Two.",)))
    page = open_page(user=person)
    say(page, "First")
    answered(page)
    say(page, "Second")
    expect(page.locator(".turn")).to_have_count(2)
    answered(page)
    assert list(Turn.objects.order_by("pk").values_list("turn_number", flat=True)) == [1, 2]
    assert Conversation.objects.count() == 1
    page.go_back()
    expect(page.locator("[data-welcome]")).to_be_visible()


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stopping_keeps_what_was_written(open_page, person, language_model, how):
    language_model(Say(("Half of ", "it, ", *["and more "] * 50), seconds_apart=0.3))
    page = open_page(user=person)
    say(page, "Tell me all")
    expect(last_turn(page).locator(".prose")).to_contain_text("Half of it")
    if how == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    expect(last_turn(page).locator(".mark")).to_have_text("Stopped")
    expect(last_turn(page).locator(".prose")).to_contain_text("Half of it")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect_status("interrupted", page)
    page.reload()
    expect(last_turn(page).locator(".mark")).to_have_text("Stopped")


def expect_status(status: str, page: Page) -> None:
    for _ in range(400):
        if Turn.objects.latest("pk").status == status:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"the turn is {Turn.objects.latest('pk').status}")


def test_a_failed_answer_says_why_and_a_retry_takes_its_place(open_page, person, language_model):
    language_model(Refuse(500), Refuse(500), Say(("Better now.",)))
    page = open_page(user=person)
    say(page, "Hello?")
    trouble = last_turn(page).locator(".trouble")
    expect(trouble).to_contain_text("Try again")
    trouble.get_by_role("button", name="Retry").click()
    answered(page)
    expect(page.locator(".turn")).to_have_count(1)
    expect(trouble).to_be_hidden()
    expect(last_turn(page).locator(".prose")).to_have_text("Better now.")
    assert Turn.objects.count() == 1


def test_a_failed_answer_can_be_tried_again_after_a_reload(open_page, person, language_model):
    language_model(Refuse(500), Refuse(500), Say(("Better now.",)))
    page = open_page(user=person)
    say(page, "Two lines\nof it")
    expect(last_turn(page).locator(".trouble")).to_be_visible()
    page.reload()
    page.get_by_role("button", name="Retry").click()
    answered(page)
    assert Turn.objects.count() == 1


def test_without_a_connection_nothing_is_lost(open_page, person, language_model):
    language_model(Say(("Hello.",)))
    page = open_page(user=person)
    page.context.set_offline(True)
    say(page, "Are you there?")
    expect(last_turn(page).locator(".trouble")).to_contain_text("No connection")
    page.context.set_offline(False)
    page.reload()
    expect(page.get_by_label("Message")).to_have_value("Are you there?")
    page.get_by_label("Message").press("Enter")
    answered(page)
    assert Turn.objects.get().user_message == "Are you there?"


def answer_to(request):
    """What the server, which gets the page's request, answers to the end."""
    kept = ("content-type", "cookie", "idempotency-key", "x-csrftoken")
    headers = {name: value for name, value in request.all_headers().items() if name in kept}
    return httpx2.post(request.url, headers=headers, content=request.post_data, timeout=60).text


def test_an_answer_whose_connection_breaks_off_is_gone_on_with(open_page, person, language_model):
    model = language_model(Say(("Half", " and half.")))
    page = open_page(user=person)

    def lose_the_end(route):
        """The page hears only the beginning of the answer."""
        heard = answer_to(route.request)
        route.fulfill(body=heard[: heard.index("event: done")], content_type="text/event-stream")

    page.route("**/intake/chat", lose_the_end, times=1)
    say(page, "Go on")
    answered(page)
    expect(page.locator(".turn")).to_have_count(1)
    expect(last_turn(page).locator(".prose")).to_have_text("Half and half.")
    assert (Turn.objects.count(), Conversation.objects.count(), len(model.requests)) == (1, 1, 1)


def test_an_answer_that_never_arrived_is_not_asked_for_twice(open_page, person, language_model):
    model = language_model(CallTool("save_memory", {"content": "Ana likes oaks"}), Say(("Noted.",)))
    page = open_page(user=person)

    def lose_it(route):
        answer_to(route.request)
        route.abort()

    page.route("**/intake/chat", lose_it, times=1)
    say(page, "Save")
    expect(last_turn(page).locator(".trouble")).to_contain_text("No connection")
    page.get_by_role("button", name="Retry").click()
    answered(page)
    expect(last_turn(page).locator(".step")).to_have_count(1)
    expect(last_turn(page).locator(".prose")).to_have_text("Noted.")
    assert (Turn.objects.count(), len(model.requests)) == (1, 2)


def test_a_refused_message_returns_to_where_it_was_written(open_page, person):
    page = open_page(user=person)
    page.context.clear_cookies(name="csrftoken")
    say(page, "Keep me")
    expect(last_turn(page).locator(".trouble")).to_be_visible()
    expect(page.get_by_label("Message")).to_have_value("Keep me")
    assert not Turn.objects.exists()


def answering(**answer):
    return lambda route: route.fulfill(**answer)


def test_every_refusal_is_told_in_the_servers_words_and_a_proxys_error_page_by_its_status(open_page, person):
    page = open_page(user=person)
    trouble = last_turn(page).locator(".trouble")
    for status, code, is_retryable in (
        (400, "validation_error", False),
        (413, "too_large", False),
        (429, "rate_limited", True),
        (503, "unavailable", True),
    ):
        told = f"So it is with {code}."
        problem = {"code": code, "detail": told, "retryable": is_retryable, "errors": {"message": ["Because."]}}
        page.route("**/intake/chat", answering(status=status, json=problem), times=1)
        say(page, "Keep me")
        expect(trouble).to_contain_text(f"{told} Because.")
        expect(trouble.get_by_role("button", name="Retry")).to_be_visible(visible=is_retryable)
        trouble.get_by_role("button", name="Edit").click()
        expect(page.get_by_label("Message")).to_have_value(re.compile("Keep me"))
    page.route("**/intake/chat", answering(status=502, body="<h1>Bad gateway</h1>"), times=1)
    say(page, "Hello")
    expect(trouble).to_contain_text("502")


def test_a_reload_while_it_is_being_written_shows_the_rest_by_itself(open_page, person, language_model):
    language_model(Say(("The beginning", " and more"), seconds_apart=1))
    page = open_page(user=person)
    say(page, "Tell me")
    expect(last_turn(page).locator(".prose")).to_contain_text("The beginning")
    page.reload()
    answered(page)
    expect(last_turn(page).locator(".prose")).to_have_text("The beginning and more")


def test_the_thread_follows_the_answer_until_the_reader_scrolls_up(open_page, person, language_model):
    language_model(Say(tuple(f"Paragraph {number}.\n\n" for number in range(120)), seconds_apart=0.02))
    page = open_page(user=person)
    say(page, "At length")
    expect(last_turn(page).locator(".prose")).to_contain_text("Paragraph 40.")
    assert distance_to_bottom(page) < 100
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -500)
    jump = page.get_by_role("button", name="Jump to latest")
    expect(jump).to_be_visible()
    top = page.evaluate("scrollY")
    answered(page)
    assert page.evaluate("scrollY") == top
    jump.click()
    assert distance_to_bottom(page) < 100
    expect(jump).to_be_hidden()


def distance_to_bottom(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY")


def test_those_who_listen_hear_whole_paragraphs(open_page, person, language_model):
    language_model(Say(pieces_of("The first paragraph is long.\n\nThe second is not.", 3), seconds_apart=0.02))
    page = open_page(user=person)
    say(page, "Read to me")
    answered(page)
    heard = page.locator("[data-announcer] p").all_text_contents()
    assert heard == ["The first paragraph is long.", "The second is not."]


def test_the_composer_counts_near_its_limit_and_refuses_beyond_it(open_page, person):
    page = open_page(user=person)
    message = page.get_by_label("Message")
    message.fill("🙂" * 31_990)
    expect(page.locator("[data-counter]")).to_have_text("10 left")
    message.fill("🙂" * 32_001)
    expect(page.locator("[data-counter]")).to_have_text("1 too many")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()
    message.press("Enter")
    expect(page.locator(".turn")).to_have_count(0)


def test_enter_that_ends_a_composition_sends_nothing(open_page, person):
    page = open_page(user=person)
    message = page.get_by_label("Message")
    message.fill("にほん")
    message.evaluate(
        """input => input.dispatchEvent(
            new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true, cancelable: true })
        )"""
    )
    expect(message).to_have_value("にほん")
    expect(page.locator(".turn")).to_have_count(0)


def test_an_example_is_offered_to_be_changed_first(open_page, language_model):
    language_model()
    page = open_page()
    page.get_by_role("button", name="What did we say about the dinner?").click()
    expect(page.get_by_label("Message")).to_be_focused()
    expect(page.get_by_label("Message")).to_have_value("What did we say about the dinner?")


def test_code_and_answers_can_be_copied(open_page, person):
    turn = a_turn(person, "Code?", "Run **this**:\n\n```sh\necho hi\n```")
    page = open_page(f"/c/{turn.conversation_id}/", user=person, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied", exact=True)).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "echo hi"
    page.get_by_role("button", name="Copy what you said").click()
    expect(page.locator("[data-said]")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "Code?"
    page.get_by_role("button", name="Copy this answer").click()
    expect(page.locator(".turn-actions [data-said]")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "Run **this**:\n\n```sh\necho hi\n```"
    assert "<strong>this</strong>" in page.evaluate(
        "navigator.clipboard.read().then(([item]) => item.getType('text/html')).then((blob) => blob.text())"
    )
