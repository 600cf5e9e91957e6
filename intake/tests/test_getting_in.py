"""Emails that are confirmed, passwords that are forgotten, second factors, and proofs that are asked for again."""

import base64
import hmac
import html
import re
import struct
import time
from smtplib import SMTPServerDisconnected

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.contrib.auth import SESSION_KEY
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from intake.accounts.proofs import PROVED_AT
from intake.models import ActivityEntry, Conversation, User
from intake.tests.factories import a_person, a_visitor, a_visitors_turn

pytestmark = pytest.mark.django_db

AccessToken = apps.get_model("agent_tools.AccessToken")

LOGIN, REGISTER, HOME = (reverse(f"intake:{name}") for name in ("login", "register", "home"))
RESET, CODE, CONFIRM = (
    reverse(name) for name in ("account_reset_password", "mfa_authenticate", "account_reauthenticate")
)
ACCOUNT, TOKENS = reverse("intake:account"), reverse("agent_tools:tokens")
GOOD = {"email": "alice@example.com", "password": "correct horse battery"}
WORKER = {"username": "alice@example.com", "password": "password"}


@pytest.fixture
def mandatory(settings):
    settings.EMAIL_VERIFICATION = settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def links() -> list[str]:
    """In the emails that were sent."""
    return [path for message in mail.outbox for path in re.findall(r"http://testserver(/\S+)", message.body)]


def noted() -> set[str]:
    """What the activity of the only account says."""
    return set(ActivityEntry.objects.values_list("what", flat=True))


def is_in(client: Client) -> bool:
    return client.get(ACCOUNT).status_code == 200


def age_the_proof(client: Client) -> None:
    session = client.session
    session[PROVED_AT] = int(time.time()) - 16 * 60
    session.save()


def code_of(secret: str) -> str:
    """By RFC 6238."""
    counter = struct.pack(">Q", int(time.time()) // 30)
    digest = hmac.digest(base64.b32decode(secret), counter, "sha1")
    start = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[start : start + 4])[0] & 0x7FFFFFFF) % 10**6:06}"


def with_an_app(user) -> tuple[Client, str]:
    """Logged in, with codes of an app set up through the pages; and the app's secret."""
    client = Client()
    client.force_login(user)
    form = client.get(reverse("mfa_activate_totp")).context["form"]
    response = client.post(reverse("mfa_activate_totp"), {"code": code_of(form.secret)})
    assert response["Location"] == reverse("mfa_view_recovery_codes"), response.text
    return client, form.secret


# Email addresses


def test_a_new_account_is_used_at_once_and_asked_to_confirm_its_address(client):
    assert client.post(REGISTER, GOOD)["Location"] == HOME
    assert "not confirmed yet" in client.get(ACCOUNT).text
    (confirm,) = [link for link in links() if link.startswith("/email/")]
    page = client.get(confirm)
    assert "Yes, confirm it" in page.text
    client.post(confirm)
    assert EmailAddress.objects.get().verified
    assert "not confirmed yet" not in client.get(ACCOUNT).text
    assert noted() == {"logged_in", "email_confirmed"}


def test_where_addresses_must_be_confirmed_nobody_is_let_in_before(client, mandatory):
    visitor = a_visitor()
    client.force_login(visitor)
    a_visitors_turn(visitor, "I moved to Lisbon")
    assert client.post(REGISTER, GOOD)["Location"] == reverse("account_email_verification_sent")
    assert not is_in(client)
    another = Client()
    another.post(LOGIN, {"username": GOOD["email"], "password": GOOD["password"]})
    assert not is_in(another)
    client.post(next(link for link in links() if link.startswith("/email/")))
    another.post(LOGIN, {"username": GOOD["email"], "password": GOOD["password"]})
    assert is_in(another)
    assert Conversation.objects.for_user(User.objects.get(email=GOOD["email"])).count() == 1


def test_where_addresses_must_be_confirmed_registering_tells_nobody_who_has_an_account(client, mandatory, alice):
    known, unknown = (Client().post(REGISTER, {**GOOD, "email": email}) for email in (alice.email, "new@example.com"))
    assert (known.status_code, known["Location"]) == (unknown.status_code, unknown["Location"])
    assert known.content == unknown.content
    assert [message.subject for message in mail.outbox] == [
        "Recollect: You have an account already",
        "Recollect: Confirm your email address",
    ]
    alice.refresh_from_db()
    assert alice.check_password("password")


def test_a_new_address_counts_when_it_is_confirmed(client, alice):
    client.force_login(alice)
    client.post(reverse("account_email"), {"email": "Alice@New.example", "action_add": ""})
    alice.refresh_from_db()
    assert alice.email == "alice@example.com"
    client.post(next(link for link in links() if link.startswith("/email/")))
    alice.refresh_from_db()
    assert alice.email == "alice@new.example"
    assert noted() >= {"email_added", "email_changed"}


def test_a_new_address_that_somebody_registered_meanwhile_is_theirs(client, alice):
    client.force_login(alice)
    client.post(reverse("account_email"), {"email": "alice@new.example", "action_add": ""})
    confirm = next(link for link in links() if link.startswith("/email/"))
    a_person("alice@new.example")
    assert "belongs to another account" in client.post(confirm, follow=True).text
    alice.refresh_from_db()
    assert alice.email == "alice@example.com"


def test_opening_the_page_of_the_email_changes_nothing(client, alice):
    """Neither for an account without an entry in the library's table, nor for one whose entry is another address."""
    client.force_login(alice)
    for address in (None, "old@example.com"):
        if address:
            EmailAddress.objects.create(user=alice, email=address, verified=True, primary=True)
        before = [list(model.objects.order_by("pk").values()) for model in (EmailAddress, ActivityEntry)]
        page = client.get(reverse("account_email"))
        assert (page.status_code, alice.email in page.text) == (200, True)
        assert [list(model.objects.order_by("pk").values()) for model in (EmailAddress, ActivityEntry)] == before
        alice.refresh_from_db()
        assert alice.email == GOOD["email"]


def test_an_email_that_cannot_be_sent_is_told_and_undoes_nothing(client, monkeypatch):
    def refuse(*args, **kwargs):
        raise SMTPServerDisconnected

    monkeypatch.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", refuse)
    assert "could not be sent" in client.post(REGISTER, GOOD, follow=True).text
    assert is_in(client)


# Passwords that are forgotten


def test_asking_for_a_new_password_tells_nobody_who_has_an_account(client, alice):
    answers = [client.post(RESET, {"email": email}, follow=True) for email in (alice.email, "nobody@example.com")]
    without_tokens = {re.sub(r'value="[^"]+"', "", answer.text) for answer in answers}
    assert len(without_tokens) == 1
    assert [message.to for message in mail.outbox] == [[alice.email], ["nobody@example.com"]]


def test_a_link_sets_a_new_password_once_and_ends_every_session(client, alice):
    inside = Client()
    inside.force_login(alice)
    AccessToken.objects.issue(user=alice)
    client.post(RESET, {"email": "ALICE@example.com"})
    link = next(link for link in links() if "/login/password/" in link)
    form = client.get(link)["Location"]
    assert link not in form
    assert "too common" in client.post(form, {"password1": "password123"}).text
    client.post(form, {"password1": GOOD["password"], "end_access": "on"})
    assert not is_in(client)
    assert not is_in(inside)
    assert not AccessToken.objects.exists()
    assert "has been used" in Client().get(link).text
    client.post(LOGIN, {"username": alice.email, "password": GOOD["password"]})
    assert is_in(client)


# Each sends an email, with the address that the account has after it.
MAILS = {
    "confirm": lambda browser: browser.post(REGISTER, GOOD),
    "reset": lambda browser: browser.post(RESET, {"email": "alice@example.com"}),
    "changed": lambda browser: browser.post(
        reverse("intake:password"), {"old_password": "password", "new_password": "correct horse battery"}
    ),
}


@pytest.mark.parametrize("port", ["9999", "99999999"])
@pytest.mark.parametrize("name", MAILS)
def test_no_email_leads_to_the_port_of_the_request(name, port):
    browser = Client(HTTP_HOST=f"testserver:{port}")
    if name != "confirm":
        browser.force_login(a_person("alice@example.com"))
    assert MAILS[name](browser).status_code == 302
    (sent,) = mail.outbox
    assert "http://testserver" in sent.body
    assert port not in sent.body


@pytest.mark.parametrize("name", MAILS)
def test_every_email_leads_to_the_address_of_the_site(name, settings):
    settings.SITE_ADDRESS = "https://recollect.example"
    browser = Client()
    if name != "confirm":
        browser.force_login(a_person("alice@example.com"))
    MAILS[name](browser)
    (sent,) = mail.outbox
    assert "https://recollect.example/" in sent.body
    assert "testserver" not in sent.body


def test_an_invitation_leads_to_the_address_of_the_site(settings):
    settings.SITE_ADDRESS = "https://recollect.example"
    staff = Client(HTTP_HOST="testserver:9999")
    staff.force_login(User.objects.create_superuser("root@example.com", "password"))
    page = staff.post(reverse("admin:intake_invitation_add"), {"note": "", "uses": "1", "days": "7"}, follow=True)
    assert "https://recollect.example/register/?invitation=" in page.text


# What a stranger may do as often as they are let, and what its owner then still does. Each answers 429 beyond its limit.
BY_STRANGERS = {
    "a new password": ("mail", lambda browser: browser.post(RESET, {"email": "alice@example.com"})),
    "a log-in": ("login", lambda browser: browser.post(LOGIN, {**WORKER, "password": "wrong"})),
    "a confirmation": (
        "mail",
        lambda browser: with_session(browser).post(
            reverse("account_email"), {"email": "owner@example.com", "action_add": ""}
        ),
    ),
    "a code": ("code", lambda browser: after_the_password(browser).post(CODE, {"code": "000000"})),
}


def with_session(browser: Client) -> Client:
    """Somebody else's account, to which an address is added; a new one for each browser."""
    if SESSION_KEY not in browser.session:
        browser.force_login(a_person(f"{len(User.objects.all())}@example.com"))
    return browser


def after_the_password(browser: Client) -> Client:
    if SESSION_KEY not in browser.session and browser.get(CODE).status_code != 200:
        browser.post(LOGIN, WORKER)
    return browser


@pytest.mark.parametrize("kind", BY_STRANGERS)
def test_strangers_use_up_nothing_that_the_owner_may_do(kind, limited, alice):
    limit, attempt = BY_STRANGERS[kind]
    if kind == "a code":
        with_an_app(alice)
    limited(**{limit: "2/hour"})
    stranger, owner = Client(REMOTE_ADDR="198.51.100.7"), Client(REMOTE_ADDR="203.0.113.9")
    assert [attempt(stranger).status_code for _ in range(3)][-1] == 429
    assert attempt(owner).status_code < 429


def test_the_codes_of_an_account_have_a_total_for_all_clients(limited, alice):
    with_an_app(alice)
    limited(code="1/hour", code_account="2/hour")
    clients = [after_the_password(Client(REMOTE_ADDR=f"198.51.100.{number}")) for number in range(3)]
    assert [browser.post(CODE, {"code": "000000"}).status_code for browser in clients] == [200, 200, 429]


def test_emails_that_are_asked_for_are_counted_for_the_address_they_go_to(client, alice, limited):
    limited(mail="2/hour")
    assert [client.post(RESET, {"email": email}).status_code for email in (alice.email, "ALICE@example.com")] == [
        302,
        302,
    ]
    assert client.post(RESET, {"email": alice.email}).status_code == 429
    assert len(mail.outbox) == 2


# Second factors


def test_after_a_password_a_code_is_asked_for_and_is_good_once(alice):
    _, secret = with_an_app(alice)
    client, thief = Client(), Client()
    visitor = a_visitor()
    client.force_login(visitor)
    a_visitors_turn(visitor, "I moved to Lisbon")
    for each in (client, thief):
        assert each.post(LOGIN, {**WORKER, "next": "/memory/"})["Location"] == CODE
        assert not is_in(each)
    assert "Wrong code" in client.post(CODE, {"code": "000000"}).text
    code = code_of(secret)
    assert client.post(CODE, {"code": code})["Location"] == "/memory/"
    assert is_in(client)
    assert Conversation.objects.for_user(alice).count() == 1
    assert not User.objects.filter(pk=visitor.pk).exists()
    # Another process knows of it by the database alone.
    cache.clear()
    if code_of(secret) == code:
        assert "has been used" in thief.post(CODE, {"code": code}).text
    assert not is_in(thief)


def test_a_recovery_code_lets_its_owner_in_once(alice):
    client, _ = with_an_app(alice)
    codes = client.get(reverse("mfa_view_recovery_codes")).context["unused_codes"]
    assert client.get(reverse("mfa_download_recovery_codes")).text.split()[-1] in codes
    for expected in (True, False):
        another = Client()
        another.post(LOGIN, WORKER)
        another.post(CODE, {"code": codes[0]})
        assert is_in(another) is expected


def test_after_another_secret_key_a_recovery_code_lets_in_and_the_page_says_why(alice, settings):
    client, secret = with_an_app(alice)
    codes = client.get(reverse("mfa_view_recovery_codes")).context["unused_codes"]
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "of another server", []
    another = Client()
    another.post(LOGIN, WORKER)
    refused = another.post(CODE, {"code": code_of(secret)})
    assert refused.status_code == 200
    assert "own key has changed since the app was set up" in html.unescape(refused.text)
    assert not is_in(another)
    for expected in (True, False):
        another = Client()
        another.post(LOGIN, WORKER)
        another.post(CODE, {"code": codes[0]})
        assert is_in(another) is expected
    assert codes[1] not in str(list(Authenticator.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_the_activity_tells_a_factor_from_the_recovery_codes_that_come_with_it(alice):
    with_an_app(alice)
    assert noted() == {"logged_in", "factor_added", "factor_reset"}
    assert ActivityEntry.objects.filter(what="factor_added").count() == 1


def test_the_admin_lets_in_nobody_with_a_second_factor_by_a_password_alone(client, alice):
    with_an_app(alice)
    User.objects.update(is_staff=True)
    assert "second factor" in client.post("/admin/login/", WORKER).text
    assert SESSION_KEY not in client.session


def test_the_secret_of_an_app_is_encrypted_in_the_database(alice, settings):
    _, secret = with_an_app(alice)
    authenticator = Authenticator.objects.get(type="totp")
    assert secret not in str(list(Authenticator.objects.values()))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    assert authenticator.wrap().validate_code(code_of(secret))


def test_no_second_factor_before_the_address_is_confirmed(client):
    """Somebody could otherwise register with another's address and keep them out for good."""
    client.post(REGISTER, GOOD)
    for name in ("mfa_activate_totp", "mfa_add_webauthn"):
        assert "Confirm your email address first" in client.get(reverse(name), follow=True).text


# Proofs


def test_after_a_quarter_of_an_hour_a_token_waits_for_the_password_and_is_then_made(client, alice):
    client.post(LOGIN, WORKER)
    requested = {"name": "Claude", "scopes": ["search"], "days": "7"}
    assert "Your new token" in client.post(TOKENS, requested).text
    age_the_proof(client)
    response = client.post(TOKENS, {**requested, "name": "Cursor"})
    assert response["Location"].startswith(CONFIRM)
    assert AccessToken.objects.count() == 1
    page = client.get(response["Location"])
    assert (
        "not the password" in client.post(response["Location"], {"password": "wrong"}).text or page.status_code == 200
    )
    assert AccessToken.objects.count() == 1
    made = client.post(CONFIRM, {"password": "password", "next": TOKENS})
    assert "Your new token" in made.text
    assert set(AccessToken.objects.values_list("name", flat=True)) == {"Claude", "Cursor"}
    assert client.post(TOKENS, requested).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["account_email", "mfa_add_webauthn", "mfa_activate_totp", "intake:export_account", "socialaccount_connections"],
)
def test_what_changes_how_one_gets_in_or_takes_all_along_waits_for_a_proof(client, alice, name):
    client.force_login(alice)
    assert not client.get(reverse(name)).get("Location", "").startswith(CONFIRM)
    age_the_proof(client)
    assert client.get(reverse(name))["Location"].startswith(CONFIRM)


def test_the_api_asks_a_session_for_a_proof_and_a_token_for_none(client, alice):
    _, secret = AccessToken.objects.issue(user=alice)
    client.force_login(alice)
    export = "/api/v1/account/export/"
    age_the_proof(client)
    assert client.get(export).status_code == 401
    assert client.post("/api/v1/tokens/", {"name": "x"}, content_type="application/json").status_code == 401
    # A stream that a test client reads to its end closes the test's connection, so these come last.
    assert Client().get(export, headers={"authorization": f"Bearer {secret}"}).status_code == 200


def test_an_account_is_deleted_by_its_password_however_long_ago_the_proof_was(client, alice):
    client.force_login(alice)
    age_the_proof(client)
    client.post(reverse("intake:delete_account"), {"password": "password"})
    assert not User.objects.exists()
