"""`PUBLIC_URL`: one address decides scheme, host and path, through a real nginx with TLS and its default buffering."""

import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.test import Client as DjangoClient
from mcp import Client as McpClient
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from agent_tools.tests.test_oauth import Memory
from chat.answers import reader
from chat.rest import chat
from chat.templatetags.recollect import icon
from config.public_url import at_public_url, is_public, parsed, settings_for
from config.stack import StackError
from config.stack.preflight import check_public_url, names_of
from config.tests.test_behind_nginx import NGINX, nginx
from config.tests.test_headers import in_production
from imports import events
from imports.models import Import
from intake.models import Turn, User
from intake.tests.factories import a_person, a_turn
from memory import index
from recollect_cli.client import Server
from recollect_cli.importing import IMPORTS, _uploaded
from testing.fixtures import Client
from testing.model_server import Say
from testing.sse_client import read_events

TLS = "listen 127.0.0.1:{port} ssl; ssl_certificate {folder}/tls.pem; ssl_certificate_key {folder}/tls.key;"


@pytest.mark.parametrize(
    ("address", "whole"),
    [
        ("https://memory.example", "https://memory.example"),
        ("https://Memory.Example/recollect/", "https://memory.example/recollect"),
        ("https://memory.example:443/a/b", "https://memory.example/a/b"),
        ("http://192.168.1.5:8000", "http://192.168.1.5:8000"),
        ("https://[fd00::1]:8443/", "https://[fd00::1]:8443"),
    ],
)
def test_an_address_is_read_without_its_final_slash(address, whole):
    assert parsed(address).geturl() == whole


@pytest.mark.parametrize(
    "address",
    [
        "memory.example",
        "ftp://memory.example",
        "https://",
        "https://user:password@memory.example",
        "https://memory.example/?a=b",
        "https://memory.example/#a",
        "https://memory.example/a b",
        "https://memory.example/a//b",
        "https://memory.example/../b",
        "https://memory.example:99999",
        "https://[::1]evil",
    ],
)
def test_what_is_no_address_of_a_site_is_refused(address):
    with pytest.raises(ImproperlyConfigured, match="PUBLIC_URL"):
        parsed(address)


def test_the_settings_follow_from_the_address():
    found = settings_for("https://memory.example/recollect", hosts=["other.example"], origins=["https://other.example"])
    assert found["ALLOWED_HOSTS"] == ["memory.example", "other.example", "localhost", "127.0.0.1", "[::1]"]
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://other.example", "https://memory.example"]
    assert (found["FORCE_SCRIPT_NAME"], found["STATIC_URL"]) == ("/recollect", "/recollect/static/")
    assert found["SESSION_COOKIE_NAME"] == "__Secure-sessionid-recollect"
    assert (found["SESSION_COOKIE_PATH"], found["CSRF_COOKIE_SECURE"]) == ("/recollect", True)
    whole = settings_for("https://memory.example")
    assert (whole["CSRF_COOKIE_NAME"], whole["FORCE_SCRIPT_NAME"]) == ("__Host-csrftoken", None)
    without = settings_for("")
    assert (without["SESSION_COOKIE_NAME"], without["SESSION_COOKIE_SECURE"]) == ("sessionid", False)
    assert without["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("memory.example", True),
        ("203.0.113.7", False),
        ("8.8.8.8", True),
        ("[2a00:1450::1]", True),
        ("localhost", False),
        ("127.0.0.1", False),
        ("[::1]", False),
        ("192.168.1.5", False),
        ("100.101.102.103", False),
        ("[fd00::1]", False),
        ("nas", False),
        ("nas.local", False),
    ],
)
def test_a_private_address_is_told_from_a_public_one(host, expected):
    assert is_public(host) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/recollect/settings/", "/settings/"),
        ("/recollect", "/"),
        ("/recollection/", "/recollection/"),
        ("/settings/", "/settings/"),
        ("/.well-known/oauth-authorization-server/recollect", "/.well-known/oauth-authorization-server"),
        ("/.well-known/oauth-protected-resource/recollect/mcp", "/.well-known/oauth-protected-resource/mcp"),
        ("/recollect/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"),
    ],
)
def test_a_path_is_routed_with_its_prefix_and_without(path, expected):
    scope = {"path": path, "headers": [(b"host", b"memory.example")], "scheme": "http"}
    assert at_public_url(scope, "https://memory.example/recollect")["path"] == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"host": "memory.example"}, ("https", "memory.example")),
        ({"host": "127.0.0.1:8000"}, ("https", "memory.example")),
        ({"host": "localhost:8000", "origin": "https://memory.example"}, ("https", "memory.example")),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, ("http", "localhost:8000")),
        ({"host": "evil.example"}, ("http", "evil.example")),
        ({"host": "other.example"}, ("http", "other.example")),
        ({}, ("http", None)),
    ],
)
def test_only_its_own_host_is_taken_for_the_public_one(headers, expected):
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    changed = at_public_url({"path": "/", "headers": encoded, "scheme": "http"}, "https://memory.example")
    host = dict(changed["headers"]).get(b"host")
    assert (changed["scheme"], host and host.decode()) == expected


@pytest.mark.extended
def test_production_needs_nothing_but_the_address():
    ask = """
import django; django.setup()
from django.conf import settings
from django.test import Client
from django.urls import reverse
assert reverse("intake:login") == "/recollect/login/"
answer = Client().get("/login/", secure=True, headers={"host": "memory.example"})
assert answer.status_code == 200, answer
(cookie,) = answer.cookies.values()
assert (cookie.key, cookie["path"]) == ("__Secure-csrftoken-recollect", "/recollect"), cookie
assert 'data-home="/recollect/"' in answer.text and 'data-csrf-cookie="__Secure-csrftoken-recollect"' in answer.text
print("as it should be")
"""
    done = in_production("-c", ask, without="ALLOWED_HOSTS", PUBLIC_URL="https://memory.example/recollect")
    assert "as it should be" in done.stdout, done.stderr


@pytest.mark.parametrize("address", ["http://memory.example", "memory.example"])
def test_production_refuses_an_address_without_https(address):
    done = in_production("manage.py", "check", without="ALLOWED_HOSTS", PUBLIC_URL=address)
    assert done.returncode != 0
    assert "PUBLIC_URL" in done.stderr


def test_make_up_refuses_an_address_that_is_none():
    check_public_url({})
    check_public_url({"PUBLIC_URL": "https://memory.example"})
    with pytest.raises(StackError, match="PUBLIC_URL"):
        check_public_url({"PUBLIC_URL": "memory.example"})


def test_all_addresses_of_this_machine_are_allowed_where_it_listens_at_all():
    names = names_of("0.0.0.0")
    assert socket.gethostname().lower() in names
    assert "127.0.0.1" in names
    assert names_of("192.168.1.5") == ["192.168.1.5"]
    assert names_of("fd00::1") == ["[fd00::1]"]


@pytest.mark.parametrize(
    ("host", "is_secure", "is_shown"),
    [("192.168.1.5:8000", False, True), ("192.168.1.5:8000", True, False), ("localhost:8000", False, False)],
)
def test_the_log_in_page_says_what_does_not_work_over_plain_http(db, settings, host, is_secure, is_shown):
    settings.ALLOWED_HOSTS = ["*"]
    page = DjangoClient().get("/login/", headers={"host": host}, secure=is_secure)
    assert ("data-plain-http" in page.text) is is_shown
    person = a_person()
    browser = DjangoClient()
    browser.force_login(person)
    page = browser.get("/settings/account/", headers={"host": host}, secure=is_secure)
    assert ("data-plain-http" in page.text) is is_shown


# -- Through nginx, which ends TLS and passes on a path -------------------------------------------------------------------


class ProxiedClient(Client):
    def _csrf(self):
        name = django_settings.CSRF_COOKIE_NAME
        if name not in self.cookies:
            self.get("/")
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(str(self.base_url)))
        return {"X-CSRFToken": self.cookies[name], "Origin": origin, "Referer": f"{origin}/"}


def make_certificate(folder):
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    files = ["-keyout", folder / "tls.key", "-out", folder / "tls.pem", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([shutil.which("openssl"), *command[1:], *files], check=True, capture_output=True)


@contextmanager
def below_a_path(server, folder, settings, location):
    """The address of the site, and a context that trusts its certificate."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"https://localhost:{port}/recollect"
    for name, value in settings_for(address).items():
        setattr(settings, name, value)
    settings.SITE_ADDRESS = f"https://localhost:{port}"
    make_certificate(folder)
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted.load_verify_locations(folder / "tls.pem")
    # It remembers where static files are.
    icon.cache_clear()
    with serve(server, folder, port, location):
        yield address, trusted
    icon.cache_clear()


@pytest.fixture
def proxied(server, tmp_path, settings):
    with ExitStack() as stack:
        yield lambda location: stack.enter_context(below_a_path(server, tmp_path, settings, location))


@contextmanager
def serve(backend, folder, port, location):
    """nginx as its package configures it: no headers and no buffering of our own but what `location` says."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        other = free.getsockname()[1]
    listen = TLS.format(port=port, folder=folder) + location.format(backend=backend)
    with nginx(backend, folder, other, limit=listen):
        yield


# A path that is passed on whole, with nothing else; and one that is cut off, with headers.
WHOLE = "location /recollect/ {{ proxy_pass {backend}; }}"
CUT = """location /recollect/ {{ proxy_pass {backend}/; proxy_set_header Host $http_host;
  proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}"""


@pytest.mark.parametrize("location", [WHOLE, CUT], ids=["whole", "cut"])
@pytest.mark.extended
@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
def test_a_person_registers_below_a_path_and_is_answered_piece_by_piece(proxied, language_model, location):
    """The model pauses after its first piece for longer than the client waits: no proxy may keep the piece back."""
    address, trusted = proxied(location)
    language_model(Say(("The boiler ", "is from 2011."), seconds_apart=60))
    with ProxiedClient(base_url=address, verify=trusted, follow_redirects=True, timeout=20) as browser:
        form = {"email": "ana@example.com", "password": "a long enough one", "time_zone": "UTC"}
        registered = browser.submit("/register/", **form)
        assert (registered.status_code, registered.url.path) == (HTTPStatus.OK, "/recollect/")
        assert User.objects.get(email="ana@example.com").is_visitor is False
        assert {cookie.path for cookie in browser.cookies.jar} == {"/recollect"}
        assert all(cookie.secure for cookie in browser.cookies.jar)
        for found in (f"{address}/worker.js", f"{address}/offline/"):
            assert browser.get(found).status_code == HTTPStatus.OK
        body = {"message": "How old is the boiler?"}
        with browser.stream("POST", "/api/v1/intake/chat", json=body, headers=browser._csrf()) as response:
            events = read_events(response.iter_lines())
            names = []
            for event in events:
                names.append(event.name)
                if event.name == "delta":
                    assert event.data["text"] == "The boiler "
                    break
            turn = Turn.objects.get()
            stopped = browser.post(f"/api/v1/intake/turns/{turn.pk}/stop", headers=browser._csrf())
            assert stopped.status_code < HTTPStatus.BAD_REQUEST, stopped.text
        assert names[0] == "turn"
        found = browser.get("/search/", params={"q": "boiler"})
        assert "How old is the" in found.text
        assert f'href="/recollect/c/{turn.conversation_id}/' in found.text
        for static in (part.split('"')[0] for part in found.text.split('href="')[1:]):
            assert static.startswith(("/recollect/", "#", "?", "https://", "data:")), static


# The read time-out of nginx, HAProxy's examples and AWS's load balancers; others wait longer.
SHORTEST_TIME_OUT = 60
STREAMS = (reader, chat, events)
# In heartbeats of half a second, against 2 s.
LONGER_THAN_NGINX_WAITS = 6
BRIEF = WHOLE.replace("; }}", "; proxy_read_timeout 2s; }}")


def test_a_stream_is_heard_twice_within_the_time_out_of_common_proxies():
    assert all(2 * stream.KEEP_ALIVE_SECONDS < SHORTEST_TIME_OUT for stream in STREAMS)


@pytest.mark.extended
@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
def test_an_idle_stream_outlives_nginxs_time_out_by_its_heartbeats(proxied, language_model, monkeypatch):
    """nginx closes what is silent for two seconds; each stream is read for longer than that, by its heartbeats."""
    for stream in STREAMS:
        monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.5)
    address, trusted = proxied(BRIEF)
    language_model(Say(("The boiler ", "is from 2011."), seconds_apart=60))
    with ProxiedClient(base_url=address, verify=trusted, follow_redirects=True, timeout=20) as browser:
        browser.submit("/register/", email="ana@example.com", password="a long enough one", time_zone="UTC")
        waiting = Import.objects.create(user=User.objects.get(), filename="export.zip", bytes=1)
        for path in ("/api/v1/intake/events", f"/api/v1/imports/{waiting.pk}/events/"):
            with browser.stream("GET", path) as response:
                assert heartbeats(response.iter_lines()) == LONGER_THAN_NGINX_WAITS
        body = {"message": "How old is the boiler?"}
        with browser.stream("POST", "/api/v1/intake/chat", json=body, headers=browser._csrf()) as response:
            assert heartbeats(response.iter_lines()) == LONGER_THAN_NGINX_WAITS
        browser.post(f"/api/v1/intake/turns/{Turn.objects.get().pk}/stop", headers=browser._csrf())


def heartbeats(lines):
    """The number of comments until enough have come; fewer if the stream ends before."""
    heard = 0
    for line in lines:
        heard += line.startswith(":")
        if heard == LONGER_THAN_NGINX_WAITS:
            break
    return heard


class LetsIn:
    """A person who lets an agent in, in a browser."""

    def __init__(self, browser):
        self.browser, self.sent_back, self.asked = browser, {}, ""

    async def open_page(self, asked):
        self.asked = asked
        await anyio.to_thread.run_sync(self._decide)

    def _decide(self):
        assert "Test agent" in self.browser.get(self.asked).text
        body, headers = {"allow": "1", "scopes": ["search"]}, self.browser._csrf()
        answer = self.browser.post(self.asked, data=body, headers=headers, follow_redirects=False)
        self.sent_back = {
            name: value for name, (value,) in parse_qs(urlsplit(answer.headers["location"]).query).items()
        }

    async def come_back(self):
        return AuthorizationCodeResult(**{name: self.sent_back[name] for name in ("code", "state", "iss")})


@pytest.mark.extended
@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
@pytest.mark.parametrize("location", [WHOLE, CUT], ids=["whole", "cut"])
def test_the_official_client_connects_below_a_path(proxied, person, location):
    a_turn(person, "I adopted a cat named Miso")
    index.embed_pending()
    address, trusted = proxied(location)
    with ProxiedClient(base_url=address, verify=trusted, follow_redirects=True, timeout=20) as browser:
        browser.submit("/login/", username=person.email, password="password")
        lets_in = LetsIn(browser)
        provider = OAuthClientProvider(
            server_url=f"{address}/mcp",
            client_metadata=OAuthClientMetadata(
                client_name="Test agent",
                redirect_uris=["http://127.0.0.1:8765/callback"],
                token_endpoint_auth_method="none",
            ),
            storage=Memory(),
            redirect_handler=lets_in.open_page,
            callback_handler=lets_in.come_back,
        )

        async def work():
            async with (
                httpx2.AsyncClient(auth=provider, timeout=20, verify=trusted) as http,
                McpClient(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
            ):
                return await client.call_tool("search_chat_history", {"query": "adopted a cat"})

        result = anyio.run(work)
        assert f"{address}/mcp" in browser.get("/settings/tokens/").text
    assert result.structured_content["results"][0]["snippet"] == "I adopted a cat named Miso"
    assert (lets_in.sent_back["iss"], lets_in.asked.startswith(f"{address}/oauth/authorize/")) == (address, True)


@pytest.mark.extended
@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
@pytest.mark.parametrize("location", [WHOLE, CUT], ids=["whole", "cut"])
def test_the_command_uploads_below_a_path(proxied, tmp_path, settings, monkeypatch, location):
    """With a file above what nginx takes in one body, in each way to pass on the path."""
    settings.IMPORTS_DIR = tmp_path / "uploads"
    path = tmp_path / "export.bin"
    path.write_bytes(bytes(2_500_000))
    address, _trusted = proxied(location)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "tls.pem"))
    recollect = Server(address, create_token(user=a_person(), scopes=list(TokenScope)).secret)
    shown = recollect.ask("POST", IMPORTS, {"filename": path.name, "bytes": path.stat().st_size})
    with path.open("rb") as content:
        shown = _uploaded(recollect, content, shown, lambda *_: None)
    assert shown["bytes_received"] == path.stat().st_size


@pytest.mark.extended
@pytest.mark.skipif(not NGINX, reason="nginx is not installed")
def test_links_in_emails_lead_below_the_path(proxied, mailoutbox):
    address, trusted = proxied(WHOLE)
    person = a_person()
    with ProxiedClient(base_url=address, verify=trusted, follow_redirects=True, timeout=20) as browser:
        browser.submit("/login/password/", email=person.email)
    (mail,) = mailoutbox
    assert f"{address}/login/password/" in mail.body
    assert mail.body.count(address) == 2 and "/recollect/recollect" not in mail.body
