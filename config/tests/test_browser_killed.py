"""In a real browser: the web process is killed in mid-answer, comes back, and the answer can be continued."""

import signal
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from chat.tests.test_browser_chat import answered, last_turn, say
from config.tests.test_chat_served import model, served, web, words  # noqa: F401 - fixtures
from intake.models import Turn
from memory.tasks import close_abandoned_turns
from testing.examiner import as_a_worker
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def server(web):  # noqa: F811
    """A process that can be killed."""
    return web.address


def test_a_page_reconnects_to_a_killed_web_process_shows_what_was_kept_and_goes_on(
    open_page, person, web, model, monkeypatch  # noqa: F811
):  # fmt: skip
    model.follow(words(2_000, 0.02), Say(("And that ", "is all.")))
    page = open_page(user=person)
    say(page, "Tell me a story")
    turn, prose = last_turn(page), last_turn(page).locator(".prose")
    expect(prose).to_contain_text("word0060")
    web.end(signal.SIGKILL)
    expect(turn.locator(".mark")).to_have_text("Reconnecting…")
    expect(prose).to_contain_text("word0060")

    web.start()
    # The lease, ahead of its time.
    monkeypatch.setattr("intake.chats.running.LEASE", timedelta())
    with as_a_worker():
        close_abandoned_turns()
    expect(turn.get_by_text("Interrupted: the server was restarted.")).to_be_visible()
    kept = Turn.objects.get().assistant_message.strip()
    expect(prose).to_have_text(kept)
    live = turn.inner_text()
    page.reload()
    assert turn.inner_text() == live
    turn.get_by_role("button", name="Continue").click()
    answered(page)
    expect(prose).to_have_text(f"{kept} And that is all.")
