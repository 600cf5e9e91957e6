"""Tokens: one place decides whom a secret stands for; people alone make and revoke them."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import InternalError, OperationalError, connection
from django.test import Client
from django.utils import timezone

from agent_tools.authentication import Refusal, TokenRefused, admit, create_token, secret_in, still_valid, verify
from agent_tools.models import AccessToken, TokenScope
from agent_tools.tests.callers import call, client_of
from core.isolation import acting
from intake.models import User
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db

URL = "/api/v1/tokens/"
NOW = timezone.now()


@pytest.fixture
def session(alice):
    client = Client()
    client.force_login(alice)
    return client


def make(client, **requested):
    return client.post(URL, json.dumps(requested), content_type="application/json")


def refusal_of(secret, now=None):
    with pytest.raises(TokenRefused) as refused:
        verify(secret, now=now or timezone.now())
    return refused.value.reason


def test_a_good_token_stands_for_its_owner_with_its_scopes(alice):
    made = create_token(user=alice, scopes=[TokenScope.SEARCH])
    caller = verify(made.secret, now=timezone.now())
    assert (caller.user, caller.scopes) == (alice, {TokenScope.SEARCH, TokenScope.READ})
    assert made.secret not in AccessToken.objects.values_list("digest", "name").get()


def test_the_owner_of_a_token_is_known_by_every_field(alice):
    owner = verify(create_token(user=alice).secret, now=timezone.now()).user
    stored = User.objects.get(pk=alice.pk)
    fields = [field.attname for field in User._meta.concrete_fields]
    assert {name: getattr(owner, name) for name in fields} == {name: getattr(stored, name) for name in fields}
    assert not owner.get_deferred_fields()


@pytest.mark.parametrize("secret", [None, ""])
def test_no_token_is_refused(secret):
    assert refusal_of(secret) is Refusal.MISSING


@pytest.mark.parametrize("secret", ["x" * 257, "tökën", "a b", "a\x00b", "\n"])
def test_a_malformed_token_is_refused(secret):
    assert refusal_of(secret) is Refusal.MALFORMED


def test_an_unknown_a_revoked_an_expired_and_a_deactivated_persons_token_are_refused(alice):
    assert refusal_of("f" * 64) is Refusal.UNKNOWN
    revoked, kept = create_token(user=alice), create_token(user=alice, days=1)
    AccessToken.objects.filter(public_id=revoked.id).delete()
    assert refusal_of(revoked.secret) is Refusal.UNKNOWN
    assert refusal_of(kept.secret, now=timezone.now() + timedelta(days=1)) is Refusal.EXPIRED
    alice.is_active = False
    alice.save()
    assert refusal_of(kept.secret) is Refusal.DEACTIVATED


def test_what_outlasts_its_first_check_can_be_checked_again(alice):
    digest = verify(create_token(user=alice, days=1).secret, now=timezone.now()).digest
    assert still_valid({digest}, now=timezone.now())
    assert not still_valid({digest}, now=timezone.now() + timedelta(days=1))
    type(alice).objects.update(is_active=False)
    assert not still_valid({digest}, now=timezone.now())
    type(alice).objects.update(is_active=True)
    AccessToken.objects.all().delete()
    assert not still_valid({digest}, now=timezone.now())


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        ("Bearer abc", "abc"),
        ("token abc", "abc"),
        ("Token  abc ", "abc"),
        ("Basic abc", None),
        ("", None),
        (None, None),
    ],
)
def test_the_secret_is_found_in_the_header(header, secret):
    assert secret_in(header) == secret


@pytest.mark.parametrize("header", ["Bearer", "Token ", "Bearer a b", "Bearer tökën", "Bearer " + "x" * 300])
def test_a_header_that_has_no_usable_secret_is_malformed(header):
    with pytest.raises(TokenRefused) as refused:
        secret_in(header)
    assert refused.value.reason is Refusal.MALFORMED


def test_its_last_use_is_noted_to_the_minute(alice):
    secret = create_token(user=alice).secret
    for seconds, noted in ((0, 0), (59, 0), (61, 61)):
        verify(secret, now=NOW + timedelta(seconds=seconds))
        assert AccessToken.objects.get().last_used_at == NOW + timedelta(seconds=noted)


@pytest.mark.parametrize(
    ("address", "network"), [("203.0.113.9", "203.0.113.0/24"), ("2001:db8:1:2::", "2001:db8:1::/48"), ("unknown", "")]
)
def test_the_network_it_was_used_from_is_noted(alice, address, network):
    admit(create_token(user=alice).secret, address=address, now=NOW)
    assert AccessToken.objects.get().last_used_from == network


@pytest.mark.parametrize(
    ("header", "detail"),
    [
        (None, "Log in, or send a valid token."),
        ("Bearer", Refusal.MALFORMED),
        ("Token a b", Refusal.MALFORMED),
        ("Bearer " + "f" * 64, Refusal.UNKNOWN),
        ("Basic YTpi", "Log in, or send a valid token."),
    ],
)
def test_rest_refuses_without_a_good_token_and_says_why(header, detail):
    response = Client(headers={"authorization": header} if header else None).get("/api/v1/tools/")
    assert (response.status_code, response.json()["code"]) == (401, "authentication_required")
    assert response.json()["detail"] == detail
    assert response.headers["WWW-Authenticate"].startswith("Bearer ")


@pytest.mark.parametrize("scheme", ["Bearer", "Token", "bearer"])
def test_rest_takes_either_scheme(alice, scheme):
    headers = {"authorization": f"{scheme} {create_token(user=alice).secret}"}
    assert Client(headers=headers).get("/api/v1/tools/").status_code == 200


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "api_key"])
def test_a_token_in_the_address_is_no_token(alice, name):
    assert Client().get("/api/v1/tools/", {name: create_token(user=alice).secret}).status_code == 401


def test_a_token_needs_the_tools_scope(alice):
    response = call(client_of(alice, scopes=[TokenScope.WRITE]), "search_chat_history", {"query": "cat"})
    assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")
    assert response.json()["detail"] == "This token lacks the scope `search`."
    assert (
        call(client_of(alice, scopes=[TokenScope.SEARCH]), "search_chat_history", {"query": "cat"}).status_code == 200
    )


@pytest.mark.parametrize("scope", [scope for scope in TokenScope if scope != TokenScope.CHAT])
def test_a_chat_needs_a_token_that_may_chat_or_search_and_write(alice, scope):
    client = client_of(alice, scopes=[scope])
    response = client.post("/api/v1/intake/chat", '{"message": "hello"}', content_type="application/json")
    assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")


def test_a_token_that_may_only_write_gets_the_id_and_what_it_sent_back_and_cannot_delete(alice):
    reader, writer = client_of(alice), client_of(alice, scopes=[TokenScope.WRITE])
    documents = "/api/v1/memory/documents/"
    for path in (f"{documents}memory/", f"{documents}daily-logs/2026-03-01/"):
        kept = reader.put(path, {"content": "the secret plan\n"}, content_type="application/json")
        assert kept.status_code == 201
        added = writer.post(f"{path}append/", {"text": "one more"}, content_type="application/json")
        assert (added.status_code, added.json().keys(), added.json()["text"]) == (200, {"id", "text"}, "one more")
        assert "ETag" not in added.headers
        assert reader.get(path).json()["content"] == "the secret plan\none more\n"
        anything = {"content_type": "application/json", "headers": {"If-Match": "*"}}
        for refused in (
            writer.get(path),
            writer.delete(path, **anything),
            writer.put(path, {"content": ""}, **anything),
            writer.post(f"{documents}daily-logs/2026-03-01/take-back/", {"text": "one more"}, **anything),
        ):
            assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
    log = {"text": "and another", "date": "2026-03-01"}
    told = call(writer, "append_daily_log", log, **{"Idempotency-Key": "a"}).json()
    assert (told.keys(), told["text"]) == ({"documentId", "text"}, "and another")
    assert "length" in call(reader, "append_daily_log", log, **{"Idempotency-Key": "b"}).json()
    assert call(writer, "append_daily_log", log, **{"Idempotency-Key": "b"}).json()["code"] == "idempotency_key_reused"
    record = call(writer, "save_memory", {"content": "oaks"}).json()["record"]
    assert writer.delete(f"/api/v1/memory/records/{record['id']}/").status_code == 403
    assert client_of(alice, scopes=[TokenScope.DELETE]).delete(f"/api/v1/memory/records/{record['id']}/").content == b""


def test_search_and_write_together_delete_as_they_always_did_and_read_and_write_do_not(alice):
    both = client_of(alice, scopes=[TokenScope.SEARCH, TokenScope.WRITE])
    record = call(both, "save_memory", {"content": "oaks"}).json()["record"]
    reading = client_of(alice, scopes=[TokenScope.READ, TokenScope.WRITE])
    assert reading.delete(f"/api/v1/memory/records/{record['id']}/").status_code == 403
    assert both.delete(f"/api/v1/memory/records/{record['id']}/").status_code == 204


def test_a_token_that_may_only_read_opens_what_is_named_and_searches_nothing(alice):
    client = client_of(alice, scopes=[TokenScope.READ])
    assert client.get("/api/v1/memory/records/").status_code == 200
    assert call(client, "list_recent_conversations", {}).status_code == 200
    assert call(client, "search_history", {"query": "cat"}).status_code == 403


def test_imports_need_a_token_with_their_own_scope(alice):
    for scope in TokenScope:
        response = client_of(alice, scopes=[scope]).get("/api/v1/imports/")
        assert response.status_code == (200 if scope == TokenScope.IMPORT else 403)


def test_a_person_makes_sees_and_revokes_their_tokens(session, alice):
    made = make(session, name="  my   laptop ", scopes=["search"], expiresInDays=7)
    assert made.status_code == 201
    assert "no-store" in made.headers["Cache-Control"]
    body = made.json()
    secret = body.pop("token")
    assert (body["name"], body["scopes"]) == ("my laptop", ["search"])
    expiry = AccessToken.objects.get().expiry - timezone.now()
    assert timedelta(days=6, hours=23) < expiry <= timedelta(days=7)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    assert client.get("/api/v1/tools/").status_code == 200
    (listed,) = session.get(URL).json()["tokens"]
    assert listed.keys() == {
        "id",
        "name",
        "scopes",
        "createdAt",
        "expiresAt",
        "lastUsedAt",
        "lastUsedFrom",
        "project",
        "bound",
        "keeps",
    }
    assert listed["id"] == body["id"]
    assert secret not in session.get(URL).content.decode()
    assert session.delete(f"{URL}{body['id']}/").status_code == 204
    assert client.get("/api/v1/tools/").status_code == 401
    assert session.get(URL).json() == {"tokens": []}


def test_without_wishes_a_token_may_search_and_write_for_a_year(session):
    body = make(session).json()
    assert (body["name"], body["scopes"]) == ("", ["search", "write"])
    assert body["expiresAt"][:10] == (timezone.now() + timedelta(days=365)).date().isoformat()


@pytest.mark.parametrize(
    ("requested", "field"),
    [
        ({"name": "x" * 81}, "name"),
        ({"name": 5}, "name"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["admin"]}, "scopes.0"),
        ({"expiresInDays": 0}, "expiresInDays"),
        ({"expiresInDays": 366}, "expiresInDays"),
        ({"expiresInDays": None}, "expiresInDays"),
        ({"user": 1}, "user"),
    ],
)
def test_a_wrong_wish_is_refused_naming_the_field(session, requested, field):
    response = make(session, **requested)
    assert (response.status_code, list(response.json()["errors"])) == (400, [field])
    assert not AccessToken.objects.exists()


def test_a_token_cannot_manage_tokens(alice):
    client = client_of(alice)
    kept = AccessToken.objects.get()
    for response in (client.get(URL), make(client), client.delete(f"{URL}{kept.public_id}/")):
        assert (response.status_code, response.json()["code"]) == (403, "insufficient_scope")
    assert AccessToken.objects.get() == kept


def test_nobody_manages_tokens_without_a_session_and_csrf(alice):
    assert make(Client()).status_code == 401
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    assert make(client).status_code == 401
    assert not AccessToken.objects.exists()


def test_somebody_elses_token_a_missing_and_a_malformed_id_get_the_same_bytes(session):
    theirs = create_token(user=a_person("bob@example.com")).id
    answers = [session.delete(f"{URL}{key}/") for key in (theirs, uuid4(), "x")]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert AccessToken.objects.count() == 1
    assert session.get(URL).json() == {"tokens": []}


def test_there_is_an_end_to_how_many_tokens_a_person_has(session, monkeypatch):
    monkeypatch.setattr("agent_tools.authentication.MOST_TOKENS", 2)
    assert [make(session).status_code for _ in range(3)] == [201, 201, 400]


def test_a_node_that_is_away_while_the_use_is_noted_is_an_unavailable_database(alice, monkeypatch):
    secret = create_token(user=alice).secret
    monkeypatch.setattr(acting, "is_cluster", lambda connection: True)

    def without_node(execute, sql, params, many, context):
        if sql.startswith("UPDATE"):
            raise InternalError("failure on connection marked as essential")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(without_node), pytest.raises(OperationalError):
        verify(secret, now=timezone.now())
