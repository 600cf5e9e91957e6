"""Answers that outlive the page, in a real browser: leaving and coming back, two tabs, a lost network, the list of chats."""

import re

import pytest
from playwright.sync_api import expect

from chat.tests.test_browser_chat import answered, expect_status, last_turn, say
from intake.models import Turn
from intake.tests.factories import a_turn
from testing.model_server import Refuse, Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

WORDS = tuple(f"word{n} " for n in range(60))
ENDLESS = Say(tuple(f"word{n} " for n in range(2000)), seconds_apart=0.05)


def prose(page):
    return last_turn(page).locator(".prose")


def tab_of(page):
    """Another tab of the same browser, at the same place."""
    tab = page.context.new_page()
    tab.goto(page.url)
    return tab


def link_to(page, turn):
    return page.locator(f'[data-conversations] a[href^="/c/{turn.conversation_id}/"]')


def test_whoever_leaves_and_comes_back_sees_the_answer_grow_to_its_end(open_page, person, language_model):
    model = language_model(Say(WORDS, seconds_apart=0.1))
    page = open_page(user=person)
    say(page, "Talk")
    expect(prose(page)).to_contain_text("word5")
    address = page.url
    page.goto("/settings/account/")
    page.goto(address)
    expect(prose(page)).to_contain_text("word5")
    expect(last_turn(page)).to_have_attribute("data-status", "streaming")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    answered(page)
    expect(prose(page)).to_have_text("".join(WORDS).strip())
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert (Turn.objects.count(), len(model.requests), model.closed_at) == (1, 1, None)


def test_the_request_of_an_answer_ends_and_is_not_aborted(open_page, person, language_model):
    """So that a request that fails in the browser's tools is a real failure."""
    language_model(Say(("Mice, ", "mostly.")), Refuse(400))
    page = open_page(user=person)
    failed = []
    page.on("requestfailed", lambda request: failed.append((request.url, request.failure)))
    for text, status in (("What do cats eat?", "complete"), ("And dogs?", "failed")):
        with page.expect_event("requestfinished", lambda request: request.url.endswith("/intake/chat")):
            say(page, text)
            expect(last_turn(page)).to_have_attribute("data-status", status)
    assert failed == []


def test_of_two_tabs_one_stops_and_both_show_it(open_page, person, language_model):
    language_model(ENDLESS)
    page = open_page(user=person)
    say(page, "Talk")
    expect(prose(page)).to_contain_text("word5")
    other = tab_of(page)
    expect(prose(other)).to_contain_text("word9")
    other.get_by_role("button", name="Stop").click()
    for tab in (page, other):
        expect(last_turn(tab).locator(".mark")).to_have_text("Stopped")
        expect(tab.get_by_role("button", name="Send")).to_be_visible()
    expect_status("interrupted", page)
    assert prose(page).inner_text() == prose(other).inner_text()


def test_a_network_that_is_lost_for_a_while_loses_nothing(open_page, person, language_model):
    language_model(Say(WORDS, seconds_apart=0.1))
    page = open_page(user=person)
    turned_away = []

    def break_off(route):
        """The line breaks after the first words, and cannot be opened again for some time."""
        if len(turned_away) < 3:
            turned_away.append(route.request.url)
            return route.abort()
        return route.continue_()

    page.route("**/turns/*/events", break_off)
    page.route("**/intake/chat", lambda route: break_in_the_middle(page, route), times=1)
    say(page, "Talk")
    answered(page)
    expect(prose(page)).to_have_text("".join(WORDS).strip())
    assert len(turned_away) == 3
    expect(last_turn(page).locator(".trouble")).to_be_hidden()


def break_in_the_middle(page, route):
    """What the server says until the first words, and then nothing: the request itself has been let go."""
    import httpx2

    kept = ("content-type", "cookie", "idempotency-key", "x-csrftoken", "prefer")
    headers = {name: value for name, value in route.request.all_headers().items() if name in kept}
    heard = ""
    with httpx2.stream("POST", route.request.url, headers=headers, content=route.request.post_data) as response:
        for line in response.iter_lines():
            heard += line + "\n"
            if "word7 " in line:
                break
    route.fulfill(body=heard[: heard.rindex("event: ")], content_type="text/event-stream")


def test_the_list_shows_which_chat_is_answering_and_which_has_an_answer_that_nobody_has_seen(
    open_page, person, language_model
):
    language_model(Say(WORDS, seconds_apart=0.1))
    elsewhere = a_turn(person, "Something else")
    page = open_page(user=person)
    say(page, "Talk")
    expect(prose(page)).to_contain_text("word2")
    turn = Turn.objects.latest("pk")
    expect(link_to(page, turn)).to_have_attribute("data-mark", "answering")
    page.goto(f"/c/{elsewhere.conversation_id}/")
    expect(link_to(page, turn)).to_have_attribute("data-mark", "answering")
    expect(link_to(page, turn)).to_have_attribute("aria-description", "Being answered")
    expect(link_to(page, turn)).to_have_attribute("data-mark", "unread")
    page.goto("/memory/")
    expect(link_to(page, turn)).to_have_attribute("data-mark", "unread")
    link_to(page, turn).click()
    expect(prose(page)).to_have_text("".join(WORDS).strip())
    expect(link_to(page, turn)).not_to_have_attribute("data-mark", re.compile("."))
    page.goto("/memory/")
    expect(link_to(page, turn)).not_to_have_attribute("data-mark", re.compile("."))


def test_what_is_stopped_before_the_server_has_answered_is_stopped_all_the_same(open_page, person, language_model):
    language_model(ENDLESS)
    page = open_page(user=person)
    page.route("**/intake/chat", lambda route: (page.wait_for_timeout(300), route.continue_()), times=1)
    say(page, "Talk")
    page.keyboard.press("Escape")
    expect(last_turn(page).locator(".mark")).to_have_text("Stopped")
    expect_status("interrupted", page)


def test_a_slow_model_is_named_with_the_seconds_that_it_takes(open_page, person, language_model):
    language_model(Say(("Mice.",), seconds_before=7))
    page = open_page(user=person)
    say(page, "What do cats eat?")
    mark = last_turn(page).locator("[data-part=mark]")
    expect(mark).to_have_text(re.compile(r"^Waiting for scripted · [4-7] s$"))
    answered(page)
    expect(mark).to_be_hidden()
