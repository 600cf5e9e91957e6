"""Agents that know this server's address alone: from nothing to a search, and what is refused on the way."""

import base64
import hashlib
import json
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from django.test import Client
from django.utils import timezone
from mcp import Client as McpClient
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from oauth2_provider.models import AccessToken, Application, Grant, RefreshToken

from agent_tools.authentication import TokenRefused, verify
from agent_tools.models import AgentConnection
from agent_tools.oauth import validator
from agent_tools.oauth.clients import sweep
from agent_tools.oauth.connections import end_connection, list_connections
from agent_tools.oauth.validator import Validator
from agent_tools.tests.mcp_messages import call, post
from core.isolation.acting import acting_as
from intake.tests.factories import a_person, a_turn, a_visitor
from memory import index
from memory.projects import delete_project, rename_project, save_project
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

HOST = "http://testserver"
RESOURCE = f"{HOST}/mcp"
CALLBACK = "https://agent.example/callback"
VERIFIER = "v" * 64
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")


def session_of(user):
    client = Client()
    client.force_login(user)
    return client


def register(**metadata):
    requested = {"redirect_uris": [CALLBACK], "client_name": "Agent", "token_endpoint_auth_method": "none", **metadata}
    return Client().post("/oauth/register/", requested, content_type="application/json")


def asked(client_id, **parameters):
    requested = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": CALLBACK,
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "state": "s",
        "scope": "search write",
        "resource": RESOURCE,
        **parameters,
    }
    return {name: value for name, value in requested.items() if value is not None}


def agree(user, client_id, *, scopes=("search", "write"), decision="allow", project="", **parameters):
    """What the client is sent back with."""
    query, decided = asked(client_id, **parameters), {decision: "1", "scopes": scopes, "project": project}
    answer = session_of(user).post("/oauth/authorize/", decided, query_params=query)
    assert answer.status_code == 302, answer.content.decode()
    where = urlsplit(answer.headers["Location"])
    assert f"{where.scheme}://{where.netloc}{where.path}" == query["redirect_uri"]
    return {name: values[0] for name, values in parse_qs(where.query).items()}


def exchange(client_id, **form):
    return Client().post("/oauth/token/", {"client_id": client_id, **form})


def by_code(client_id, code, **form):
    requested = {"grant_type": "authorization_code", "redirect_uri": CALLBACK, "code_verifier": VERIFIER, **form}
    return exchange(client_id, code=code, **requested)


def connected(user, **parameters):
    """A client's id and its tokens."""
    client_id = register().json()["client_id"]
    answer = by_code(client_id, agree(user, client_id, **parameters)["code"])
    assert answer.status_code == 200, answer.content
    return client_id, answer.json()


def refresh(client_id, tokens, **form):
    return exchange(client_id, grant_type="refresh_token", refresh_token=tokens["refresh_token"], **form)


def test_hooks_that_are_connected_may_append_and_other_agents_may_not(alice):
    body = {
        "product": "codex",
        "session": "s",
        "turns": [{"uuid": "1", "saidAt": "2026-02-03T10:00:00Z", "user": "Hi"}],
    }
    statuses = {}
    for scope in ("capture", "search write"):
        _, tokens = connected(alice, scope=scope, scopes=scope.split())
        headers = {"authorization": f"Bearer {tokens['access_token']}"}
        answer = Client().post("/api/v1/sessions/append/", body, content_type="application/json", headers=headers)
        statuses[scope] = answer.status_code
        assert Client().get("/api/v1/imports/", headers=headers).status_code == 401
    assert statuses == {"capture": 200, "search write": 403}


def test_a_code_that_is_used_twice_ends_what_it_gave(alice):
    client_id = register().json()["client_id"]
    code = agree(alice, client_id)["code"]
    tokens = by_code(client_id, code).json()
    again = by_code(client_id, code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert not AccessToken.objects.exists()
    assert refresh(client_id, tokens).status_code == 400
    # What is kept of a used code is no code.
    kept = Grant.objects.values_list("code", flat=True).first() or "used:x"
    assert by_code(client_id, kept).status_code == 400


def test_another_clients_use_of_a_code_ends_nothing(alice):
    client_id, other = (register().json()["client_id"] for _ in range(2))
    code = agree(alice, client_id)["code"]
    tokens = by_code(client_id, code).json()
    assert by_code(other, code).status_code == 400
    assert refresh(client_id, tokens).status_code == 200


# -- From nothing to a search --------------------------------------------------------------------------------------------


class Memory:
    """The client's storage."""

    tokens = client_info = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client_info

    async def set_client_info(self, client_info):
        self.client_info = client_info


@pytest.mark.django_db(transaction=True)
def test_the_official_client_gets_from_nothing_to_a_search_and_is_out_when_its_person_says_so(server, person, log_in):
    a_turn(person, "I adopted a cat named Miso")
    index.embed_pending()
    browser, storage, sent_back = log_in(person), Memory(), {}

    async def open_page(address):
        def decide():
            page = browser.get(address)
            assert "Test agent" in page.text and "a program on this computer" in page.text
            answer = browser.post(
                address,
                data={
                    "allow": "1",
                    "scopes": ["search", "read", "write"],
                    "csrfmiddlewaretoken": browser.cookies["csrftoken"],
                },
                follow_redirects=False,
            )
            sent_back.update(parse_qs(urlsplit(answer.headers["location"]).query))

        await anyio.to_thread.run_sync(decide)

    async def come_back():
        return AuthorizationCodeResult(code=sent_back["code"][0], state=sent_back["state"][0], iss=sent_back["iss"][0])

    provider = OAuthClientProvider(
        server_url=f"{server}/mcp",
        client_metadata=OAuthClientMetadata(
            client_name="Test agent",
            redirect_uris=["http://127.0.0.1:8765/callback"],
            token_endpoint_auth_method="none",
        ),
        storage=storage,
        redirect_handler=open_page,
        callback_handler=come_back,
    )

    async def work():
        async with (
            httpx2.AsyncClient(auth=provider, timeout=20) as http,
            McpClient(streamable_http_client(f"{server}/mcp", http_client=http)) as client,
        ):
            return await client.call_tool("search_chat_history", {"query": "adopted a cat"})

    result = anyio.run(work)
    assert result.structured_content["results"][0]["snippet"] == "I adopted a cat named Miso"
    secret = storage.tokens.access_token
    assert call(server, secret, "save_memory", {"content": "Ana likes oaks"}).status_code == 200
    # For /mcp alone.
    elsewhere = httpx2.get(f"{server}/api/v1/tools/", headers={"Authorization": f"Bearer {secret}"})
    assert (elsewhere.status_code, "/mcp alone" in elsewhere.text) == (401, True)
    connection = AgentConnection.objects.get()
    assert (connection.user, connection.application.name, connection.last_used_from) == (
        person,
        "Test agent",
        "127.0.0.0/24",
    )
    page = browser.get("/settings/agents/").text
    assert "Test agent" in page and "127.0.0.0/24" in page
    browser.post(f"/settings/connections/{connection.application_id}/end/", headers=browser._csrf())
    assert post(server, secret).status_code == 401
    assert not AccessToken.objects.exists() and not RefreshToken.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_endpoint_says_without_a_token_where_to_begin(server):
    refused = post(server)
    challenge = refused.headers["WWW-Authenticate"]
    assert refused.status_code == 401
    assert f'resource_metadata="{server}/.well-known/oauth-protected-resource/mcp"' in challenge
    for path in ("/mcp", ""):
        document = httpx2.get(f"{server}/.well-known/oauth-protected-resource{path}").json()
        assert (document["resource"], document["authorization_servers"]) == (f"{server}/mcp", [server])
        assert document["scopes_supported"] == ["read", "search", "write"]
    metadata = httpx2.get(f"{server}/.well-known/oauth-authorization-server").json()
    assert metadata["issuer"] == server
    assert metadata["code_challenge_methods_supported"] == ["S256"]
    assert metadata["grant_types_supported"] == ["authorization_code", "refresh_token"]
    assert metadata["client_id_metadata_document_supported"] is True
    assert metadata["authorization_response_iss_parameter_supported"] is True
    for name in ("authorization", "token", "registration", "revocation"):
        assert metadata[f"{name}_endpoint"].startswith(f"{server}/oauth/")


# -- Registration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://agent.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://agent.example/#x"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://a@agent.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://*.example/"]}, "invalid_redirect_uri"),
        *(
            ({"redirect_uris": [address]}, "invalid_redirect_uri")
            for address in (
                "http://[::1]evil/",
                "http://[::1]evil.example:80/",
                "https://[::1]evil/",
                "https://[::1/",
                "https://[v1.a]/",
                "https://[::1%25lo]/",
                "http://localhost:/",
                "http://localhost:99999/",
                "http://localhost\\.evil.example/",
                "https://agent.example\\@evil.example/",
                "https://agent%2eexample/",
                "https:///callback",
                "https:callback",
                "cursor://a@b/",
                "cursor://[::1]evil/",
            )
        ),
        ({"redirect_uris": ["javascript:alert(1)"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://a.example/ https://b.example/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [f"https://agent.example/{'x' * 500}"]}, "invalid_redirect_uri"),
        ({"redirect_uris": [f"https://agent.example/{number}" for number in range(11)]}, "invalid_redirect_uri"),
        ({"client_name": 5}, "invalid_client_metadata"),
        ({"client_uri": "x" * 17_000}, "invalid_client_metadata"),
        ({"grant_types": ["client_credentials"]}, "invalid_client_metadata"),
    ],
)
def test_a_client_that_could_not_be_served_is_not_registered(metadata, error):
    answer = register(**metadata)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    assert len(answer.content) < 1000
    assert not Application.objects.exists()


def test_registration_takes_what_agents_send_and_can_be_turned_off(settings):
    claude = {"redirect_uris": ["https://claude.ai/api/mcp/auth_callback"], "scope": "search", "logo_uri": "https://x/"}
    assert register(**claude, grant_types=["authorization_code", "refresh_token"]).status_code == 201
    assert register(redirect_uris=["cursor://anysphere.cursor-mcp/oauth/callback"]).status_code == 201
    assert register(client_name="a\nb\u202e  c" + "x" * 200).json()["client_name"].startswith("a b c")
    settings.OAUTH_REGISTRATION = False
    assert register().status_code == 403


def test_a_client_with_a_secret_needs_it_and_only_its_digest_is_kept():
    alice = a_person()
    for method in ("client_secret_post", "client_secret_basic"):
        client = register(token_endpoint_auth_method=method).json()
        code = agree(alice, client["client_id"])["code"]
        assert by_code(client["client_id"], code).status_code == 401
        assert by_code(client["client_id"], code, client_secret="wrong").status_code == 401
        assert by_code(client["client_id"], code, client_secret=client["client_secret"]).status_code == 200
        assert client["client_secret"] not in Application.objects.get(client_id=client["client_id"]).client_secret


# -- Agreeing ------------------------------------------------------------------------------------------------------------


def test_the_page_says_in_plain_words_who_asks_for_what():
    client_id = register(client_name="<b>Agent</b>").json()["client_id"]
    answer = session_of(a_person()).get("/oauth/authorize/", asked(client_id))
    page = answer.content.decode()
    for words in (
        "&lt;b&gt;Agent&lt;/b&gt;",
        "agent.example",
        "Search: find and read",
        "Write: add",
        "alice@example.com",
    ):
        assert words in page, words
    assert "form-action 'self' https:" in answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_a_visitor_and_nobody_are_led_to_the_log_in_and_let_nobody_in():
    client_id = register().json()["client_id"]
    for client in (session_of(a_visitor()), Client()):
        for query in (asked(client_id), asked(client_id, prompt="none")):
            for answer in (
                client.get("/oauth/authorize/", query),
                client.post("/oauth/authorize/", {"allow": "1", "scopes": ["search"]}, query_params=query),
            ):
                assert (answer.status_code, answer.headers["Location"].startswith("/login/?next=")) == (302, True)
    assert not Grant.objects.exists()


def test_another_site_cannot_agree_for_a_person():
    client = Client(enforce_csrf_checks=True)
    client.force_login(a_person())
    query = asked(register().json()["client_id"])
    assert client.post("/oauth/authorize/", {"allow": "1", "scopes": ["search"]}, query_params=query).status_code == 403


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"resource": f"{HOST}/api"}, "invalid_target"),
        ({"response_type": "token"}, "unauthorized_client"),
        ({"decision": "refuse"}, "access_denied"),
        ({"scopes": []}, "access_denied"),
    ],
)
def test_what_is_not_granted_is_told_to_the_client_that_is_known(parameters, error):
    told = agree(a_person(), register().json()["client_id"], **parameters)
    assert (told["error"], told["state"], "code" in told) == (error, "s", False)


@pytest.mark.parametrize(
    "parameters",
    [
        {"client_id": "nobody"},
        {"client_id": "x" * 3000},
        {"client_id": "a\x00b"},
        {"redirect_uri": "https://evil.example/"},
        {"redirect_uri": f"{CALLBACK}?more=1"},
        {"redirect_uri": None, "client_id": None},
    ],
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_nobody_is_sent_where_no_client_was_registered(parameters, method):
    query = asked(**{"client_id": register().json()["client_id"], **parameters})
    answer = getattr(session_of(a_person()), method)("/oauth/authorize/", query_params=query)
    assert (answer.status_code, "Location" in answer.headers) == (400, False)
    assert b"That did not work" in answer.content


def test_a_person_may_agree_to_less_than_was_asked():
    alice = a_person()
    assert connected(alice, scopes=["search"])[1]["scope"] == "search"
    # A search reads, so nobody is asked about reading beside it.
    everything = {"scope": "search read write offline_access"}
    assert connected(alice, scopes=["search"], **everything)[1]["scope"] == "search read"
    page = session_of(alice).get("/oauth/authorize/", asked(register().json()["client_id"], **everything))
    assert page.content.count(b'name="scopes"') == 2


@pytest.mark.parametrize(
    "client_id",
    [
        "https://127.0.0.1/client.json",
        "https://localhost/client.json",
        "https://[::1]/client.json",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/client.json",
        "https://[::ffff:10.0.0.1]/client.json",
        "http://agent.example/client.json",
        "https://user@agent.example/client.json",
    ],
)
def test_metadata_are_never_fetched_from_an_address_of_this_network(monkeypatch, client_id):
    monkeypatch.setattr("urllib3.HTTPSConnectionPool.urlopen", lambda *_, **__: pytest.fail("it was fetched"))
    answer = session_of(a_person()).get("/oauth/authorize/", asked(client_id))
    assert (answer.status_code, Application.objects.exists()) == (400, False)


class Published:
    """Stands for the web: documents by address."""

    documents: dict = {}
    fetched: list = []

    def fetch(self, address):
        self.fetched.append(address)
        return self.documents[address], 300


def test_a_client_is_known_by_the_address_of_its_metadata(monkeypatch, settings):
    address, alice = "https://agent.example/client.json", a_person()
    document = {
        "client_id": address,
        "client_name": "By\u202e\naddress",
        "redirect_uris": [CALLBACK, "http://agent.example/"],
    }
    monkeypatch.setattr(Published, "documents", {address: document})
    monkeypatch.setattr(Published, "fetched", [])
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_METADATA_FETCHER": Published}
    # Somebody who asks for tokens, or is nobody, makes this server fetch nothing.
    assert by_code(address, "a code").status_code == 401
    assert Client().get("/oauth/authorize/", asked(address)).status_code == 302
    assert Published.fetched == []
    # A code is sent over plain http only to this machine, even if a document names another.
    assert (
        session_of(alice).get("/oauth/authorize/", asked(address, redirect_uri="http://agent.example/")).status_code
        == 400
    )
    assert ">By address<" in session_of(alice).get("/oauth/authorize/", asked(address)).content.decode()
    tokens = by_code(address, agree(alice, address)["code"])
    assert tokens.status_code == 200
    assert Published.fetched == [address]


# -- Tokens --------------------------------------------------------------------------------------------------------------


def test_tokens_and_codes_are_worth_nothing_in_a_copy_of_the_database():
    _, tokens = connected(a_person())
    kept = json.dumps([list(model.objects.values()) for model in (AccessToken, RefreshToken)], default=str)
    assert tokens["access_token"] not in kept and tokens["refresh_token"] not in kept
    assert (tokens["token_type"], tokens["expires_in"]) == ("Bearer", 3600)
    assert all(code.startswith("used:") for code in Grant.objects.values_list("code", flat=True))


@pytest.mark.parametrize(
    "form",
    [
        {"code_verifier": "w" * 64},
        {"code_verifier": ""},
        {"redirect_uri": "https://evil.example/"},
        {"resource": "https://elsewhere.example/mcp"},
        {"client_id": "nobody"},
        {"grant_type": "password", "username": "alice@example.com", "password": "password"},
        {"grant_type": "client_credentials"},
        {"grant_type": "urn:ietf:params:oauth:grant-type:device_code"},
        {"code_verifier": "v" * 3000},
        {"extra": "a\x00b"},
    ],
)
def test_a_code_is_exchanged_by_the_client_that_asked_and_for_nothing_else(form):
    client_id = register().json()["client_id"]
    code = agree(a_person(), client_id)["code"]
    answer = by_code(**{"client_id": client_id, "code": code, **form})
    assert answer.status_code in (400, 401)
    assert "error" in answer.json()
    assert not AccessToken.objects.exists()


def test_a_code_works_once_and_for_a_minute():
    alice, client_id = a_person(), register().json()["client_id"]
    code = agree(alice, client_id)["code"]
    assert by_code(client_id, code).status_code == 200
    assert by_code(client_id, code).status_code == 400
    code = agree(alice, client_id)["code"]
    Grant.objects.update(expires=timezone.now())
    assert by_code(client_id, code).status_code == 400


def test_a_refresh_gives_no_more_than_was_agreed_to_and_nothing_to_another_client_or_without_its_person():
    alice = a_person()
    client_id, tokens = connected(alice, scopes=["search"])
    assert refresh(client_id, tokens, scope="search write").status_code == 400
    assert refresh(register().json()["client_id"], tokens).status_code == 400
    alice.is_active = False
    alice.save()
    assert refresh(client_id, tokens).status_code == 400


def test_a_client_gives_its_tokens_back():
    client_id, tokens = connected(a_person())
    other = register().json()["client_id"]
    for wrong in ({"client_id": other}, {"client_id": client_id, "token": "x" * 3000}):
        Client().post("/oauth/revoke/", {"token": tokens["access_token"], **wrong})
    assert AccessToken.objects.exists()
    assert Client().post("/oauth/revoke/", {"token": tokens["access_token"], "client_id": client_id}).status_code == 200
    assert not AccessToken.objects.exists()
    assert refresh(client_id, tokens).status_code == 400


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("end", ["expired", "deactivated", "for another server"])
def test_the_endpoint_refuses_what_is_no_good_token(server, end):
    alice = a_person()
    _, tokens = connected(alice)
    AccessToken.objects.update(resource=[f"{server}/mcp"])
    assert post(server, tokens["access_token"]).status_code == 200
    match end:
        case "expired":
            AccessToken.objects.update(expires=timezone.now())
        case "deactivated":
            type(alice).objects.update(is_active=False)
        case _:
            AccessToken.objects.update(resource=[RESOURCE])
    refused = post(server, tokens["access_token"])
    assert (refused.status_code, 'error="invalid_token"' in refused.headers["WWW-Authenticate"]) == (401, True)


def test_a_connection_is_ended_by_its_person_alone_and_goes_with_them():
    alice, bob = a_person(), a_person("bob@example.com")
    client_id, tokens = connected(alice)
    key = Application.objects.get(client_id=client_id).pk
    caller = verify(tokens["access_token"], now=timezone.now(), resource=RESOURCE)
    # By this a call that is under way is stopped, as with any token.
    assert caller.still_valid([caller], now=timezone.now())
    for wrong in (key, 10**30, "x"):
        assert session_of(bob).post(f"/settings/connections/{wrong}/end/").status_code == 404
    assert b"None is connected." in session_of(bob).get("/settings/agents/").content
    assert session_of(alice).get(f"/settings/connections/{key}/end/").status_code == 405
    assert session_of(alice).post(f"/settings/connections/{key}/end/").status_code == 302
    assert not caller.still_valid([caller], now=timezone.now())
    assert refresh(client_id, tokens).status_code == 400
    connected(bob)
    session_of(bob).post("/settings/account/delete/", {"password": "password"})
    assert not any(model.objects.exists() for model in (AccessToken, RefreshToken, AgentConnection))


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_ended_while_it_is_refreshed_stays_ended(monkeypatch):
    alice = a_person()
    client_id, tokens = connected(alice)
    key, save = str(AgentConnection.objects.get().application_id), Validator.save_bearer_token

    def save_after_the_end(self, *args, **kwargs):
        end_connection(user=alice, connection_id=key)
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Validator, "save_bearer_token", save_after_the_end)
    refused = refresh(client_id, tokens)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    assert not AccessToken.objects.exists() and not RefreshToken.objects.exists()


def test_what_nothing_came_of_is_swept():
    alice = a_person()
    unused, (used, _) = register().json()["client_id"], connected(alice)
    now = timezone.now()

    def left(days):
        with as_a_worker():
            sweep(now=now + timedelta(days=days))
        return set(Application.objects.values_list("client_id", flat=True))

    assert left(0) == {unused, used}
    assert left(2) == {used}
    RefreshToken.objects.all().delete()
    AccessToken.objects.all().delete()
    assert left(2) == {used}
    assert not AgentConnection.objects.exists()
    assert left(31) == set()


# --- A command line, which gets a token of its own ---

TOKENS = f"{HOST}/api/v1/tokens/"
OWN = "http://127.0.0.1:52405/"
OF_MACHINES = ["search", "write", "capture", "import"]


def machine(user, *, scopes=OF_MACHINES, **parameters):
    client_id = register(client_name="recollect on a laptop", redirect_uris=[OWN]).json()["client_id"]
    asks = {"scope": " ".join(OF_MACHINES), "resource": TOKENS, "redirect_uri": OWN, **parameters}
    code = agree(user, client_id, scopes=scopes, **asks)["code"]
    return by_code(client_id, code, redirect_uri=OWN).json()["access_token"]


def make_token(access, **body):
    headers = {"authorization": f"Bearer {access}"}
    return Client().post("/api/v1/tokens/", body, content_type="application/json", headers=headers)


def test_a_command_line_makes_one_token_of_its_own_and_is_then_out():
    alice = a_person()
    access = machine(alice)
    made = make_token(access, name="laptop", scopes=OF_MACHINES)
    assert (made.status_code, sorted(made.json()["scopes"])) == (201, sorted(OF_MACHINES))
    own = Client(headers={"authorization": f"Bearer {made.json()['token']}"})
    assert own.get("/api/v1/tools/").status_code == 200
    assert make_token(access, scopes=["search"]).status_code == 401
    assert not AgentConnection.objects.exists()
    # Its own token makes no other.
    assert own.post("/api/v1/tokens/", {"scopes": ["search"]}, content_type="application/json").status_code == 403


def test_a_command_lines_token_does_no_more_than_was_agreed_to():
    access = machine(a_person(), scopes=["search"])
    for scopes in (["search", "write"], ["delete"], ["chat"]):
        refused = make_token(access, scopes=scopes)
        assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
    assert make_token(access, scopes=["search"]).status_code == 201


def test_a_command_lines_access_opens_nothing_else():
    access = machine(a_person())
    client = Client(headers={"authorization": f"Bearer {access}"})
    for path in ("/api/v1/tools/", "/api/v1/tokens/", "/api/v1/conversations/", "/api/v1/account/export/"):
        assert client.get(path).status_code == 401
    assert client.post("/api/v1/sessions/append/", {}, content_type="application/json").status_code == 401


@pytest.mark.django_db(transaction=True)
def test_a_command_lines_access_is_not_for_mcp(server):
    access = machine(a_person())
    AccessToken.objects.update(resource=[f"{server}/api/v1/tokens/"])
    assert post(server, access).status_code == 401


def test_an_agents_token_makes_no_token():
    _, tokens = connected(a_person())
    assert make_token(tokens["access_token"], scopes=["search"]).status_code == 401


def test_agents_get_no_scope_of_command_lines():
    alice = a_person()
    client_id = register().json()["client_id"]
    code = agree(alice, client_id, scope="search import", scopes=["search", "import"])["code"]
    assert by_code(client_id, code).json()["scope"] == "search"


def test_one_token_is_not_for_agents_and_command_lines_at_once():
    query = asked(register().json()["client_id"], resource=[TOKENS, RESOURCE])
    answer = session_of(a_person()).get("/oauth/authorize/", query_params=query)
    assert "error=invalid_target" in answer.headers["Location"]


def test_the_page_says_that_it_is_for_a_command_line():
    client, client_id = session_of(a_person()), register(redirect_uris=[OWN]).json()["client_id"]
    pages = [
        client.get("/oauth/authorize/", query_params=asked(client_id, resource=resource, redirect_uri=OWN))
        for resource in (TOKENS, RESOURCE)
    ]
    assert ["recollect login" in page.content.decode() for page in pages] == [True, False]


def test_only_a_program_on_the_users_own_computer_asks_for_a_token_of_its_own():
    client_id = register().json()["client_id"]
    answer = session_of(a_person()).get("/oauth/authorize/", query_params=asked(client_id, resource=TOKENS))
    assert "error=invalid_target" in answer.headers["Location"]


# -- Bound to a project --------------------------------------------------------------------------------------------------


def caller_of(tokens):
    return verify(tokens["access_token"], now=timezone.now(), resource=RESOURCE)


def projects_of(user):
    return [(each.projects, each.scopes) for each in list_connections(user=user, now=timezone.now())]


@pytest.fixture
def house(alice):
    return save_project(user=alice, name="House: oak/ü?", is_closed=True)


def test_the_page_offers_the_projects_and_says_what_a_bound_agent_may_not(alice, house):
    client, client_id = session_of(alice), register(redirect_uris=[OWN]).json()["client_id"]
    for resource, says in ((RESOURCE, False), (TOKENS, True)):
        query = asked(client_id, resource=resource, redirect_uri=OWN, scope=" ".join(OF_MACHINES))
        page = client.get("/oauth/authorize/", query_params=query).content.decode()
        assert f'<option value="{house.name}">' in page
        assert "it sees nothing else and stores nothing elsewhere" in page
        assert ("not allowed to import" in page) is says
    assert b'name="project"' not in session_of(a_person("bob@example.com")).get("/oauth/authorize/", query).content


def test_every_token_of_a_bound_agent_is_bound_also_after_refreshing(alice, house):
    client_id, tokens = connected(alice, project=house.name)
    for _ in range(3):
        caller = caller_of(tokens)
        assert (caller.user.bound_to, caller.project) == (house.name, house.name)
        tokens = refresh(client_id, tokens, resource=RESOURCE).json()
    assert projects_of(alice) == [((house.name,), ("search", "write"))]
    page = session_of(alice)
    assert f"Only the project {house.name}." in page.get("/settings/agents/").content.decode()


def test_the_project_is_one_that_exists_and_no_one_elses(alice, house):
    bob, client_id = a_person("bob@example.com"), register().json()["client_id"]
    for user, project in ((alice, "Gone"), (bob, house.name)):
        decided = {"allow": "1", "scopes": ["search"], "project": project}
        answer = session_of(user).post("/oauth/authorize/", decided, query_params=asked(client_id))
        assert (answer.status_code, b"does not exist any more" in answer.content) == (400, True)
    assert not Grant.objects.exists()


def test_a_client_cannot_choose_change_or_leave_out_its_binding(alice, house):
    client_id = register().json()["client_id"]
    chosen = f"{RESOURCE}?project=Other"
    answer = session_of(alice).get("/oauth/authorize/", asked(client_id, resource=chosen))
    assert "error=invalid_target" in answer.headers["Location"]
    for resource in (chosen, f"{RESOURCE}?project="):
        code = agree(alice, client_id, project=house.name)["code"]
        assert by_code(client_id, code, resource=resource).json()["error"] == "invalid_target"
    tokens = by_code(client_id, agree(alice, client_id, project=house.name)["code"], resource=RESOURCE).json()
    assert refresh(client_id, tokens, resource=chosen).json()["error"] == "invalid_target"
    assert caller_of(refresh(client_id, tokens).json()).user.bound_to == house.name


def test_two_accesses_of_one_client_keep_their_own_binding(alice, house):
    client_id = register().json()["client_id"]
    bound, free = (
        by_code(client_id, agree(alice, client_id, project=name)["code"]).json() for name in (house.name, "")
    )
    assert [caller_of(each).user.bound_to for each in (bound, free)] == [house.name, ""]
    assert caller_of(refresh(client_id, bound).json()).user.bound_to == house.name
    shown = session_of(alice).get("/settings/agents/").content.decode()
    assert f"One access sees everything, another only the project {house.name}." in shown


def test_a_binding_follows_the_name_of_its_project_and_ends_with_it(alice, house):
    client_id, tokens = connected(alice, project=house.name)
    code = agree(alice, client_id, project=house.name)["code"]
    free_id, free = connected(alice)
    rename_project(user=alice, name=house.name, new_name="Home")
    assert caller_of(tokens).user.bound_to == "Home"
    assert caller_of(refresh(client_id, tokens).json()).user.bound_to == "Home"
    assert caller_of(by_code(client_id, code).json()).user.bound_to == "Home"
    late = agree(alice, client_id, project="Home")["code"]
    delete_project(user=alice, name="Home", with_contents=False)
    save_project(user=alice, name="Home")
    with pytest.raises(TokenRefused):
        caller_of(tokens)
    assert refresh(client_id, tokens).json()["error"] == "invalid_grant"
    assert by_code(client_id, late).json()["error"] == "invalid_grant"
    assert AgentConnection.objects.get().application.client_id == free_id
    assert caller_of(free).user.bound_to == ""


@pytest.mark.parametrize(
    "named",
    [
        f"{RESOURCE}?project=",
        f"{RESOURCE}?project=a&project=b",
        f"{RESOURCE}?project=a&x=1",
        f"{RESOURCE}?x=1",
        f"{RESOURCE}#project",
    ],
)
def test_an_address_with_an_unclear_binding_opens_nothing(alice, named):
    _, tokens = connected(alice)
    AccessToken.objects.update(resource=[named])
    with pytest.raises(TokenRefused):
        caller_of(tokens)


def test_a_command_line_that_is_bound_makes_a_bound_token_and_imports_nothing(alice, house):
    access = machine(alice, project=house.name)
    assert make_token(access, scopes=["import"]).status_code == 403
    assert make_token(access, scopes=["search"], project="Other").status_code == 403
    made = make_token(access, scopes=["search", "write", "capture"], name="laptop").json()
    assert (made["project"], made["bound"]) == (house.name, True)
    own = Client(headers={"authorization": f"Bearer {made['token']}"})
    assert own.post("/api/v1/tokens/", {"scopes": ["search"]}, content_type="application/json").status_code == 403
    assert make_token(access, scopes=["search"]).status_code == 401


def test_a_server_that_binds_no_token_offers_no_project(alice, house, monkeypatch):
    monkeypatch.setattr("agent_tools.oauth.views.can_bind", lambda: False)
    client, query = session_of(alice), asked(register().json()["client_id"])
    assert b'name="project"' not in client.get("/oauth/authorize/", query).content
    decided = {"allow": "1", "scopes": ["search"], "project": house.name}
    assert client.post("/oauth/authorize/", decided, query_params=query).status_code == 400


def test_a_name_that_changes_while_tokens_are_made_is_the_one_that_they_get(alice, house, monkeypatch):
    client_id, tokens = connected(alice, project=house.name)
    code = agree(alice, client_id, project=house.name)["code"]

    def renamed_meanwhile(new):
        def lock(request):
            with acting_as(alice):
                rename_project(user=alice, name=house.name if new == "Home" else "Home", new_name=new)

        monkeypatch.setattr(validator, "_lock_user", lock)

    renamed_meanwhile("Home")
    assert caller_of(refresh(client_id, tokens).json()).user.bound_to == "Home"
    renamed_meanwhile("Flat")
    assert caller_of(by_code(client_id, code).json()).user.bound_to == "Flat"
