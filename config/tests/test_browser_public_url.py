"""The pages below a path of an HTTPS site, in a browser: every address that a script asks for lies below it."""

import re

import pytest
from playwright.sync_api import expect

from config.tests.test_behind_nginx import NGINX
from config.tests.test_public_url import CUT, WHOLE, below_a_path
from intake.models import Conversation, Turn
from testing.browser import PATIENCE_MS, Trespasses
from testing.model_server import Say
from testing.serving import wait_until

pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not NGINX, reason="nginx is not installed"),
    pytest.mark.django_db(transaction=True),
]


@pytest.mark.parametrize("location", [WHOLE, CUT], ids=["whole", "cut"])
def test_chatting_searching_and_leaving_below_a_path(browser, server, tmp_path, settings, language_model, location):
    language_model(*[Say(("From ", "2011."))] * 4)
    with below_a_path(server, tmp_path, settings, location) as (address, _trusted):
        context = browser.new_context(base_url=f"{address}/", ignore_https_errors=True)
        context.set_default_timeout(PATIENCE_MS)
        page, trespasses = context.new_page(), Trespasses(home=f"{address}/")
        trespasses.watch(page)
        page.goto("register/")
        page.get_by_label("Email").fill("ana@example.com")
        page.get_by_label("Password", exact=True).fill("correct horse battery")
        page.get_by_role("button", name="Register").click()
        # Whole, with its scripts: until then Enter is a new line.
        page.wait_for_url(f"{address}/")
        page.get_by_label("Message").fill("How old is the boiler?")
        page.get_by_label("Message").press("Enter")
        expect(page.locator(".turn .prose")).to_have_text("From 2011.")
        chat = f"{address}/c/{Conversation.objects.get().pk}/"
        expect(page).to_have_url(chat)
        # A page that is left while it reads an answer reports what it could not read.
        wait_until(lambda: Turn.objects.filter(status=Turn.Status.COMPLETE).exists(), seconds=PATIENCE_MS / 1000)
        page.reload()
        expect(page.locator(".turn .prose")).to_have_text("From 2011.")
        page.locator(".person-button").click()
        page.get_by_role("menuitemradio", name="Dark colours").click()
        assert {cookie["path"] for cookie in context.cookies()} <= {"/recollect", "/recollect/"}
        for path in ("search/?q=boiler", "memory/map/", "memory/timeline/", "import/", "settings/tokens/", "api/docs/"):
            page.goto(path)
            page.wait_for_load_state("networkidle")
        page.goto(chat)
        page.goto(page.evaluate("document.querySelector('[data-item-do=delete]').href"))
        page.get_by_role("button", name="Delete").click()
        page.wait_for_url(re.compile(f"^{re.escape(address)}/(conversations/)?$"))
        assert Conversation.objects.count() == 0
        manifest = page.evaluate(
            """async () => {
              const link = document.querySelector('link[rel=manifest]').href;
              const read = await (await fetch(link)).json();
              return [read.start_url, read.scope, ...read.shortcuts.map((one) => one.url)].map((one) => new URL(one, link).href);
            }"""
        )
        assert manifest == [f"{address}/"] * 3 + [f"{address}/search/", f"{address}/memory/"]
        context.close()
    assert trespasses.seen == []
