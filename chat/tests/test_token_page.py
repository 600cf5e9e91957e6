"""`/settings/tokens/`: made, shown once, copied, revoked; by its owner alone."""

import json
import re
from uuid import uuid4

import pytest
from django.test import Client

from agent_tools.authentication import create_token
from agent_tools.models import AccessToken
from chat.pages.agents import snippets
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db

URL = "/settings/tokens/"


@pytest.fixture
def session(alice):
    client = Client()
    client.force_login(alice)
    return client


def make(session, **form):
    return session.post(URL, {"name": "laptop", "scopes": ["search"], "days": "30", **form})


def secret_in(response):
    return re.search(r"[0-9a-f]{64}", response.content.decode())


def test_a_token_is_shown_once_and_works(session):
    response = make(session)
    secret = secret_in(response)[0]
    assert response.content.decode().count(secret) == 7
    assert "no-store" in response.headers["Cache-Control"]
    assert Client(headers={"authorization": f"Bearer {secret}"}).get("/api/v1/tools/").status_code == 200
    again = session.get(URL)
    assert secret_in(again) is None
    assert "laptop" in again.content.decode()
    assert AccessToken.objects.get().scopes == ["search"]


def test_the_snippets_have_this_servers_address(session):
    page = session.get(URL, headers={"host": "localhost:8123"}).content.decode()
    assert "http://localhost:8123/mcp" in page
    assert "YOUR_TOKEN" in page


def test_the_snippets_are_what_they_say():
    by_title = {title: text for title, _, text in snippets(address="https://r.example", secret="s" * 64)}
    assert all("https://r.example" in text and "s" * 64 in text for text in by_title.values())
    assert json.loads(by_title["Cursor"])["mcpServers"]["recollect"]["url"] == "https://r.example/mcp"
    assert json.loads(by_title["Claude Desktop"])["mcpServers"]["recollect"]["command"] == "npx"
    for title in ("OpenAI function calling", "Anthropic tool use"):
        compile(by_title[title], title, "exec")


@pytest.mark.parametrize("form", [{"scopes": []}, {"scopes": ["admin"]}, {"days": "0"}, {"name": "x" * 81}])
def test_a_wrong_wish_is_said_and_makes_nothing(session, form):
    page = make(session, **form).content.decode()
    assert "field-error" in page
    assert not AccessToken.objects.exists()


def test_a_token_is_bound_to_its_project_on_the_page(session, alice):
    page = make(session, project="Kitchen", bound="on").content.decode()
    (token,) = AccessToken.objects.all()
    assert (token.project, token.is_bound) == ("Kitchen", True)
    assert "Only the project Kitchen." in page
    make(session, project="Garden")
    assert "Project Garden." in session.get(URL).content.decode()


@pytest.mark.parametrize(
    "form", [{"bound": "on"}, {"bound": "on", "project": "Kitchen", "scopes": ["search", "delete"]}]
)
def test_a_bound_token_needs_a_project_and_cannot_delete(session, form):
    assert "field-error" in make(session, **form).content.decode()
    assert not AccessToken.objects.exists()


def test_a_token_is_revoked_by_its_owner_alone(session, alice):
    theirs = create_token(user=a_person("bob@example.com")).id
    for token_id in (theirs, uuid4(), "x"):
        assert session.post(f"{URL}{token_id}/revoke/").status_code == 404
    mine = create_token(user=alice).id
    assert session.get(f"{URL}{mine}/revoke/").status_code == 405
    assert session.post(f"{URL}{mine}/revoke/", follow=True).status_code == 200
    assert [token.public_id for token in AccessToken.objects.all()] == [theirs]


def test_a_name_cannot_break_the_page(session):
    assert b"<script>alert" not in make(session, name="<script>alert(1)</script>").content


def test_who_is_not_logged_in_is_led_to_the_log_in():
    for response in (Client().get(URL), Client().post(URL), Client().post(f"{URL}{uuid4()}/revoke/")):
        assert response.status_code == 302
        assert response.headers["Location"].startswith("/login/")


def test_a_page_of_another_site_can_neither_make_nor_revoke(alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    kept = create_token(user=alice).id
    assert make(client).status_code == client.post(f"{URL}{kept}/revoke/").status_code == 403
    assert AccessToken.objects.count() == 1


def test_the_sidebar_leads_there_once_logged_in(session):
    assert f'href="{URL}"' in session.get("/").content.decode()
    assert f'href="{URL}"' not in Client().get("/").content.decode()
