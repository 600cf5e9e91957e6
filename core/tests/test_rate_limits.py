"""How often one may ask: counted for all processes, told politely, never a way to lock others out, never a way to stop."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import redis
from django.core.checks import run_checks
from django.test import Client, RequestFactory
from django.urls import reverse
from rest_framework.test import APIClient

from core import rate_limits
from core.errors import RateLimited
from intake.models import User
from intake.tests.factories import a_person

LOGIN, REGISTER = reverse("intake:login"), reverse("intake:register")
API = "/api/v1/conversations/"


@pytest.fixture(autouse=True)
def fresh(settings, request, monkeypatch):
    """Windows of its own for each test, and a Redis that is asked again, and waited for: the machine may be busy."""
    settings.SECRET_KEY = f"for this test {time.monotonic_ns()}"
    rate_limits.bypass.until = 0.0
    if "silent_server" not in request.fixturenames:
        monkeypatch.setattr(rate_limits, "TIMEOUT_SECONDS", 5)
    rate_limits._limiter.cache_clear()


def times_allowed(name: str, *subjects: object, tries: int = 20) -> int:
    allowed = 0
    for _ in range(tries):
        try:
            rate_limits.take_all((name, *subjects))
        except RateLimited:
            continue
        allowed += 1
    return allowed


def test_a_window_holds_its_count_and_each_subject_has_one(limited):
    limited(api="5/hour")
    assert times_allowed("api", 1) == 5
    assert times_allowed("api", 2) == 5


def test_it_refills_and_says_when(limited):
    limited(api="10/second")
    assert times_allowed("api", 1) >= 10
    with pytest.raises(RateLimited) as refused:
        while True:
            rate_limits.take_all(("api", 1))
    assert refused.value.retry_after == 1
    time.sleep(2)
    assert times_allowed("api", 1) >= 10


def test_many_threads_together_get_no_more_than_one(limited):
    limited(api="50/hour")
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: times_allowed("api", 1, tries=25), range(8))) == 50


def test_what_one_limit_refuses_is_not_counted_under_another(limited):
    limited(mail="1/hour", mail_address="3/hour")
    for _ in range(5):
        with suppress(RateLimited):
            rate_limits.take_for_mail("a@example.com", address="192.0.2.1")
    rate_limits.take_for_mail("b@example.com", address="192.0.2.1")
    rate_limits.take_for_mail("c@example.com", address="192.0.2.1")
    with pytest.raises(RateLimited):
        rate_limits.take_for_mail("d@example.com", address="192.0.2.1")


def test_what_is_an_accounts_does_not_count_against_its_address(limited):
    limited(chat="2/hour", page="2/hour", page_address="2/hour")
    for user_id in range(5):
        rate_limits.take_for("chat", user_id=user_id, address="192.0.2.1")
        token = rate_limits.known_account.set(user_id)
        rate_limits.take_for_page("session", address="192.0.2.1")
        rate_limits.known_account.reset(token)
    for _ in range(2):
        rate_limits.take_for("chat", user_id=None, address="192.0.2.1")
        rate_limits.take_for_page(None, address="192.0.2.1")
    with pytest.raises(RateLimited):
        rate_limits.take_for("chat", user_id=None, address="192.0.2.1")
    with pytest.raises(RateLimited):
        rate_limits.take_for_page(None, address="192.0.2.1")


def test_no_limit_is_no_limit(settings, limited):
    limited(api="1/hour")
    assert times_allowed("unheard_of", 1, tries=100) == 100
    settings.RATE_LIMITS = 0
    assert times_allowed("api", 1, tries=100) == 100


def test_windows_end_by_themselves_and_name_nobody(settings, limited):
    limited(login="10/minute", login_address="100/minute")
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        before = set(client.scan_iter("LIMITS:*"))
        rate_limits.take_for_password("Alice@example.com", address="192.0.2.1")
        keys = set(client.scan_iter("LIMITS:*")) - before
        assert len(keys) == 2
        assert not any(b"alice" in key.lower() or b"192.0.2" in key for key in keys)
        assert all(0 < client.pttl(key) <= 120_000 for key in keys)


@pytest.fixture
def silent_server():
    """Accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def accept():
            # On a busy machine the test may be over before the thread is back here.
            with suppress(OSError):
                for _ in range(2):
                    held.append(server.accept())

        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        for connection, _ in held:
            connection.close()


@pytest.mark.parametrize("kind", ["refuses", "is silent"])
def test_when_redis_is_away_this_process_counts_and_nobody_is_kept_waiting(
    settings, caplog, silent_server, kind, limited
):
    limited(api="20/hour")
    settings.REDIS_URL = silent_server if kind == "is silent" else "redis://127.0.0.1:9/0"
    started = time.monotonic()
    assert times_allowed("api", 1, tries=50) == 20
    assert times_allowed("api", 2, tries=50) == 20
    assert time.monotonic() - started < 0.3
    assert [record.message.startswith("Each process counts") for record in caplog.records] == [True]


@pytest.mark.django_db
def test_passwords_cannot_be_guessed_while_redis_is_away(settings, limited):
    limited(login="3/hour", login_address="5/hour")
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    client, email = Client(), "alice@example.com"
    statuses = [client.post(LOGIN, {"username": email, "password": "x"}).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]
    others = [client.post(LOGIN, {"username": f"{n}@example.com", "password": "x"}).status_code for n in range(3)]
    assert others == [200, 200, 429]


def test_redis_is_asked_again_after_a_while(settings, limited):
    limited(api="1/hour")
    url, settings.REDIS_URL = settings.REDIS_URL, "redis://127.0.0.1:9/0"
    assert times_allowed("api", 1) == 1
    settings.REDIS_URL = url
    assert times_allowed("api", 1) == 0
    rate_limits.bypass.until -= rate_limits.REST_SECONDS
    assert times_allowed("api", 1) == 1


# -- Where a request comes from ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "203.0.113.9", "192.0.2.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "198.51.100.7, 203.0.113.9", "203.0.113.9"),
        (2, "198.51.100.7, 203.0.113.9, 192.0.2.8", "203.0.113.9"),
        (2, "203.0.113.9", "192.0.2.1"),
        (1, "nonsense", "192.0.2.1"),
        (1, "", "192.0.2.1"),
        (1, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        (1, "::ffff:203.0.113.9", "203.0.113.9"),
    ],
)
def test_only_ones_own_proxies_are_believed(settings, proxies, forwarded, address):
    settings.TRUSTED_PROXIES = proxies
    request = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1", HTTP_X_FORWARDED_FOR=forwarded)
    assert rate_limits.client_address(request) == address


def test_over_a_socket_there_is_no_address_and_still_an_answer():
    assert rate_limits.client_address(RequestFactory().get("/", REMOTE_ADDR="")) == "unknown"


# -- At the endpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_api_answers_429_with_the_contracts_problem(limited):
    limited(api="2/hour")
    client = APIClient()
    client.force_authenticate(a_person())
    statuses = [client.get(API).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    refused = client.get(API)
    assert refused["Content-Type"] == "application/problem+json"
    assert 0 < int(refused["Retry-After"]) <= 3600
    assert (refused.json()["code"], refused.json()["retryable"]) == ("rate_limited", True)


@pytest.mark.django_db
def test_a_failed_login_is_counted_for_the_account_at_that_address_alone(limited):
    limited(login="3/hour", login_address="100/hour")
    a_person("alice@example.com")
    attacker, owner = Client(REMOTE_ADDR="192.0.2.66"), Client(REMOTE_ADDR="192.0.2.1")
    for email in ("alice@example.com", "ALICE@example.com", " alice@example.com"):
        assert attacker.post(LOGIN, {"username": email, "password": "wrong"}).status_code == 200
    right = {"username": "alice@example.com", "password": "password"}
    refused = attacker.post(LOGIN, right)
    assert (refused.status_code, "Too many requests" in refused.text) == (429, True)
    assert int(refused["Retry-After"]) > 0
    assert owner.post(LOGIN, right).status_code == 302


@pytest.mark.django_db
def test_an_address_cannot_try_one_password_on_every_account(limited):
    limited(login="3/hour", login_address="5/hour")
    client = Client()
    statuses = [client.post(LOGIN, {"username": f"{n}@example.com", "password": "x"}).status_code for n in range(6)]
    assert statuses == [200] * 5 + [429]


@pytest.mark.django_db
def test_the_admins_endpoint_counts_the_same_tries(limited):
    limited(login="2/hour")
    User.objects.create_superuser("root@example.com", "password")
    client = Client()
    for _ in range(2):
        client.post(LOGIN, {"username": "root@example.com", "password": "wrong"})
    refused = client.post("/admin/login/", {"username": "root@example.com", "password": "password"})
    assert (refused.status_code, "Too many requests" in refused.text) == (429, True)
    assert "_auth_user_id" not in client.session


@pytest.mark.django_db
def test_registering_is_limited_by_address(limited):
    limited(register_address="2/hour")
    client = Client()
    statuses = [client.post(REGISTER, {"email": "x"}).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    assert Client(REMOTE_ADDR="192.0.2.9").post(REGISTER, {"email": "x"}).status_code == 200


@pytest.mark.medium
@pytest.mark.django_db
@pytest.mark.parametrize("endpoint", ["page", "api"])
def test_a_stolen_session_cannot_try_passwords_for_ever(limited, endpoint):
    limited(login="2/hour")
    alice = a_person()
    client = APIClient()
    client.force_login(alice)

    def confirm(password):
        if endpoint == "page":
            return client.post(reverse("intake:delete_account"), {"password": password})
        return client.delete("/api/v1/account/", {"password": password}, format="json")

    confirm("wrong")
    confirm("wrong")
    assert confirm("password").status_code == 429
    assert User.objects.filter(pk=alice.pk).exists()


@pytest.mark.django_db(transaction=True)
def test_the_chat_is_limited_by_person_wherever_they_are(limited, person, stranger, log_in):
    limited(chat="1/hour")
    assert log_in(person).events("Hello")[-1].name == "done"
    refused = log_in(person).chat("Again")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["Retry-After"]) > 0
    assert log_in(stranger).events("Hello")[-1].name == "done"


@pytest.mark.django_db(transaction=True)
def test_a_visitor_who_forgets_their_cookies_is_the_same_address(limited, new_client):
    limited(chat="1/hour")
    new_client().events("Hello")
    assert new_client().chat("Again").status_code == 429


def test_a_factor_scales_all_limits_and_one_below_0_is_said_at_start_up(settings, limited):
    assert all(rate_limits._scaled(rate, 1).amount >= 1 for rate in rate_limits.RATES.values())
    limited(api="10/hour", calls=3)
    settings.RATE_LIMITS = 0.5
    assert (times_allowed("api", 1), rate_limits.most_at_once("calls")) == (5, 2)
    settings.RATE_LIMITS = -1
    assert [error.id for error in run_checks()] == ["core.E005"]
