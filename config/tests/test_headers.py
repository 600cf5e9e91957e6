"""What failures bear, as every answer does, and what production insists on.

The walk of config/tests/test_endpoints.py looks in the same way at every endpoint there is, as each caller.
"""

import gzip
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from urllib.request import Request, urlopen

import pytest
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.checks import run_checks
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils import timezone

from config.tests.endpoints.headers import DIRECTIVES, FIXED, loose
from config.urls import handler400, handler403, handler404, handler500  # noqa: F401 - the handlers of these URLs, too
from config.urls import urlpatterns as all_urls
from core.errors import RateLimited
from intake.models import User
from intake.tests.factories import a_turn

pytestmark = pytest.mark.django_db

FAILURES = {
    "database": OperationalError("the words of a query"),
    "suspicious": SuspiciousOperation("what was suspicious"),
    "forbidden": PermissionDenied(),
    "broken": RuntimeError("the inside of the program"),
    "limited": RateLimited(retry_after=7),
}
STATUSES = {"database": 503, "suspicious": 400, "forbidden": 403, "broken": 500, "limited": 429}


@login_not_required
def fail(request, kind):
    raise FAILURES[kind]


urlpatterns = [path("fail/<kind>/", fail), path("api/v1/fail/<kind>/", fail), *all_urls]


@pytest.fixture
def root() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root@example.com", "password"))
    return client


def is_locked_down(response) -> None:
    assert loose(response) == []


def test_what_is_not_locked_down_is_named():
    response = HttpResponse('<a href="//elsewhere.example" style="color: red">', headers={"Cache-Control": "private"})
    found = "\n".join(loose(response))
    for name in (*DIRECTIVES, *FIXED, "Cache-Control", "camera", "style=", "leads to"):
        assert name in found
    response = Client().get("/login/")
    assert loose(response) == []
    response["Content-Security-Policy"] += "; style-src 'unsafe-inline'"
    assert loose(response) == ["the policy allows what is unsafe"]


def test_rich_text_and_what_is_refused_or_not_there_is_locked_down(root):
    is_locked_down(root.get(f"/c/{a_turn(User.objects.get(), 'Hello', '**Hi**').conversation_id}/"))
    for client in (root, Client()):
        for page in ("/nowhere", "/api/v1/nowhere/"):
            is_locked_down(client.get(page))
    is_locked_down(Client(enforce_csrf_checks=True).post("/login/"))


def test_security_txt_says_whom_to_tell_and_until_when(settings):
    settings.SECURITY_CONTACT = ["mailto:a@example.com", "https://example.com/report"]
    answer = Client().get("/.well-known/security.txt")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/plain; charset=utf-8")
    contact, other, expires, languages = answer.text.splitlines()
    assert (contact, other) == ("Contact: mailto:a@example.com", "Contact: https://example.com/report")
    good_for = datetime.fromisoformat(expires.removeprefix("Expires: ")) - timezone.now()
    assert timedelta(days=362) < good_for < timedelta(days=365)
    assert languages == "Preferred-Languages: en"
    settings.SECURITY_CONTACT = []
    assert Client().get("/.well-known/security.txt").status_code == 404


def test_a_contact_that_is_none_is_said_at_start_up(settings):
    settings.SECURITY_CONTACT = ["a@example.com"]
    assert [error.id for error in run_checks()] == ["config.E001"]


@pytest.mark.urls("config.tests.test_headers")
@pytest.mark.parametrize("kind", FAILURES)
def test_every_failure_has_a_page_that_tells_nothing_and_asks_nobody(kind):
    client = Client(raise_request_exception=False)
    with CaptureQueriesContext(connection) as asked:
        response = client.get(f"/fail/{kind}/")
    # Beside the test client's own, which takes on the application's role.
    assert [query["sql"] for query in asked if "intake_" in query["sql"]] == []
    assert response.status_code == STATUSES[kind]
    is_locked_down(response)
    page = response.content.decode()
    assert str(FAILURES[kind]) not in page or kind in ("forbidden", "limited")
    assert 'href="/static/intake/css/' in page
    assert "<h1>" in page
    assert response.headers.get("Retry-After") == {"limited": "7", "database": "5"}.get(kind)


@pytest.mark.urls("config.tests.test_headers")
@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("database", 503, "unavailable"),
        ("suspicious", 400, "validation_error"),
        ("forbidden", 401, "authentication_required"),
        ("broken", 500, "internal_error"),
        ("limited", 429, "rate_limited"),
        ("nowhere/else", 404, "not_found"),
    ],
)
def test_under_the_api_every_failure_is_a_problem(kind, status, code):
    response = Client(raise_request_exception=False).get(f"/api/v1/fail/{kind}/")
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")
    assert response.json()["code"] == code
    assert "inside" not in response.text
    is_locked_down(response)


@pytest.mark.django_db(transaction=True)
def test_static_files_are_sent_for_what_they_are(visitor):
    page = visitor.get("/").text
    for address in re.findall(r'(?:href|src)="(/static/[^"]+)"', page):
        answer = visitor.get(address)
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "immutable" in answer.headers["cache-control"]


PRODUCTION = {
    "DJANGO_SETTINGS_MODULE": "config.settings.production",
    "ALLOWED_HOSTS": "recollect.example",
    "SECRET_KEY": "only-for-this-test-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJ",
    "DATABASE_URL": "postgres://nobody@localhost/none",
    "IGNORE_ENV_FILES": "1",
    "EMAIL_HOST": "mail.recollect.example",
}
ASK_IN_PRODUCTION = """
import django; django.setup()
from django.core.management import call_command
call_command("check", deploy=True, fail_level="WARNING")
from django.conf import settings
from django.http import HttpResponse
from django.test import Client
plain = Client().get("/healthz", headers={"host": "recollect.example"})
assert (plain.status_code, plain["Location"]) == (301, "https://recollect.example/healthz"), plain
other = Client().get("/login/", secure=True, headers={"host": "evil.example"})
assert other.status_code == 400, other
proxied = Client().get("/login/", headers={"host": "recollect.example", "x-forwarded-proto": "https"})
assert proxied.status_code == 200, proxied
assert proxied["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains", proxied.headers
(cookie,) = proxied.cookies.values()
assert cookie.key == "__Host-csrftoken", cookie
assert cookie["secure"] and cookie["samesite"] == "Lax" and cookie["path"] == "/" and not cookie["domain"], cookie
assert settings.SESSION_COOKIE_NAME == "__Host-sessionid", settings.SESSION_COOKIE_NAME
assert settings.SESSION_COOKIE_PATH == "/" and not settings.SESSION_COOKIE_DOMAIN
assert settings.SESSION_COOKIE_SECURE and settings.SESSION_COOKIE_HTTPONLY and not settings.DEBUG
print("as it should be")
"""


def in_production(*arguments: str, without: str = "", **others: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in PRODUCTION.items() if name != without} | others
    kept = {"PATH": os.environ["PATH"], "STATIC_ROOT": str(settings.STATIC_ROOT)}
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(
        command,
        env=kept | environment,
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


START_WITHOUT_MAIL = """
import django; django.setup()
from django.core.management import call_command
from django.core.management.base import SystemCheckError
try:
    call_command("check")
except SystemCheckError as error:
    assert "intake.E003" in str(error) and "Set EMAIL_HOST" in str(error), error
else:
    raise AssertionError("The check passes.")
print("the check refuses it", flush=True)
from config.asgi import _make_sure_of_the_database as go; go()
"""


@pytest.mark.medium
def test_production_without_a_mail_server_refuses_to_start():
    """Its log would hold links. The command says so, and so does the web process."""
    done = in_production("-c", START_WITHOUT_MAIL, without="EMAIL_HOST")
    assert (done.returncode, "the check refuses it" in done.stdout) == (1, True), done.stderr
    assert "intake.E003" in done.stderr and "Set EMAIL_HOST" in done.stderr


SAY_THAT_NO_MAIL_IS_SENT = """
import django; django.setup()
from django.core.management import call_command
call_command("check", deploy=True, fail_level="WARNING")
from django.conf import settings
from django.core.mail import send_mail
from django.test import Client
assert (settings.EMAIL_HOST, settings.EMAIL_VERIFICATION) == ("", "none")
send_mail("subject", "a link", None, ["person@recollect.example"])
page = Client().get("/login/password/", secure=True, headers={"host": "recollect.example"}).content.decode()
assert "This server sends no emails" in page and "Send the email" not in page, page
"""


@pytest.mark.medium
def test_production_without_mail_starts_when_that_is_said_and_pages_say_it_too():
    done = in_production("-c", SAY_THAT_NO_MAIL_IS_SENT, EMAIL_HOST="none")
    assert done.returncode == 0, done.stderr
    assert "a link" not in done.stdout + done.stderr


@pytest.mark.medium
def test_production_passes_djangos_own_check_and_insists_on_https_and_its_own_name():
    done = in_production("-c", ASK_IN_PRODUCTION)
    assert "as it should be" in done.stdout, done.stderr
    assert "no issues" in done.stdout


@pytest.mark.medium
@pytest.mark.parametrize("name", ["SECRET_KEY", "ALLOWED_HOSTS"])
def test_production_has_no_default_for_what_is_secret_or_its_own(name):
    done = in_production("manage.py", "check", without=name)
    assert done.returncode != 0
    assert name in done.stderr


# --- Compression, also without a proxy ---


@pytest.mark.django_db
def test_a_page_is_compressed_for_a_browser_that_takes_it_and_programs_get_theirs_plain():
    browser = Client(headers={"Accept-Encoding": "gzip, br"})
    pages = [browser.get("/login/") for _ in range(8)]
    assert {page["Content-Encoding"] for page in pages} == {"gzip"}
    assert "Accept-Encoding" in pages[0]["Vary"]
    assert b"Log in" in gzip.decompress(pages[0].content)
    # Its length does not tell what is in it.
    assert len({len(page.content) for page in pages}) > 1
    assert not Client().get("/login/").has_header("Content-Encoding")
    assert not browser.get("/api/v1/tools/?format=openai").has_header("Content-Encoding")


@pytest.mark.django_db(transaction=True)
def test_files_are_compressed(server):
    url = server + staticfiles_storage.url("intake/css/shell.css")
    plain, packed = (urlopen(Request(url, headers={"Accept-Encoding": how})).read() for how in ("identity", "gzip"))
    assert gzip.decompress(packed) == plain
    assert len(packed) < len(plain) / 3
