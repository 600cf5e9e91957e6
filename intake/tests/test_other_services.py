"""Logging in by another service: a new account where one may register, never one that exists for an equal address alone."""

import urllib.error
import urllib.request

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.conf import settings as django_settings
from django.contrib.auth import SESSION_KEY
from django.test import Client
from django.urls import reverse

from intake.models import Conversation, Invitation, User
from intake.tests.factories import a_person, a_visitor, a_visitors_turn
from intake.tests.oidc_server import serving_openid

pytestmark = pytest.mark.django_db

LOGIN, HOME, ACCOUNT = (reverse(f"intake:{name}") for name in ("login", "home", "account"))
BY_OIDC = "/login/by/oidc/oidc/login/"


@pytest.fixture(scope="module")
def running():
    with serving_openid(sub="42", email="alice@example.com", email_verified=True, name="Alice") as provider:
        yield provider


@pytest.fixture
def provider(running, settings):
    app = {**django_settings.OIDC_APP, "settings": {"server_url": running.address}}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [app], "OAUTH_PKCE_ENABLED": True}}
    return running


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def by_oidc(client: Client, start: str = BY_OIDC, **form):
    """Press the button, be sent there and back; returns the answer to coming back."""
    there = client.post(start, form)["Location"]
    with pytest.raises(urllib.error.HTTPError) as sent_back:
        urllib.request.build_opener(_Stay).open(there)
    sent_back.value.close()
    return client.get(sent_back.value.headers["Location"].removeprefix("http://testserver"))


def is_in(client: Client) -> bool:
    return client.get(ACCOUNT).status_code == 200


def test_the_first_log_in_makes_an_account_of_the_visitor_and_the_next_finds_it(client, provider):
    visitor = a_visitor()
    client.force_login(visitor)
    a_visitors_turn(visitor, "I moved to Lisbon")
    assert by_oidc(client, next="/memory/")["Location"] == "/memory/"
    user = User.objects.get()
    assert (user.pk, user.email, user.is_visitor, user.has_usable_password()) == (
        visitor.pk,
        "alice@example.com",
        False,
        False,
    )
    assert EmailAddress.objects.get().verified
    assert is_in(client)
    again = Client()
    by_oidc(again)
    assert again.session[SESSION_KEY] == str(user.pk)
    assert not SocialToken.objects.exists()


def test_logging_in_again_brings_along_what_a_visitor_said(client, provider):
    by_oidc(Client())
    visitor = a_visitor()
    client.force_login(visitor)
    a_visitors_turn(visitor, "I moved to Lisbon")
    by_oidc(client)
    assert Conversation.objects.for_user(User.objects.get()).count() == 1


def test_an_equal_address_opens_nobodys_account(client, provider):
    a_person("alice@example.com")
    response = by_oidc(client)
    assert response["Location"] == reverse("socialaccount_signup")
    assert "already exists" in client.post(response["Location"], {"email": "alice@example.com"}).text
    assert not is_in(client)
    assert User.objects.count() == 1
    client.force_login(User.objects.get())
    by_oidc(client, f"{BY_OIDC}?process=connect")
    assert SocialAccount.objects.get().user == User.objects.get()
    by_oidc(another := Client())
    assert is_in(another)


@pytest.mark.parametrize(("mode", "is_let_in"), [("invite", False), ("closed", False), ("open", True)])
def test_no_account_is_made_where_one_may_not_register(client, provider, settings, mode, is_let_in):
    settings.REGISTRATION = mode
    by_oidc(client)
    assert is_in(client) is is_let_in
    assert User.objects.exists() is is_let_in


def test_an_invitation_that_was_opened_in_this_browser_is_used_up(client, provider, settings):
    settings.REGISTRATION = "invite"
    invitation, secret = Invitation.objects.issue()
    client.get(reverse("intake:register"), {"invitation": secret})
    by_oidc(client)
    assert is_in(client)
    invitation.refresh_from_db()
    assert invitation.used == 1


def test_buttons_are_where_a_service_is_configured(client, provider, settings):
    assert "Example ID" in client.get(LOGIN).text
    settings.SOCIALACCOUNT_PROVIDERS = {}
    assert "Example ID" not in client.get(LOGIN).text
    assert client.get(BY_OIDC).status_code == 404


def test_a_service_that_is_away_or_answers_nonsense_lets_nobody_in_and_breaks_nothing(client, provider, settings):
    state = client.post(BY_OIDC)["Location"].partition("state=")[2].partition("&")[0]
    refused = client.get(f"{BY_OIDC}callback/", {"code": "guessed", "state": state})
    assert "did not say who you are" in refused.text
    provider_app = {**django_settings.OIDC_APP, "settings": {"server_url": "http://127.0.0.1:9"}}
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"APPS": [provider_app]}}
    assert "is not responding" in client.post(BY_OIDC, follow=True).text
    assert not is_in(client)
