"""What a token may see and remove by its scopes, at every endpoint of the API that changes something."""

import pytest
from django.db import connection
from django.test import Client

from agent_tools.authentication import create_token, effective
from agent_tools.models import TokenScope
from config.tests.endpoints.matrix import undone, written_rows, written_since
from config.tests.endpoints.registered import ENDPOINTS
from core.isolation.checks import personal_models
from intake.models import Conversation

pytestmark = pytest.mark.django_db
WORD = "rumpelstiltskin"
# Each change makes these anew out of what the others hold.
DERIVED = ("IdempotentAnswer", "PendingTerms", "MapPoint", "TellingWord")
REMOVABLE = {model._meta.db_table for model in personal_models() if model.__name__ not in DERIVED}


@pytest.fixture
def alice(alice_now):
    return alice_now


def writes():
    """Every registered write of the API, with what goes in."""
    for endpoint in ENDPOINTS.values():
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for probe in endpoint.probes.get(method, []):
                if endpoint.route.startswith("api/") and not probe.is_streamed:
                    yield endpoint, method, probe


def ask(secret, alice, endpoint, method, probe):
    fill = alice.things.fill
    data = {} if probe.body is None else {"data": fill(probe.body), "content_type": probe.content_type}
    headers = {"authorization": f"Bearer {secret}", **fill(probe.headers)}
    path = f"/{fill(endpoint.at)}"
    browser = Client(raise_request_exception=False)
    return getattr(browser, method.lower())(path, query_params=fill(probe.query), headers=headers, **data)


def secret_of(alice, scopes):
    return create_token(user=alice.user, name="x", scopes=scopes).secret


def counts(user, tables=REMOVABLE):
    with connection.cursor() as cursor:
        found = {}
        for table in tables & REMOVABLE:
            cursor.execute(f"SELECT count(*) FROM {table} WHERE user_id = %s", [user.pk])
            found[table] = cursor.fetchone()[0]
        return found


@pytest.mark.medium
def test_a_token_that_may_not_read_gets_no_word_that_it_did_not_send(alice):
    # A token with fewer scopes is refused where this one is answered, and is answered nowhere else.
    secret = secret_of(alice, [TokenScope.WRITE, TokenScope.DELETE, TokenScope.CHAT])
    told = []
    for endpoint, method, probe in writes():
        sent = str(alice.things.fill([probe.body, probe.query, endpoint.at]))
        with undone():
            answer = ask(secret, alice, endpoint, method, probe)
        if WORD in answer.text.lower() and WORD not in sent:
            told.append(f"{method} /{endpoint.route}: {answer.text[:300]}")
    assert not told, "\n".join(told)


@pytest.mark.medium
def test_what_removes_something_needs_the_scope_delete(alice):
    secret = secret_of(alice, [scope for scope in TokenScope if scope not in (TokenScope.DELETE, TokenScope.SEARCH)])
    before, removed = counts(alice.user), []
    for endpoint, method, probe in writes():
        with undone():
            written = written_rows()
            answer = ask(secret, alice, endpoint, method, probe)
            now = counts(alice.user, written_since(written))
            lost = {table for table, count in now.items() if count < before[table]}
        is_undo = "undo" in endpoint.route or method == "DELETE"
        if lost or (is_undo and answer.status_code < 400):
            removed.append(f"{method} /{endpoint.route}: {answer.status_code} {sorted(lost)}")
    assert not removed, "\n".join(removed)


APPENDED = {
    "product": "codex",
    "session": "s1",
    "turns": [{"uuid": "1", "saidAt": "2026-02-03T10:00:00Z", "user": "Hi"}],
}


def append(secret, **fields):
    headers = {"authorization": f"Bearer {secret}"}
    return Client().post("/api/v1/sessions/append/", {**APPENDED, **fields}, "application/json", headers=headers)


def test_what_a_token_appends_belongs_to_its_project_unless_the_call_names_one(alice):
    secret = create_token(user=alice.user, scopes=[TokenScope.CAPTURE], project="git@github.com:me/app.git").secret
    assert append(secret, cwd="/home/me/src").json() == {"stored": 1, "here": 0}
    append(secret, session="s2", project="me/other")
    found = Conversation.objects.filter(source="codex").values_list("external_id", "project")
    assert dict(found) == {"s1": "me/app", "s2": "me/other"}


@pytest.mark.medium
def test_a_token_that_captures_does_that_alone_and_gets_no_word(alice):
    secret = secret_of(alice, [TokenScope.CAPTURE])
    told, before = {}, counts(alice.user)
    for endpoint in ENDPOINTS.values():
        for method, probes in endpoint.probes.items():
            for probe in probes:
                if endpoint.route.startswith("api/") and not probe.is_streamed:
                    with undone():
                        written = written_rows()
                        answer = ask(secret, alice, endpoint, method, probe)
                        now = counts(alice.user, written_since(written))
                        changed = any(count != before[table] for table, count in now.items())
                    if WORD in answer.text.lower() or changed or answer.status_code < 400:
                        told[f"{method} /{endpoint.route}"] = answer.status_code
    assert told == {"POST /api/v1/sessions/append/": 200, **ABOUT_NOBODY}


# What says nothing about anybody: the list of tools, the document and its page.
ABOUT_NOBODY = {"GET /api/v1/tools/": 200, "GET /api/v1/schema/": 200, "GET /api/docs/": 200}


def test_capture_is_no_other_scope_and_none_contains_it(alice):
    secret = secret_of(alice, [scope for scope in TokenScope if scope != TokenScope.CAPTURE])
    assert append(secret).json()["code"] == "insufficient_scope"
    assert effective(["capture"]) == {TokenScope.CAPTURE}


def test_a_token_that_only_imports_sees_and_takes_back_what_it_began(alice):
    own, other = (secret_of(alice, [TokenScope.IMPORT]) for _ in range(2))
    reading = secret_of(alice, [TokenScope.IMPORT, TokenScope.READ])
    browser, path = Client(), "/api/v1/imports/"

    def ask(secret, method, address, **sent):
        return browser.generic(method, address, headers={"authorization": f"Bearer {secret}"}, **sent)

    begun = ask(own, "POST", path, data=b'{"filename": "x.zip", "bytes": 1}', content_type="application/json").json()
    address = f"{path}{begun['id']}/"
    ways = [("GET", ""), ("GET", "preview/"), ("GET", "events/"), ("PUT", "content/"), ("POST", "start/")]
    ways += [("POST", "cancel/"), ("POST", "undo/"), ("DELETE", "")]
    assert {ask(other, method, f"{address}{way}").status_code for method, way in ways} == {404}
    assert begun["id"] not in ask(other, "GET", path).text
    for secret in (own, reading):
        assert begun["id"] in ask(secret, "GET", path).text
        assert ask(secret, "GET", address).status_code == 200
    # To see is not to remove.
    assert ask(reading, "DELETE", address).status_code == 403
    assert ask(own, "DELETE", address).status_code == 204
