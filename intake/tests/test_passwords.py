"""Passwords are hashed in a bounded pool, without a connection, and in today's way from the next log-in on."""

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.db import connections
from django.test import Client
from django.urls import reverse

from core.errors import RateLimited
from intake import passwords
from intake.models import User
from intake.passwords import HashingPool
from intake.tests.factories import a_person

LOGIN = reverse("intake:login")
HASHERS = ["intake.passwords.Argon2idHasher", "django.contrib.auth.hashers.PBKDF2PasswordHasher"]


@pytest.fixture
def full_pool(monkeypatch):
    """One whose only thread is busy, and where nobody may wait."""
    started, may_end = threading.Event(), threading.Event()
    pool = HashingPool(threads=1, queue=0)

    def hash_slowly():
        started.set()
        return may_end.wait(30)

    with ThreadPoolExecutor(1) as others:
        running = others.submit(pool.run, hash_slowly)
        assert started.wait(30)
        monkeypatch.setattr(passwords, "pool", pool)
        yield pool
        may_end.set()
        assert running.result(30)
    assert pool.run(lambda: "served again") == "served again"


def test_one_more_than_the_queue_holds_is_asked_to_come_again():
    pool, may_end = HashingPool(threads=1, queue=2), threading.Event()
    with ThreadPoolExecutor(4) as people:
        logins = [people.submit(pool.run, may_end.wait, 30) for _ in range(4)]
        [refused], served = wait(logins, timeout=30, return_when=FIRST_COMPLETED)
        may_end.set()
        assert all(login.result(30) for login in served)
    error = refused.exception()
    assert isinstance(error, RateLimited)
    assert error.retry_after == passwords.RETRY_AFTER_SECONDS


@pytest.mark.django_db
@pytest.mark.parametrize("email", ["alice@example.com", "unknown@example.com"])
def test_the_login_page_says_so(email, monkeypatch, request):
    a_person("alice@example.com")
    request.getfixturevalue("full_pool")
    refused = Client().post(LOGIN, {"username": email, "password": "password"})
    assert (refused.status_code, refused["Retry-After"]) == (429, "2")
    assert passwords.BUSY in refused.text


@pytest.mark.django_db
def test_a_password_that_could_not_be_looked_at_deletes_no_account(request):
    alice = a_person("alice@example.com")
    client = Client()
    client.force_login(alice)
    request.getfixturevalue("full_pool")
    assert client.post(reverse("intake:delete_account"), {"password": "password"}).status_code == 429
    assert client.delete("/api/v1/account/", {"password": "password"}, "application/json").status_code == 429
    assert User.objects.filter(pk=alice.pk).exists()


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
    run = passwords.pool.run
    monkeypatch.setattr(passwords.pool, "run", lambda *args, **kwargs: hashed.append(args) or run(*args, **kwargs))
    for email in ("alice@example.com", "unknown@example.com"):
        hashed.clear()
        Client().post(LOGIN, {"username": email, "password": "wrong"})
        assert len(hashed) == 1
