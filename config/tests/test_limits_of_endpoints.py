"""Every endpoint there is, found from the URLs, refuses somebody who asks too often: a person, and nobody in particular."""

import time

import pytest
import redis
from django.test import Client

from config.tests.endpoints import house, walking
from config.tests.endpoints.matrix import undone
from config.tests.endpoints.registered import ENDPOINTS
from core import rate_limits
from intake.models import User

pytestmark = pytest.mark.django_db

# Of the first endpoint that counts under a limit: it may answer, then find its sender logged out, and the third is one too
# many for anybody. Each later one that counts under it refuses its first.
TRIES = 3
KNOW_TOKENS = ("api/", "oauth/", "metrics")
NOWHERE = house.Things(conversation="0190c0de-0000-7000-8000-000000000003")


@pytest.fixture
def once_an_hour(settings, limited):
    settings.SECRET_KEY = f"for this test {time.monotonic_ns()}"
    limited(**dict.fromkeys(rate_limits.RATES, "1/hour"))
    rate_limits.bypass.until = 0.0


def forget(url):
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter("LIMITS:*"):
            client.delete(key)


def ask(client, endpoint, method, probe, things):
    path = f"/{things.fill(endpoint.at)}"
    options = {"headers": things.fill(probe.headers), "query_params": things.fill(probe.query)}
    if probe.body is not None:
        options |= {"data": things.fill(probe.body), "content_type": "application/json"}
    elif probe.form is not None and method == "POST":
        options |= {"data": things.fill(probe.form)}
    return getattr(client, method.lower())(path, **options)


def until_refused(client, endpoint, method, probe):
    for _ in range(TRIES):
        answer = ask(client, endpoint, method, probe, NOWHERE)
        yield answer
        if answer.status_code == 429:
            return


def unlimited(log_in):
    """Each method of each endpoint that still answered the last try, or refused it without `Retry-After`."""
    client = log_in()
    cookies = dict(client.cookies)
    for endpoint in ENDPOINTS.values():
        for method, probes in endpoint.probes.items():
            if probes[0].is_streamed or (log_in is a_wrong_token and not endpoint.route.startswith(KNOW_TOKENS)):
                continue
            client.cookies.clear()
            client.cookies.update(cookies)
            # What logs out, or deletes an account, has been taken back before the next.
            with undone():
                answers = list(until_refused(client, endpoint, method, probes[0]))
            refused = answers[-1]
            if refused.status_code != 429 or not int(refused.headers.get("Retry-After", 0)) > 0:
                yield f"{method} /{endpoint.route}: {[answer.status_code for answer in answers]}"


def nobody():
    return Client(raise_request_exception=False)


def a_wrong_token():
    """Where none is known its bearer is nobody."""
    return Client(raise_request_exception=False, headers={"authorization": "Bearer wrong"})


def somebody():
    """Staff as well, so that every page lets them in."""
    client = nobody()
    client.force_login(User.objects.create_superuser("somebody@example.com", "password"))
    return client


def test_the_walk_knows_every_route():
    assert {route.pattern for route in walking.routes()} == set(ENDPOINTS)


@pytest.mark.medium
@pytest.mark.parametrize("who", [nobody, a_wrong_token, somebody])
def test_every_endpoint_refuses_somebody_who_asks_too_often(once_an_hour, who):
    assert list(unlimited(who)) == []


def streamed():
    return [
        (endpoint, method, probes[0])
        for endpoint in ENDPOINTS.values()
        for method, probes in endpoint.probes.items()
        if probes[0].is_streamed
    ]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("who", ["person", "nobody"])
def test_so_does_every_endpoint_whose_answer_streams(once_an_hour, settings, who, new_client, log_in, person):
    settings.RATE_LIMITS = 0
    client = log_in(person) if who == "person" else new_client()
    headers = client._csrf()
    settings.RATE_LIMITS = 1
    endless = []
    assert len(streamed()) >= 2
    for endpoint, method, probe in streamed():
        body = {"json": NOWHERE.fill(probe.body)} if probe.body else {}
        address = f"/{NOWHERE.fill(endpoint.at)}"
        statuses = []
        for _ in range(TRIES):
            # Some of these answers have no end.
            with client.stream(method, address, headers=headers, **body) as response:
                statuses.append(response.status_code)
            if statuses[-1] == 429:
                break
        if statuses[-1] != 429:
            endless.append((method, endpoint.route, statuses))
    assert endless == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Bearer two words"])
def test_so_does_mcp_before_it_knows_who_asks(once_an_hour, settings, new_client, authorization):
    forget(settings.REDIS_URL)
    headers = {"authorization": authorization} if authorization else {}
    answers = [new_client().post("/mcp", json={}, headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [401, 429]
    assert int(answers[1].headers["retry-after"]) > 0


def test_an_address_that_leads_nowhere_is_limited_as_well(once_an_hour, settings):
    for path in ("/nowhere/", "/api/v1/nowhere/", "/api/nowhere/"):
        forget(settings.REDIS_URL)
        assert [Client().get(path).status_code for _ in range(2)] == [404, 429]
