"""Log-in by the header of a proxy: from its addresses alone, for one person at a time, and never by a session alone."""

import logging

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth import SESSION_KEY
from django.core.checks.registry import registry
from django.test import Client
from django.urls import reverse

from intake.accounts import login_header
from intake.models import Conversation, Invitation, Session, User
from intake.tests.factories import a_person, a_visitor, a_visitors_turn

pytestmark = pytest.mark.django_db

ACCOUNT, HOME = reverse("intake:account"), reverse("intake:home")
PROXY, ELSEWHERE = "10.9.8.7", "192.0.2.1"
ALICE, BOB = "alice@example.com", "bob@example.com"


@pytest.fixture(autouse=True)
def behind_a_proxy(settings):
    settings.LOGIN_HEADER, settings.LOGIN_HEADER_FROM = "Remote-Email", ["10.9.8.0/24", "fd00::/8"]
    settings.FIRST_PERSON_CODE = False
    login_header._complained_at.clear()


def ask(client, email=None, *, path=ACCOUNT, address=PROXY, **headers):
    named = {"Remote-Email": email} if email is not None else {}
    return client.get(path, headers={**named, **headers}, REMOTE_ADDR=address)


def person_in(client):
    return client.session.get(SESSION_KEY)


def proved(email):
    user = a_person(email)
    EmailAddress.objects.create(user=user, email=email, verified=True, primary=True)
    return user


def test_the_person_in_the_header_is_logged_in_and_stays_so():
    alice, client = proved(ALICE), Client()
    assert ask(client, " Alice@Example.com ").status_code == 200
    assert person_in(client) == str(alice.pk)
    key = client.session.session_key
    assert ask(client, ALICE).status_code == 200
    assert client.session.session_key == key
    assert Session.objects.count() == 1


@pytest.mark.parametrize("address", [ELSEWHERE, "10.9.9.7", "::1", "", "unknown"])
def test_the_header_from_another_address_is_ignored_and_logged(address, caplog):
    proved(ALICE)
    client = Client()
    with caplog.at_level(logging.WARNING, logger=login_header.__name__):
        assert ask(client, ALICE, address=address).status_code == 302
        # A client may write what it likes there.
        assert ask(client, ALICE, address=address, **{"X-Forwarded-For": PROXY}).status_code == 302
    assert person_in(client) is None
    # Once, and without the address of anybody.
    assert [record.getMessage() for record in caplog.records] == [login_header.UNTRUSTED % "Remote-Email"]


@pytest.mark.parametrize("address", ["::ffff:10.9.8.7", "fd00::5"])
def test_addresses_of_both_families_are_trusted(address):
    proved(ALICE)
    assert ask(Client(), ALICE, address=address).status_code == 200


def test_a_session_by_header_ends_when_the_header_names_another_person():
    bob, client = proved(BOB), Client()
    proved(ALICE)
    ask(client, ALICE)
    former = client.session.session_key
    assert ask(client, BOB).status_code == 200
    assert person_in(client) == str(bob.pk)
    assert not Session.objects.filter(session_key=former).exists()


def test_a_session_by_password_ends_when_the_header_names_another_person():
    client = Client()
    client.force_login(proved(ALICE))
    assert ask(client, "stranger@example.com", path=HOME).status_code == 200
    assert User.objects.get(pk=person_in(client)).email == "stranger@example.com"


@pytest.mark.medium
def test_a_session_by_header_is_none_without_the_header_or_the_proxy():
    proved(ALICE)
    for address, email in ((PROXY, None), (ELSEWHERE, ALICE), (ELSEWHERE, None)):
        client = Client()
        ask(client, ALICE)
        assert ask(client, email, address=address).status_code == 302
        assert person_in(client) is None


def test_a_session_by_password_goes_on_without_the_header():
    client = Client()
    client.force_login(proved(ALICE))
    assert ask(client, address=ELSEWHERE).status_code == 200


def test_without_the_setting_the_header_means_nothing(settings):
    settings.LOGIN_HEADER, settings.LOGIN_HEADER_FROM = "", []
    proved(ALICE)
    assert ask(Client(), ALICE).status_code == 302


@pytest.mark.parametrize(
    "value", ["alice", "alice@example.com,bob@example.com", "a@b", "x" * 250 + "@example.com", ","]
)
def test_a_value_that_is_not_one_address_logs_nobody_in(value):
    proved(ALICE)
    assert ask(Client(), value).status_code == 302
    assert User.objects.count() == 1


def test_a_new_person_gets_an_account_where_registration_is_open(settings):
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
    client = Client()
    assert ask(client, BOB).status_code == 200
    bob = User.objects.get(email=BOB)
    assert not bob.has_usable_password()
    assert EmailAddress.objects.get(user=bob).verified
    # There is nothing else to prove who they are by: export and deletion must not be closed to them.
    assert ask(client, BOB, path=reverse("intake:export_account"))["Location"].startswith("/api/v1/account/export/")


@pytest.mark.parametrize("registration", ["invite", "closed"])
def test_a_new_person_gets_no_account_where_nobody_may_register(registration, settings, caplog):
    settings.REGISTRATION = registration
    with caplog.at_level(logging.WARNING, logger=login_header.__name__):
        assert ask(Client(), BOB).status_code == 302
    assert not User.objects.exists()
    assert BOB not in caplog.text
    assert "without an account" in caplog.text


def test_an_invitation_that_was_opened_lets_a_new_person_in(settings):
    settings.REGISTRATION = "invite"
    (_, invitation), client = Invitation.objects.issue(), Client()
    ask(client, BOB, path=reverse("intake:register") + f"?invitation={invitation}")
    assert ask(client, BOB).status_code == 200
    # It was used up.
    assert ask(Client(), ALICE, path=reverse("intake:register") + f"?invitation={invitation}").status_code == 403


def test_the_first_person_needs_the_code_where_a_stranger_could_be_first(settings):
    settings.FIRST_PERSON_CODE = True
    assert ask(Client(), BOB).status_code == 302
    assert not User.objects.exists()


def test_a_person_who_is_switched_off_stays_out():
    User.objects.filter(pk=proved(ALICE).pk).update(is_active=False)
    assert ask(Client(), ALICE).status_code == 302


@pytest.mark.medium
def test_what_a_visitor_wrote_comes_along_to_a_new_and_to_an_old_account():
    for person in (None, proved(ALICE)):
        visitor, client = a_visitor(), Client()
        client.force_login(visitor)
        a_visitors_turn(visitor, "I moved to Lisbon")
        email = person.email if person else BOB
        assert ask(client, email).status_code == 200
        owner = User.objects.get(email=email)
        assert Conversation.objects.for_user(owner).count() == 1
        assert person_in(client) == str(owner.pk)


def test_the_first_log_in_ends_what_somebody_else_made_with_this_address():
    """Nobody had proved the address: another person may have registered it, and would keep their way in."""
    registered = a_person(ALICE)
    other = Client()
    other.force_login(registered)
    assert ask(Client(), ALICE).status_code == 200
    assert ask(other, address=ELSEWHERE).status_code == 302
    registered.refresh_from_db()
    assert not registered.has_usable_password()


def test_a_proved_account_keeps_its_password_and_its_sessions():
    alice, other = proved(ALICE), Client()
    other.force_login(alice)
    ask(Client(), ALICE)
    assert ask(other, address=ELSEWHERE).status_code == 200
    alice.refresh_from_db()
    assert alice.has_usable_password()


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer x", "x"])
def test_a_session_by_header_ends_without_it_whatever_else_is_sent(header):
    proved(ALICE)
    client = Client()
    assert ask(client, ALICE).status_code == 200
    ask(client, Authorization=header)
    assert person_in(client) is None


def test_a_request_with_a_token_begins_no_session():
    proved(ALICE)
    client = Client()
    answer = ask(client, ALICE, path="/api/v1/account/", Authorization="Bearer nonsense")
    assert answer.status_code == 401
    assert not Session.objects.exists()


@pytest.mark.parametrize(
    ("name", "addresses", "sentence"),
    [
        ("Remote-Email", [], "anybody could log in as anybody"),
        ("Remote-Email", ["0.0.0.0/0"], "which is everybody"),
        ("Remote-Email", ["10.0.0.1", "::/0"], "which is everybody"),
        ("Remote-Email", ["proxy.example"], "no address and no network"),
        ("Remote_Email", ["10.0.0.1"], "no name of a header"),
        ("Cookie", ["10.0.0.1"], "no name of a header"),
        ("", ["10.0.0.1"], "names no header"),
    ],
)
def test_a_dangerous_setting_is_refused_when_a_process_starts(name, addresses, sentence, settings):
    settings.LOGIN_HEADER, settings.LOGIN_HEADER_FROM = name, addresses
    (found,) = login_header.check_login_header(None)
    assert found.id == "intake.E006"
    assert sentence in found.msg


def test_the_right_settings_are_accepted_by_what_every_process_checks():
    assert login_header.check_login_header in registry.get_checks()
    assert login_header.check_login_header(None) == []
