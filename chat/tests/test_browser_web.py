"""The web in a real browser: the switch is remembered, each query and address stays in view, and a number leads home."""

import pytest
from playwright.sync_api import expect

from intake.models import Conversation
from intake.models.installation import SEARCH, keep_setting
from testing.model_server import CallTool, Say
from testing.web import Web, served

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def test_a_chat_searches_reads_and_cites_what_it_shows(open_page, person, language_model, monkeypatch):
    with served(Web(), monkeypatch) as web:
        keep_setting(SEARCH, lambda _before: web.engine)
        text = "<p>Bake it at 240 degrees for fifty minutes.</p>" * 9
        address = web.add("bakers.test/rye", f"<title>Rye bread</title><main><h1>Rye</h1>{text}</main>")
        search, opening = CallTool("web_search", {"query": "rye bread"}), CallTool("open_page", {"url": address})
        language_model(search, opening, Say(("At 240 degrees [1], not [7].",)))
        page = open_page("/", user=person)
        expect(page.get_by_label("Web")).not_to_be_checked()
        page.get_by_label("Web").check()
        page.get_by_label("Message").fill("How hot?")
        page.get_by_label("Message").press("Enter")
        for _ in range(2):
            expect(page.get_by_text("Searched the web for “rye bread”")).to_be_visible()
            expect(page.get_by_text(f"Read {address}")).to_be_visible()
            expect(page.get_by_text("Read on the web: 1")).to_be_visible()
            expect(page.get_by_role("link", name="[7]", exact=True)).to_have_count(0)
            page.reload()
            expect(page.get_by_label("Web")).to_be_checked()
        page.get_by_role("link", name="[1]", exact=True).click()
        expect(page.locator("#part-0")).to_contain_text("240 degrees")
        expect(page.get_by_role("link", name=address)).to_be_attached()
        page.go_back()
        with page.expect_response(lambda response: response.request.method == "PATCH"):
            page.get_by_label("Web").uncheck()
        page.reload()
        expect(page.get_by_label("Web")).not_to_be_checked()
        assert not Conversation.objects.get().uses_web
