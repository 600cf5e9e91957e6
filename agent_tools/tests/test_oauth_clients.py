"""Connections that last: what real clients send, when they send it twice, and what they get to read."""

import io
import json
import runpy
import socket
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from django.contrib.auth import get_user_model
from django.db import connections
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import AccessToken, RefreshToken
from requests.packages import urllib3

from agent_tools.oauth import clients
from agent_tools.oauth.clients import sweep
from agent_tools.oauth.validator import Validator
from agent_tools.tests.test_oauth import (
    CALLBACK,
    HOST,
    RESOURCE,
    agree,
    asked,
    by_code,
    connected,
    exchange,
    refresh,
    register,
    session_of,
)
from intake.tests.factories import a_person
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock(monkeypatch):
    """Moves the time of this process."""

    class Clock:
        moved = timedelta()

        def move(self, **by):
            self.moved += timedelta(**by)

    moved, real = Clock(), timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + moved.moved)
    return moved


def is_valid(tokens):
    found = AccessToken.objects.filter(expires__gt=timezone.now())
    return any(each.token_checksum == checksum(tokens["access_token"]) for each in found)


def checksum(secret):
    from agent_tools.oauth.addresses import checksum_of

    return checksum_of(secret)


# -- A refresh token that is used twice ----------------------------------------------------------------------------------


def test_a_refresh_token_is_honoured_again_for_a_minute_by_further_tokens(clock):
    client_id, first = connected(a_person())
    clock.move(minutes=59)
    answers = [refresh(client_id, first), refresh(client_id, first)]
    clock.move(seconds=40)
    answers.append(refresh(client_id, first))
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    given = [answer.json() for answer in answers]
    assert len({tokens["access_token"] for tokens in given}) == len({tokens["refresh_token"] for tokens in given}) == 3
    assert {tokens["scope"] for tokens in given} == {first["scope"]}
    assert all(map(is_valid, given))
    assert all(token.resource == [RESOURCE] for token in AccessToken.objects.all())
    assert RefreshToken.objects.values("token_family").distinct().count() == 1
    kept = json.dumps([list(model.objects.values()) for model in (AccessToken, RefreshToken)], default=str)
    assert not any(secret in kept for tokens in given for secret in (tokens["access_token"], tokens["refresh_token"]))


def test_a_later_use_of_a_refresh_token_revokes_its_grant_and_no_other(clock):
    alice = a_person()
    client_id, first = connected(alice)
    other = by_code(client_id, agree(alice, client_id)["code"]).json()
    second, third = refresh(client_id, first).json(), refresh(client_id, first).json()
    clock.move(seconds=61)
    refused = refresh(client_id, first)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    assert "more than 60 seconds after its first use" in refused.json()["error_description"]
    for tokens in (first, second, third):
        assert not is_valid(tokens)
        assert refresh(client_id, tokens).status_code == 400
    assert is_valid(other)
    assert refresh(client_id, other).status_code == 200


def test_a_refresh_ends_no_call_that_another_session_makes_meanwhile():
    client_id, first = connected(a_person())
    assert refresh(client_id, first).status_code == 200
    assert is_valid(first)


def test_a_revoked_token_is_not_honoured_again():
    for kind in ("refresh_token", "access_token"):
        client_id, first = connected(a_person(f"{kind}@example.com"))
        second = refresh(client_id, first).json()
        Client().post("/oauth/revoke/", {"token": first[kind], "client_id": client_id})
        assert [refresh(client_id, tokens).status_code for tokens in (first, second)] == [400, 400]
        assert not is_valid(first) and not is_valid(second)


@pytest.mark.django_db(transaction=True)
def test_a_refresh_that_runs_while_its_grant_is_revoked_leaves_no_tokens(monkeypatch, clock):
    client_id, first = connected(a_person())
    refresh(client_id, first)
    save = Validator.save_bearer_token

    def save_after_the_end(self, *args, **kwargs):
        Client().post("/oauth/revoke/", {"token": first["refresh_token"], "client_id": client_id})
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Validator, "save_bearer_token", save_after_the_end)
    refused = refresh(client_id, first)
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_grant")
    assert not AccessToken.objects.exists() and not RefreshToken.objects.filter(revoked=None).exists()


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
def test_two_sessions_that_refresh_at_once_stay_connected_for_ten_hours(clock):
    """They share their storage: each reads what the last one wrote, and both refresh before their token expires."""
    client_id, stored = connected(a_person())
    barrier = threading.Barrier(2)

    def renew(tokens):
        barrier.wait()
        try:
            return refresh(client_id, tokens)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as sessions:
        for hour in range(10):
            clock.move(minutes=59)
            answers = list(sessions.map(renew, [stored, stored]))
            assert [answer.status_code for answer in answers] == [200, 200], (hour, [a.content for a in answers])
            given = [answer.json() for answer in answers]
            assert all(map(is_valid, given))
            # The one that wrote last differs from hour to hour.
            stored = given[hour % 2]


def test_used_tokens_are_swept_once_they_are_honoured_no_more(clock):
    client_id, first = connected(a_person())
    second = refresh(client_id, first).json()
    clock.move(minutes=61)
    with as_a_worker():
        sweep(now=timezone.now())
    # The newest keeps its own, by which it can still refresh.
    assert AccessToken.objects.count() == 1
    assert refresh(client_id, second).status_code == 200
    assert refresh(client_id, first).status_code == 400
    assert not AccessToken.objects.exists()


# -- Scopes and resources ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "given"),
    [
        ("openid offline_access search", "search"),
        ("openid offline_access", "search write"),
        ("everything", "search write"),
        ("", "search write"),
        (None, "search write"),
    ],
)
def test_unknown_scopes_are_narrowed_or_become_the_default(scope, given):
    client_id, tokens = connected(a_person(), scope=scope)
    assert tokens["scope"] == given
    renewed = refresh(client_id, tokens, **({} if scope is None else {"scope": scope}))
    assert (renewed.status_code, renewed.json()["scope"]) == (200, given)


def test_a_client_that_requests_unknown_scopes_lets_its_user_read_the_default():
    client_id = register().json()["client_id"]
    page = session_of(a_person()).get("/oauth/authorize/", asked(client_id, scope="openid profile")).content.decode()
    assert "Search: find and read" in page and "Write: add" in page


# Each name in each request, and each pair of a slash with none: what a request compares is the address alone.
@pytest.mark.parametrize(
    ("named", "named_later"),
    [
        (RESOURCE, RESOURCE),
        (RESOURCE, f"{RESOURCE}/"),
        (f"{RESOURCE}/", RESOURCE),
        (f"{RESOURCE}/", None),
        ("http://TESTSERVER/mcp", f"{RESOURCE}/"),
        ("http://testserver:80/mcp/", ""),
        ("", None),
    ],
)
def test_a_resource_with_a_slash_is_the_same_in_every_request(named, named_later):
    alice, client_id = a_person(), register().json()["client_id"]
    later = {} if named_later is None else {"resource": named_later}
    answer = by_code(client_id, agree(alice, client_id, resource=named)["code"], **later)
    assert answer.status_code == 200, answer.content
    assert AccessToken.objects.get().resource == [RESOURCE]
    for resource in (RESOURCE, f"{RESOURCE}/"):
        answer = refresh(client_id, answer.json(), resource=resource)
        assert answer.status_code == 200, answer.content
    refused = refresh(client_id, answer.json(), resource="https://elsewhere.example/mcp")
    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_target")
    assert RESOURCE in refused.json()["error_description"]


def test_a_grant_of_before_with_a_slash_is_still_good():
    client_id, tokens = connected(a_person())
    RefreshToken.objects.update(resource=[f"{RESOURCE}/"])
    assert refresh(client_id, tokens, resource=RESOURCE).status_code == 200


@pytest.mark.parametrize(("path", "resource"), [("/mcp", RESOURCE), ("/mcp/", f"{RESOURCE}/"), ("", RESOURCE)])
def test_the_metadata_name_the_resource_as_the_client_wrote_it(path, resource):
    answer = Client().get(f"/.well-known/oauth-protected-resource{path}")
    assert (answer.status_code, answer.json()["resource"]) == (200, resource)
    assert answer.json()["authorization_servers"] == [HOST]


# -- Registration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "registered"),
    [
        ({"client_name": None, "grant_types": None, "response_types": None, "scope": None}, {"client_name": ""}),
        ({"token_endpoint_auth_method": None}, {"token_endpoint_auth_method": "client_secret_basic"}),
        ({"token_endpoint_auth_method": "private_key_jwt"}, {"token_endpoint_auth_method": "none"}),
        ({"client_name": "x" * 3000}, {"client_name": "x" * 80}),
        ({"redirect_uris": [CALLBACK, "someapp://callback", None]}, {"redirect_uris": [CALLBACK]}),
        ({"redirect_uris": CALLBACK}, {"redirect_uris": [CALLBACK]}),
        (
            {"redirect_uris": [CALLBACK, "http://agent.example/", f"{CALLBACK}{'x' * 500}"]},
            {"redirect_uris": [CALLBACK]},
        ),
        ({"grant_types": "authorization_code"}, {"grant_types": ["authorization_code", "refresh_token"]}),
        ({"contacts": None, "logo_uri": None, "jwks": {}, "software_version": 1.5}, {"client_name": "Agent"}),
    ],
)
def test_registration_keeps_what_it_can_serve_and_answers_with_it(sent, registered):
    answer = register(**sent)
    assert answer.status_code == 201, answer.content
    document = answer.json()
    assert {name: document[name] for name in registered} == registered
    secret = {"client_secret": document["client_secret"]} if "client_secret" in document else {}
    code = agree(a_person(), document["client_id"])["code"]
    assert by_code(document["client_id"], code, **secret).status_code == 200


# -- Clients that are known by the address of a document -----------------------------------------------------------------


def the_web_has(monkeypatch, document):
    """The connection alone is replaced: `document` is what the web answers, or None if it is out of reach."""

    def urlopen(*_, **__):
        if document is None:
            raise urllib3.exceptions.ConnectTimeoutError(None, "no way out")
        body = io.BytesIO(json.dumps(document).encode())
        headers = {"Content-Type": "application/json"}
        return urllib3.HTTPResponse(body, headers, 200, preload_content=False)

    monkeypatch.setattr("urllib3.HTTPSConnectionPool.urlopen", urlopen)
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("93.184.216.34", 443))])


@pytest.mark.parametrize(
    "unusual",
    [
        {"grant_types": ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"]},
        {"grant_types": None, "response_types": None, "client_name": None},
        {"client_name": "x" * 3000},
        {"redirect_uris": ["someapp://callback", None, "http://agent.example/", CALLBACK]},
        {"contacts": None, "software_version": 1.5, "jwks": {}},
    ],
)
def test_a_document_is_read_as_tolerantly_as_a_registration(monkeypatch, unusual):
    address = f"https://agent.example/{uuid.uuid4()}.json"
    document = {"client_id": address, "client_name": "Agent", "redirect_uris": [CALLBACK], **unusual}
    the_web_has(monkeypatch, document)
    assert by_code(address, agree(a_person(), address)["code"]).status_code == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_program_without_a_fixed_port_may_name_its_document(monkeypatch, host):
    address = f"https://agent.example/{uuid.uuid4()}.json"
    own = ["http://localhost/callback", "http://127.0.0.1/callback"]
    the_web_has(monkeypatch, {"client_id": address, "client_name": "Agent", "redirect_uris": own})
    callback = f"http://{host}:52405/callback"
    code = agree(a_person(), address, redirect_uri=callback)["code"]
    assert by_code(address, code, redirect_uri=callback).status_code == 200


@pytest.mark.parametrize(
    "document", [None, {}, {"client_id": "https://elsewhere.example/"}, {"redirect_uris": ["someapp://callback"]}]
)
def test_the_page_says_that_the_clients_document_could_not_be_read(monkeypatch, document):
    address = f"https://agent.example/{uuid.uuid4()}.json"
    the_web_has(monkeypatch, document if document is None else {"client_id": address, **document})
    answer = session_of(a_person()).get("/oauth/authorize/", asked(address))
    page = answer.content.decode()
    assert answer.status_code == 400
    assert address in page and "docs/mcp.md" in page
    assert "tell the agent" not in page


def test_another_wrong_client_is_not_blamed_on_a_document():
    page = session_of(a_person()).get("/oauth/authorize/", asked("nobody")).content.decode()
    assert "Invalid client_id parameter value" in page and "OAUTH_METADATA_DOCUMENTS" not in page


def test_a_server_without_internet_tells_clients_to_register(monkeypatch, settings):
    """Claude Code and Codex name their document wherever the metadata offer that, and register otherwise."""
    for documents, registration, offered in (
        ("on", "on", (True, True)),
        ("off", "on", (False, True)),
        ("auto", "on", (True, True)),
        ("on", "off", (False, False)),
    ):
        monkeypatch.setenv("OAUTH_METADATA_DOCUMENTS", documents)
        monkeypatch.setenv("OAUTH_REGISTRATION", registration)
        provider = runpy.run_path(f"{settings.BASE_DIR}/config/settings/accounts.py")["OAUTH2_PROVIDER"]
        assert (provider["CIMD_ENABLED"], provider["DCR_ENABLED"]) == offered


def offered():
    metadata = Client().get("/.well-known/oauth-authorization-server").json()
    return metadata["client_id_metadata_document_supported"]


@pytest.mark.parametrize(("choice", "is_offered"), [("auto", False), ("on", True)])
def test_after_a_failed_fetch_documents_are_not_offered_for_ten_minutes(monkeypatch, settings, choice, is_offered):
    settings.OAUTH_METADATA_DOCUMENTS = choice
    assert offered() is True
    the_web_has(monkeypatch, None)
    address = f"https://agent.example/{uuid.uuid4()}.json"
    page = session_of(a_person()).get("/oauth/authorize/", asked(address)).content.decode()
    assert "no way out" in page
    assert ("For 10 minutes from now" in page) != is_offered
    assert offered() is is_offered
    assert 0 < clients._redis().ttl(clients._UNFETCHED) <= 600
    # Registering works all the time.
    assert register().status_code == 201


def test_without_redis_documents_go_on_being_offered(monkeypatch, settings):
    settings.OAUTH_METADATA_DOCUMENTS = "auto"
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    the_web_has(monkeypatch, None)
    session_of(a_person()).get("/oauth/authorize/", asked(f"https://agent.example/{uuid.uuid4()}.json"))
    assert offered() is True


@pytest.fixture
def proxy(monkeypatch):
    """Keeps the first line of what it is asked, and answers that it may not."""
    asked_for = []

    def serve(listener):
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    asked_for.append(connection.recv(4096).split(b"\r\n")[0].decode())
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        yield asked_for
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_document_is_fetched_by_the_proxy_of_the_environment(proxy, monkeypatch):
    address = f"https://agent.example/{uuid.uuid4()}.json"
    page = session_of(a_person()).get("/oauth/authorize/", asked(address)).content.decode()
    assert "HTTPS_PROXY" in page
    assert [line.rpartition(" ")[0] for line in proxy] == ["CONNECT agent.example:443"]


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "intranet", "169.254.169.254"])
def test_a_proxy_is_asked_for_no_address_of_a_private_network(proxy, host):
    session_of(a_person()).get("/oauth/authorize/", asked(f"https://{host}/{uuid.uuid4()}.json"))
    assert proxy == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"x" * 20_000, b'{"client_id": "https://other.example/"}', None])
def test_what_comes_by_the_proxy_is_read_as_strictly(proxy, monkeypatch, body):
    address = f"https://agent.example/{uuid.uuid4()}.json"
    good = json.dumps({"client_id": address, "redirect_uris": [CALLBACK]}).encode()

    async def send(*_, **__):
        return httpx2.Response(200, stream=httpx2.ByteStream(good if body is None else body))

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    answer = session_of(a_person()).get("/oauth/authorize/", asked(address))
    assert answer.status_code == (200 if body is None else 400)


def test_an_error_names_the_server_that_it_is_from():
    alice, client_id = a_person(), register().json()["client_id"]
    refused = agree(alice, client_id, decision="refuse")
    assert (refused["error"], refused["iss"], refused["state"]) == ("access_denied", HOST, "s")
    query = asked(client_id, resource="https://elsewhere.example/mcp")
    answer = session_of(alice).get("/oauth/authorize/", query_params=query)
    back = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert (back["error"], back["iss"]) == (["invalid_target"], [HOST])


def test_without_documents_a_client_with_one_is_unknown_and_nothing_is_fetched(monkeypatch, settings):
    monkeypatch.setattr("urllib3.HTTPSConnectionPool.urlopen", lambda *_, **__: pytest.fail("it was fetched"))
    settings.OAUTH2_PROVIDER = {**settings.OAUTH2_PROVIDER, "CIMD_ENABLED": False}
    metadata = Client().get("/.well-known/oauth-authorization-server").json()
    assert metadata.get("client_id_metadata_document_supported", False) is False
    assert metadata["registration_endpoint"] == f"{HOST}/oauth/register/"
    answer = session_of(a_person()).get("/oauth/authorize/", asked("https://agent.example/client.json"))
    # Claude Code keeps the id of its first attempt until its user logs out of the server.
    assert (answer.status_code, "log out of this server in the agent" in answer.content.decode()) == (400, True)
    assert register().status_code == 201


# -- What is wrong -------------------------------------------------------------------------------------------------------


def wrong_requests():
    alice = a_person()
    client_id, tokens = connected(alice)
    used = agree(alice, client_id)["code"]
    by_code(client_id, used)
    with_secret = register(token_endpoint_auth_method="client_secret_post").json()
    other = register().json()["client_id"]

    def code():
        return agree(alice, client_id)["code"]

    yield by_code(client_id, used), "invalid_grant", "used already"
    yield by_code(client_id, "x"), "invalid_grant", "not known"
    yield by_code(other, code()), "invalid_grant", "not known to this client"
    yield by_code(client_id, code(), code_verifier="w" * 64), "invalid_grant", "code_verifier does not match"
    yield by_code(client_id, code(), redirect_uri="https://evil.example/"), "invalid_request", "redirect URI"
    yield by_code(client_id, code(), resource=f"{HOST}/api"), "invalid_target", RESOURCE
    yield by_code("nobody", "x"), "invalid_client", "Register again"
    yield by_code(with_secret["client_id"], "x"), "invalid_client", "secret is missing or wrong"
    yield by_code(with_secret["client_id"], "x", client_secret="x"), "invalid_client", "secret is missing or wrong"
    yield refresh(other, tokens), "invalid_grant", "not known to this client"
    yield refresh(client_id, {"refresh_token": "x"}), "invalid_grant", "not known"
    yield exchange(client_id, grant_type="refresh_token"), "invalid_request", "refresh token"
    yield exchange(client_id, grant_type="authorization_code"), "invalid_request", "code"
    yield exchange(client_id), "invalid_request", "grant_type"
    yield exchange(client_id, grant_type="password"), "unsupported_grant_type", "authorization_code, refresh_token"
    body = {"client_id": client_id, "grant_type": "refresh_token", **tokens}
    as_json = Client().post("/oauth/token/", body, content_type="application/json")
    yield as_json, "invalid_request", "application/x-www-form-urlencoded"
    narrow = by_code(client_id, agree(alice, client_id, scopes=["search"])["code"]).json()
    yield refresh(client_id, narrow, scope="search write"), "invalid_scope", "agreed to: search"
    # Not through the model, which would revoke the tokens as well.
    get_user_model().objects.filter(pk=alice.pk).update(is_active=False)
    yield refresh(client_id, narrow), "invalid_grant", "deactivated"


@pytest.mark.medium
def test_every_error_of_the_token_endpoint_says_what_is_wrong():
    for answer, error, words in wrong_requests():
        told = answer.json()
        assert answer.status_code in (400, 401)
        assert (told["error"], words in told.get("error_description", "")) == (error, True), (words, told)
        assert answer.headers["Content-Type"].startswith("application/json")
