"""Passwords are hashed in a bounded pool, without a connection, and in today's way from the next log-in on."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connections
from django.test import Client
from django.urls import reverse

from intake import passwords
from intake.models import User
from intake.tests.factories import a_person

LOGIN = reverse("intake:login")
HASHERS = ["intake.passwords.Argon2idHasher", "django.contrib.auth.hashers.PBKDF2PasswordHasher"]


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_a_password_is_hashed(monkeypatch):
    alice = a_person("alice@example.com")

    def check():
        """In a thread of its own, whose connection is from the pool as a request's is."""
        database = connections["default"]
        seen = []
        monkeypatch.setattr(passwords, "check_password", lambda *_, **__: seen.append(database.connection is None))
        try:
            User.objects.count()
            seen.append(database.connection is None)
            alice.check_password("password")
        finally:
            connections.close_all()
        return seen

    with ThreadPoolExecutor(1) as requests:
        assert requests.submit(check).result(30) == [False, True]


@pytest.mark.django_db
def test_an_old_hash_is_made_anew_at_log_in(settings):
    settings.PASSWORD_HASHERS = HASHERS
    alice = a_person("alice@example.com")
    old = PBKDF2PasswordHasher().encode("password", "salt", iterations=1_000)
    User.objects.filter(pk=alice.pk).update(password=old)
    assert Client().post(LOGIN, {"username": alice.email, "password": "wrong"}).status_code == 200
    alice.refresh_from_db()
    assert alice.password.startswith("pbkdf2_sha256$")
    for _ in range(2):
        assert Client().post(LOGIN, {"username": alice.email, "password": "password"}).status_code == 302
        alice.refresh_from_db()
        assert alice.password.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")


@pytest.mark.django_db
def test_an_unknown_address_costs_as_many_hashes_as_a_wrong_password(monkeypatch):
    a_person("alice@example.com")
    hashed = []
    submit = passwords.pool.submit
    monkeypatch.setattr(
        passwords.pool, "submit", lambda *args, **kwargs: hashed.append(args) or submit(*args, **kwargs)
    )
    for email in ("alice@example.com", "unknown@example.com"):
        hashed.clear()
        Client().post(LOGIN, {"username": email, "password": "wrong"})
        assert len(hashed) == 1
