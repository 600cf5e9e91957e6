"""One table of what is no good token, tried at every endpoint that takes one: REST, the chat, MCP over HTTP, and stdio."""

import json
from dataclasses import dataclass
from datetime import timedelta

import httpx2
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from agent_tools.authentication import Refusal, create_token, effective
from agent_tools.models import AccessToken, TokenScope
from agent_tools.tests import mcp_messages
from agent_tools.tests.mcp_messages import LEGACY, MODERN
from agent_tools.tests.test_mcp_stdio import running
from intake.models import Turn, User
from intake.tests.factories import a_person
from memory.models import MemoryRecord
from testing.model_server import Say

pytestmark = pytest.mark.django_db(transaction=True)

SAVED = {"content": "Ana likes oaks"}
APPENDED = {
    "product": "claude-code",
    "session": "s1",
    "turns": [{"uuid": "u1", "saidAt": "2026-02-03T10:00:00Z", "user": "Which tree?", "answer": "An oak."}],
}


@pytest.fixture
def alice():
    return a_person()


# -- Tokens that are none ----------------------------------------------------------------------------------------------


def good(user):
    return create_token(user=user).secret


def expired(user):
    secret = good(user)
    AccessToken.objects.update(expiry=timezone.now() - timedelta(seconds=1))
    return secret


def revoked(user):
    secret = good(user)
    AccessToken.objects.all().delete()
    return secret


def of_a_deactivated_person(user):
    secret = good(user)
    User.objects.update(is_active=False)
    return secret


def of_a_deleted_person(user):
    secret = good(user)
    user.delete()
    return secret


def with_another_end(user):
    secret = good(user)
    return secret[:-1] + ("0" if secret[-1] != "0" else "1")


NOT_GOOD = {
    "none": (lambda user: None, Refusal.MISSING),
    "empty": (lambda user: "", Refusal.MALFORMED),
    "two words": (lambda user: "a b", Refusal.MALFORMED),
    "too long": (lambda user: "x" * 300, Refusal.MALFORMED),
    "unknown": (lambda user: "f" * 64, Refusal.UNKNOWN),
    "another end": (with_another_end, Refusal.UNKNOWN),
    "other case": (lambda user: good(user).upper(), Refusal.UNKNOWN),
    "its key in the database": (lambda user: good(user) and AccessToken.objects.get().digest, Refusal.UNKNOWN),
    "revoked": (revoked, Refusal.UNKNOWN),
    "of a deleted person": (of_a_deleted_person, Refusal.UNKNOWN),
    "expired": (expired, Refusal.EXPIRED),
    "of a deactivated person": (of_a_deactivated_person, Refusal.DEACTIVATED),
}


# -- Endpoints -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Endpoint:
    """One request; `scope` is what it takes, None being any."""

    method: str
    path: str
    scope: TokenScope | None
    body: dict | None = None
    headers: dict | None = None

    def knock(self, server, headers=None, query=""):
        content = None if self.body is None else json.dumps(self.body)
        given = {"Content-Type": "application/json", **(self.headers or {}), **(headers or {})}
        return httpx2.request(self.method, f"{server}{self.path}{query}", content=content, headers=given, timeout=20)


def over_mcp(version, method, params, scope):
    name = params.get("name")
    return Endpoint(
        "POST",
        "/mcp",
        scope,
        mcp_messages.message(method, params, version=version),
        mcp_messages.headers(version=version, method=method, name=name),
    )


def calling(version, tool, arguments, scope):
    return over_mcp(version, "tools/call", {"name": tool, "arguments": arguments}, scope)


REST = {
    "list of tools": Endpoint("GET", "/api/v1/tools/", None),
    "reading tool": Endpoint("POST", "/api/v1/tools/search_chat_history/", TokenScope.SEARCH, {"query": "oaks"}),
    "writing tool": Endpoint("POST", "/api/v1/tools/save_memory/", TokenScope.WRITE, SAVED),
    "unknown tool": Endpoint("POST", "/api/v1/tools/drop_everything/", None, {}),
    "records": Endpoint("GET", "/api/v1/memory/records/", TokenScope.READ),
    "conversations": Endpoint("GET", "/api/v1/conversations/", TokenScope.READ),
    "imports": Endpoint("GET", "/api/v1/imports/", TokenScope.IMPORT),
    "appending": Endpoint("POST", "/api/v1/sessions/append/", TokenScope.CAPTURE, APPENDED),
    "export": Endpoint("GET", "/api/v1/account/export/", TokenScope.READ),
    "chat": Endpoint("POST", "/api/v1/intake/chat", TokenScope.CHAT, {"message": "Hello"}),
}
MCP = {
    f"{name}, {version}": endpoint
    for version in (LEGACY, MODERN)
    for name, endpoint in {
        "list of tools": over_mcp(version, "tools/list", {}, None),
        "reading tool": calling(version, "search_chat_history", {"query": "oaks"}, TokenScope.SEARCH),
        "writing tool": calling(version, "save_memory", SAVED, TokenScope.WRITE),
        "unknown tool": calling(version, "drop_everything", {}, None),
    }.items()
}
ENDPOINTS = {**REST, **MCP}


def code_of(response):
    """The contract's code: over MCP a scope that is missing is a tool's result."""
    body = response.json()
    return body["code"] if "code" in body else json.loads(body["result"]["content"][0]["text"])["code"]


@pytest.mark.parametrize("why", NOT_GOOD)
def test_what_is_no_good_token_opens_no_endpoint(server, alice, why):
    make, reason = NOT_GOOD[why]
    secret = make(alice)
    for scheme in ("Bearer", "Token"):
        headers = {} if secret is None else {"Authorization": f"{scheme} {secret}".strip()}
        for name, endpoint in ENDPOINTS.items():
            response = endpoint.knock(server, headers)
            assert (response.status_code, code_of(response)) == (401, "authentication_required"), name
            assert response.headers["Content-Type"] == "application/problem+json", name
            assert response.headers["WWW-Authenticate"].startswith("Bearer "), name
            if reason is not Refusal.MISSING:
                assert response.json()["detail"] == reason, name
    assert not MemoryRecord.objects.exists()
    assert not Turn.objects.exists()


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "api_key"])
def test_a_token_in_the_address_opens_no_endpoint(server, alice, name):
    secret = good(alice)
    assert {endpoint.knock(server, query=f"?{name}={secret}").status_code for endpoint in ENDPOINTS.values()} == {401}
    assert not MemoryRecord.objects.exists()
    assert AccessToken.objects.get().last_used_at is None


@pytest.mark.parametrize(
    "scopes", [*([scope] for scope in TokenScope), [TokenScope.SEARCH, TokenScope.WRITE], list(TokenScope)]
)
def test_a_token_opens_what_its_scope_is_for_and_nothing_else(server, alice, language_model, scopes):
    language_model(Say(("Yes.",)))
    headers = {"Authorization": f"Bearer {create_token(user=alice, scopes=scopes).secret}"}
    for name, endpoint in ENDPOINTS.items():
        response = endpoint.knock(server, headers)
        if {endpoint.scope} - {None} <= effective(scopes):
            assert "insufficient_scope" not in response.text, name
        else:
            assert (response.status_code, code_of(response)) == (
                403 if name in REST else 200,
                "insufficient_scope",
            ), name
    assert MemoryRecord.objects.exists() is (TokenScope.WRITE in scopes)


@pytest.mark.parametrize("why", [why for why, (_, reason) in NOT_GOOD.items() if reason is not Refusal.MISSING])
def test_what_is_no_good_token_starts_no_stdio_server(alice, why, monkeypatch):
    make, reason = NOT_GOOD[why]
    monkeypatch.setenv("RECOLLECT_TOKEN", make(alice))
    with pytest.raises(CommandError, match="RECOLLECT_TOKEN") as refused:
        call_command("mcp")
    if why != "empty":
        assert reason in str(refused.value)


@pytest.mark.medium
def test_a_stdio_server_without_a_good_token_ends_with_status_1_and_says_why(alice):
    with running("not-a-token") as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert "RECOLLECT_TOKEN" in err
