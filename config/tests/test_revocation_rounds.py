"""A round of checks asks one query for all sessions and one for all tokens, and no error in one ends it."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agent_tools.authentication import create_token, verify
from agent_tools.models import AccessToken
from intake import revocation
from intake.accounts.identity import SessionStore
from intake.models import Session, User
from intake.revocation import SessionCheck, TokenCheck
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def connection_stays(monkeypatch):
    """The test's transaction is on it."""
    monkeypatch.setattr(revocation, "connections", SimpleNamespace(close_all=lambda: None))


def a_session(user, **changes):
    store = SessionStore()
    backend = "intake.backends.LimitedBackend"
    store.update(
        {SESSION_KEY: str(user.pk), BACKEND_SESSION_KEY: backend, HASH_SESSION_KEY: user.get_session_auth_hash()}
        | changes
    )
    store.save()
    return SessionCheck(store.session_key, user.pk)


def a_token(user):
    made = create_token(user=user, name="a program")
    return TokenCheck(verify(made.secret, now=timezone.now(), address="127.0.0.1"))


def test_one_query_for_all_sessions_and_one_for_all_tokens():
    people = [a_person(f"{number}@example.com") for number in range(10)]
    checks = [check for user in people for check in (a_session(user), a_token(user))]
    with CaptureQueriesContext(connection) as queries:
        assert revocation._ask(checks) == []
    assert len(queries) == 2, [query["sql"] for query in queries]


def test_together_and_one_by_one_the_checks_say_the_same():
    people = [a_person(f"{number}@example.com") for number in range(8)]
    good, changed, inactive, ended, expired, _, strange, forged = people
    checks = [a_session(user) for user in people[:6]] + [
        a_session(strange, **{BACKEND_SESSION_KEY: "no.such.Backend"}),
        a_session(forged, **{HASH_SESSION_KEY: "forged"}),
    ]
    changed.set_password("another")
    changed.save()
    User.objects.filter(pk=inactive.pk).update(is_active=False)
    Session.objects.filter(user=ended).delete()
    Session.objects.filter(user=expired).update(expire_date=timezone.now() - timedelta(seconds=1))
    checks[5] = SessionCheck(checks[5].session_key, good.pk)
    out = revocation._ask(checks)
    assert out == [each for each in checks if not each()] == checks[1:]
    assert revocation._ask([SessionCheck(None, 1), SessionCheck("x" * 500, 2), checks[0]]) == [
        SessionCheck(None, 1),
        SessionCheck("x" * 500, 2),
    ]


def test_a_revoked_token_is_out_among_others():
    users = [a_person(f"{number}@example.com") for number in range(3)]
    checks = [a_token(user) for user in users]
    AccessToken.objects.filter(user=users[1]).delete()
    User.objects.filter(pk=users[2].pk).update(is_active=False)
    assert revocation._ask(checks) == checks[1:]


def test_a_check_that_fails_ends_neither_the_round_nor_the_others(monkeypatch):
    def broken():
        raise ValueError

    good = [a_session(a_person(f"{number}@example.com")) for number in range(2)]
    assert revocation._ask([broken, *good]) == [broken]

    def fail(_checks):
        raise ValueError

    monkeypatch.setattr(SessionCheck, "good_among", fail)
    assert revocation._ask(good) == []
