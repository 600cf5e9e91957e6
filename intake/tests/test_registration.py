"""Who may register, by invitation or not at all; and an installation without visitors."""

import threading
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from core.errors import InvalidInput
from intake.accounts import visitors
from intake.accounts.registration import check_registration
from intake.models import Conversation, Invitation, User
from intake.tests.factories import a_person, a_visitor, a_visitors_turn
from testing.model_server import Say

pytestmark = pytest.mark.django_db

REGISTER, LOGIN, HOME = (reverse(f"intake:{name}") for name in ("register", "login", "home"))
GOOD = {"email": "alice@example.com", "password": "correct horse battery"}


@pytest.fixture
def by_invitation(settings):
    settings.REGISTRATION = "invite"


def test_without_an_invitation_the_page_says_what_is_needed(client, by_invitation):
    for response in (client.get(REGISTER), client.post(REGISTER, GOOD)):
        assert response.status_code == 403
        assert "you need an invitation" in response.content.decode()
    assert not User.objects.exists()


def test_an_invitation_lets_one_person_in_once(client, by_invitation):
    _, secret = Invitation.objects.issue(note="For Alice")
    page = client.get(REGISTER, {"invitation": secret})
    assert secret in page.content.decode()
    assert client.post(REGISTER, {**GOOD, "invitation": secret})["Location"] == HOME
    assert client.get(reverse("intake:account")).status_code == 200
    assert Client().get(REGISTER, {"invitation": secret}).status_code == 403
    again = Client().post(REGISTER, {**GOOD, "email": "bob@example.com", "invitation": secret})
    assert "used up" in again.content.decode()
    assert User.objects.count() == 1


def test_an_attempt_that_fails_uses_nothing_up(client, by_invitation):
    a_person("alice@example.com")
    invitation, secret = Invitation.objects.issue()
    for fields in ({"email": "alice@example.com"}, {"password": "short"}):
        assert client.post(REGISTER, {**GOOD, **fields, "invitation": secret}).status_code == 200
    invitation.refresh_from_db()
    assert invitation.used == 0


def test_an_invitation_that_expired_or_was_made_up_is_none(client, by_invitation):
    invitation, secret = Invitation.objects.issue(days=1)
    Invitation.objects.filter(pk=invitation.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    for each in (secret, "made-up", "x" * 5000, "\x00"):
        assert client.get(REGISTER, {"invitation": each}).status_code == 403
        assert client.post(REGISTER, {**GOOD, "invitation": each}).status_code == 403
    assert not User.objects.exists()


def test_only_the_digest_of_an_invitation_is_kept():
    invitation, secret = Invitation.objects.issue(note="For Alice")
    assert secret not in str(list(Invitation.objects.filter(pk=invitation.pk).values()))


def test_where_registration_is_closed_an_invitation_opens_nothing(client, settings):
    _, secret = Invitation.objects.issue()
    settings.REGISTRATION = "closed"
    assert client.get(REGISTER, {"invitation": secret}).status_code == 403
    assert client.post(REGISTER, {**GOOD, "invitation": secret}).status_code == 403
    assert not User.objects.exists()


@pytest.mark.parametrize("mode", ["invite", "closed"])
def test_no_page_links_to_a_registration_that_is_not_open(client, settings, mode):
    pages = (HOME, LOGIN, reverse("memory:search"))
    assert all(REGISTER in client.get(page).content.decode() for page in pages)
    settings.REGISTRATION = mode
    assert not any(REGISTER in client.get(page).content.decode() for page in pages)


@pytest.mark.django_db(transaction=True)
def test_two_who_come_at_once_with_the_last_use_get_one_account(by_invitation):
    _, secret = Invitation.objects.issue()
    outcomes = []

    def register(email: str) -> None:
        try:
            visitors.register(visitor=None, email=email, password="password", time_zone="UTC", invitation=secret)
            outcomes.append("in")
        except InvalidInput:
            outcomes.append("out")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=register, args=(f"p{number}@example.com",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["in", "out", "out", "out"]
    assert User.objects.count() == 1


def test_a_visitor_keeps_what_they_said_when_they_register_by_invitation(client, by_invitation):
    visitor = a_visitor()
    client.force_login(visitor)
    a_visitors_turn(visitor, "Mine")
    _, secret = Invitation.objects.issue()
    client.post(REGISTER, {**GOOD, "invitation": secret})
    assert User.objects.get().pk == visitor.pk
    assert Conversation.objects.filter(user=visitor).count() == 1


def test_staff_make_an_invitation_and_see_its_link_once(client):
    staff = User.objects.create_user("staff@example.org", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__model="invitation"))
    client.force_login(staff)
    fields = {"note": "For Bob", "uses": "2", "days": "3"}
    page = client.post("/admin/intake/invitation/add/", fields, follow=True).content.decode()
    assert "http://testserver/register/?invitation=" in page
    assert "?invitation=" not in client.get("/admin/intake/invitation/").content.decode()
    invitation = Invitation.objects.get()
    assert (invitation.note, invitation.uses) == ("For Bob", 2)
    assert timedelta(days=2.9) < invitation.expires_at - timezone.now() < timedelta(days=3.1)


def test_an_invitation_is_made_in_the_terminal(client, by_invitation):
    out = StringIO()
    call_command("invite", "--note", "For Bob", "--days", "2", stdout=out)
    assert client.get(out.getvalue().strip()).status_code == 200


@pytest.mark.parametrize("options", [["--uses", "0"], ["--days", "0"], ["--days", "1000"]])
def test_an_invitation_for_nobody_or_for_ever_is_refused(by_invitation, options):
    with pytest.raises(CommandError, match="1 to"):
        call_command("invite", *options)


def test_no_invitation_is_made_where_registration_is_closed(settings):
    settings.REGISTRATION = "closed"
    with pytest.raises(CommandError, match="closed"):
        call_command("invite")


def test_a_setting_that_is_none_of_the_three_stops_the_start(settings):
    assert check_registration() == []
    settings.REGISTRATION = "sometimes"
    (error,) = check_registration()
    assert "open, invite, closed" in error.hint


def test_without_visitors_every_page_sends_to_the_login(client, settings):
    settings.VISITORS = False
    for page in (HOME, reverse("intake:conversations")):
        assert client.get(page)["Location"] == f"{LOGIN}?next={page}"
    visitor = a_visitor()
    client.force_login(visitor)
    assert client.get(HOME)["Location"].startswith(LOGIN)
    client.force_login(a_person())
    assert client.get(HOME).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_without_visitors_nobody_chats_before_they_log_in(visitor, settings):
    settings.VISITORS = False
    response = visitor.chat("Good morning")
    assert (response.status_code, response.json()["detail"]) == (401, "Log in to chat here.")
    assert not User.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_visitors_together_have_a_budget_of_answers_by_a_model(visitor, language_model, limited):
    language_model(Say(("Hello.",)), Say(("Hello.",)))
    limited(visitors="1/day")
    assert visitor.chat("Good morning").status_code == 200
    assert visitor.chat("And again").status_code == 429
