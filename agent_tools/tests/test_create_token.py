"""The command that makes a token for a person's agent."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from agent_tools.models import AccessToken
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db


def create_token(*arguments):
    out = StringIO()
    call_command("create_token", *arguments, stdout=out)
    return out.getvalue().strip()


def test_the_printed_token_works_and_only_its_digest_is_kept():
    alice = a_person()
    token = create_token("Alice@Example.com", "--name", "laptop")
    assert Client(headers={"authorization": f"Token {token}"}).get("/api/v1/tools/").status_code == 200
    kept = AccessToken.objects.get()
    assert (kept.user, kept.name) == (alice, "laptop")
    assert token != kept.digest


def test_an_expired_token_and_a_deactivated_persons_are_refused():
    alice = a_person()
    client = Client(headers={"authorization": f"Token {create_token(alice.email)}"})
    AccessToken.objects.update(expiry="2020-01-01T00:00:00Z")
    assert client.get("/api/v1/tools/").status_code == 401
    client = Client(headers={"authorization": f"Token {create_token(alice.email)}"})
    type(alice).objects.update(is_active=False)
    assert client.get("/api/v1/tools/").status_code == 401


def test_nobodys_token_is_not_made():
    with pytest.raises(CommandError, match="Nobody is registered as ghost"):
        create_token("ghost@example.com")


def test_it_makes_tokens_of_chosen_scopes_and_days():
    alice = a_person()
    create_token(alice.email, "--scopes", "search", "--days", "7")
    kept = AccessToken.objects.get()
    assert kept.scopes == ["search"]
    assert timedelta(days=6) < kept.expiry - timezone.now() <= timedelta(days=7)


@pytest.mark.parametrize("days", ["0", "-1", "4000"])
def test_a_lifetime_that_is_none_is_refused(days):
    with pytest.raises(CommandError, match="days"):
        create_token(a_person().email, "--days", days)
