"""The page on which a person lets an agent in, in a real browser: from the log-in to the client, wherever that leads on."""

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from oauth2_provider.models import Grant
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Route

from agent_tools.tests.test_oauth import CHALLENGE, register
from core.isolation.acting import acting_as
from memory.projects import save_project
from testing.browser import Trespasses
from testing.serving import serving

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]


def a_client(leads_on_to):
    """A client's own program: it takes the code, and shows a page of another site."""

    async def callback(request):
        return RedirectResponse(f"{leads_on_to}/done?{request.url.query}")

    async def done(request):
        return PlainTextResponse("You can close this page.")

    return Starlette(routes=[Route("/callback", callback), Route("/done", done)])


def test_a_person_logs_in_agrees_and_is_led_to_the_client_and_where_it_leads_on(browser, server, person):
    with serving(a_client("")) as elsewhere, serving(a_client(elsewhere)) as client:
        callback = f"{client}/callback"
        with acting_as(person):
            save_project(user=person, name="House")
        asked = {
            "response_type": "code",
            "client_id": register(redirect_uris=[callback]).json()["client_id"],
            "redirect_uri": callback,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "s",
        }
        context = browser.new_context(base_url=server)
        page, trespasses = context.new_page(), Trespasses(home=server)
        trespasses.watch(page)
        page.goto(f"/oauth/authorize/?{urlencode(asked)}")
        page.get_by_label("Email").fill(person.email)
        page.locator("[name=password]").fill("password")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("heading", name="Allow “Agent” to use your memory?").wait_for()
        page.get_by_label("Write: add").uncheck()
        page.get_by_label("Only this project").select_option("House")
        page.get_by_role("button", name="Allow").click()
        page.get_by_text("You can close this page.").wait_for()
        back = parse_qs(urlsplit(page.url).query)
        assert page.url.startswith(f"{elsewhere}/done")
        assert (back["state"], back["iss"], len(back["code"])) == (["s"], [server], 1)
        assert Grant.objects.get().resource == [f"{server}/mcp?project=House"]
        # Nothing but the two of them was asked, and nothing was refused by a policy.
        assert {seen.split("?")[0] for seen in trespasses.seen} == {
            f"request to {callback}",
            f"request to {elsewhere}/done",
        }
        context.close()
