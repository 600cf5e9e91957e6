"""The first proof of an address ends whatever somebody else made who registered it before its owner."""

import re
from datetime import timedelta

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from intake.models import Session, User
from intake.tests.factories import a_passkey

pytestmark = pytest.mark.django_db

VICTIM = "victim@example.com"
FIRST, OWN = "correct horse battery", "another horse battery"
LOGIN, REGISTER, ACCOUNT = (reverse(f"intake:{name}") for name in ("login", "register", "account"))
RESET, TOKENS = reverse("account_reset_password"), reverse("agent_tools:tokens")
Application, OAuthToken, Grant = (
    apps.get_model(f"oauth2_provider.{name}") for name in ("Application", "AccessToken", "Grant")
)
Connection, AccessToken = (apps.get_model(f"agent_tools.{name}") for name in ("AgentConnection", "AccessToken"))


def agent(user):
    client = Application.objects.create(name="An agent", redirect_uris="https://agent.example/back")
    theirs = {"user": user, "application": client}
    soon = timezone.now() + timedelta(hours=1)
    OAuthToken.objects.create(**theirs, token="access", expires=soon, scope="search")
    Connection.objects.create(**theirs, scopes=["search"], created_at=timezone.now())


def code(user):
    client = Application.objects.create(name="An agent", redirect_uris="https://agent.example/back")
    soon = timezone.now() + timedelta(hours=1)
    Grant.objects.create(user=user, application=client, code="code", expires=soon, redirect_uri="https://a.example")


def token(user):
    AccessToken.objects.issue(user=user, scopes=["search", "write"])


MAKES = {
    "a session": (lambda user: Client().force_login(user), Session),
    "a token": (token, AccessToken),
    "an agent": (agent, Connection),
    "an agent's token": (agent, OAuthToken),
    "an agent's code": (code, Grant),
    "an app for codes": (
        lambda user: Authenticator.objects.create(user=user, type="totp", data={"secret": "x"}),
        Authenticator,
    ),
    "a passkey": (a_passkey, Authenticator),
    "another service": (
        lambda user: SocialAccount.objects.create(user=user, provider="oidc", uid="evil"),
        SocialAccount,
    ),
}


def links(beginning: str) -> list[str]:
    found = [path for message in mail.outbox for path in re.findall(r"http://testserver(/\S+)", message.body)]
    return [path for path in found if path.startswith(beginning)]


def reset(browser: Client, password: str = OWN) -> None:
    browser.post(RESET, {"email": VICTIM})
    form = browser.get(links("/login/password/")[-1], follow=True)
    assert browser.post(form.redirect_chain[-1][0], {"password1": password}).status_code == 302


def confirm(browser: Client):
    return browser.post(links("/email/")[-1])


def registered() -> tuple[Client, User]:
    attacker = Client()
    attacker.post(REGISTER, {"email": VICTIM, "password": FIRST})
    return attacker, User.objects.get(email=VICTIM)


def is_in(browser: Client) -> bool:
    return browser.get(ACCOUNT).status_code == 200


@pytest.mark.parametrize("prove", [reset, confirm], ids=["reset", "link"])
def test_the_first_proof_of_an_address_ends_what_was_made_before(prove):
    """All kinds at once: each has a table or a type of its own there."""
    attacker, user = registered()
    for make in {make for make, _ in MAKES.values()}:
        make(user)
    assert left_of(user) == {kind: True for kind in MAKES}
    prove(Client())
    assert left_of(user) == {kind: False for kind in MAKES}
    assert not is_in(attacker)
    assert EmailAddress.objects.get(user=user).verified


def left_of(user: User) -> dict[str, bool]:
    return {kind: model.objects.filter(user=user).exists() for kind, (_, model) in MAKES.items()}


def test_every_kind_of_access_that_names_a_user_is_tried():
    """A new table of access needs a case above."""
    named = {"Session", "SocialAccount", "Authenticator", "AccessToken", "RefreshToken", "Grant", "AgentConnection"}
    apps_of_access = ("account", "mfa", "socialaccount", "oauth2_provider", "agent_tools")
    found = {
        model.__name__
        for model in apps.get_models()
        if model._meta.app_label in apps_of_access
        and any(field.related_model is User and field.name == "user" for field in model._meta.concrete_fields)
    }
    # No role may write device codes and OpenID's tokens, and addresses have tests of their own.
    assert found - {"DeviceGrant", "IDToken", "EmailAddress", "Application"} <= named


def test_a_link_elsewhere_ends_the_password_and_asks_for_a_new_one():
    registered()
    owner = Client()
    page = owner.get(links("/email/")[-1])
    assert "choose a new password" in page.text
    asked = owner.get(confirm(owner)["Location"], follow=True)
    assert "New password" in asked.text
    owner.post(asked.redirect_chain[-1][0], {"password1": OWN})
    assert not is_in(logged_in(FIRST))
    assert is_in(logged_in(OWN))


def logged_in(password: str) -> Client:
    browser = Client()
    browser.post(LOGIN, {"username": VICTIM, "password": password})
    return browser


@pytest.mark.medium
def test_the_session_that_proves_keeps_itself_and_what_it_made():
    browser, _ = registered()
    browser.post(TOKENS, {"name": "Mine", "scopes": ["search"], "days": "7"})
    elsewhere = logged_in(FIRST)
    elsewhere.post(TOKENS, {"name": "Not mine", "scopes": ["search"], "days": "7"})
    assert AccessToken.objects.count() == 2
    assert "not logged in to this account here" not in browser.get(links("/email/")[-1]).text
    confirm(browser)
    assert is_in(browser)
    assert not is_in(elsewhere)
    assert [kept.name for kept in AccessToken.objects.all()] == ["Mine"]
    assert is_in(logged_in(FIRST))


def test_a_later_reset_ends_no_token_unless_it_is_asked_to():
    browser, user = registered()
    confirm(browser)
    token(user)
    reset(Client())
    assert AccessToken.objects.filter(user=user).exists()


def test_an_address_that_waits_beside_the_proved_one_is_dropped():
    attacker, user = registered()
    attacker.post(reverse("account_email"), {"email": "evil@example.com", "action_add": ""})
    evil = links("/email/")[-1]
    reset(Client())
    attacker.post(evil)
    user.refresh_from_db()
    assert user.email == VICTIM


def test_a_new_address_that_is_confirmed_elsewhere_ends_what_acts_for_the_account():
    """Somebody may have added an address that is not theirs to their own account."""
    attacker = Client()
    attacker.post(REGISTER, {"email": "evil@example.com", "password": FIRST})
    attacker.post(links("/email/")[-1])
    user = User.objects.get()
    token(user)
    attacker.post(reverse("account_email"), {"email": VICTIM, "action_add": ""})
    confirm(Client())
    user.refresh_from_db()
    assert (user.email, user.has_usable_password()) == (VICTIM, False)
    assert not is_in(attacker)
    assert not AccessToken.objects.filter(user=user).exists()


def test_a_new_address_that_is_confirmed_in_the_accounts_session_ends_nothing():
    browser = Client()
    browser.post(REGISTER, {"email": "first@example.com", "password": FIRST})
    browser.post(links("/email/")[-1])
    user = User.objects.get()
    token(user)
    browser.post(reverse("account_email"), {"email": VICTIM, "action_add": ""})
    confirm(browser)
    user.refresh_from_db()
    assert user.email == VICTIM
    assert is_in(browser)
    assert AccessToken.objects.filter(user=user).exists()
