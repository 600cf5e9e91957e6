"""Registering, logging in and out, and what comes along from the visitor one was."""

from datetime import timedelta

import pytest
from django.contrib.messages import get_messages
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from intake.accounts import visitors
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_person, a_visitor, a_visitors_turn
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

REGISTER, LOGIN, LOGOUT, HOME = (reverse(f"intake:{name}") for name in ("register", "login", "logout", "home"))
GOOD = {"email": "Alice@Example.com", "password": "correct horse battery"}


@pytest.fixture
def client() -> Client:
    return Client(enforce_csrf_checks=False)


def as_visitor(client: Client, *messages: str) -> User:
    """Has this browser's visitor say something, as the chat endpoint does."""
    visitor = a_visitor()
    client.force_login(visitor)
    for message in messages:
        a_visitors_turn(visitor, message)
    return visitor


def test_registering_makes_a_person_and_logs_them_in(client):
    response = client.post(REGISTER, {**GOOD, "time_zone": "Europe/Lisbon"})
    assert response.status_code == 302
    assert response["Location"] == HOME
    user = User.objects.get()
    assert (user.email, user.time_zone) == ("alice@example.com", "Europe/Lisbon")
    assert user.check_password(GOOD["password"])
    assert client.session["_auth_user_id"] == str(user.pk)


def test_an_unknown_time_zone_is_taken_as_utc(client):
    client.post(REGISTER, {**GOOD, "time_zone": "../../etc/passwd"})
    assert User.objects.get().time_zone == "UTC"


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"email": "nonsense"}, "email", "valid email"),
        ({"email": ""}, "email", "required"),
        ({"password": ""}, "password", "required"),
        ({"password": "short"}, "password", "too short"),
        ({"password": "password123"}, "password", "too common"),
        ({"password": "8302175946"}, "password", "entirely numeric"),
        ({"email": "marmalade@example.com", "password": "marmalade"}, "password", "too similar"),
    ],
)
def test_what_is_wrong_is_said_beside_the_field(client, fields, field, words):
    response = client.post(REGISTER, {**GOOD, **fields})
    assert response.status_code == 200
    assert any(words in error for error in response.context["form"].errors[field])
    assert f'id="id_{field}_error"' in response.content.decode()
    assert response.context["form"].fields[field].widget.attrs["autofocus"]
    assert not User.objects.exists()


@pytest.mark.parametrize("email", ["alice@example.com", "ALICE@example.COM", " Alice@Example.com "])
def test_an_email_in_use_is_said_to_be_so_whatever_its_capitals(client, email):
    a_person("alice@example.com")
    response = client.post(REGISTER, {**GOOD, "email": email})
    assert "Log in instead" in response.content.decode()
    assert User.objects.count() == 1


def test_an_email_taken_between_the_check_and_the_save_is_told_like_any_other(client, monkeypatch):
    a_person("alice@example.com")
    monkeypatch.setattr("chat.pages.forms.RegisterForm.clean_email", lambda form: form.cleaned_data["email"])
    response = client.post(REGISTER, GOOD)
    assert response.status_code == 200
    assert "Log in instead" in response.content.decode()


def test_the_password_is_not_sent_back(client):
    response = client.post(REGISTER, {**GOOD, "email": "nonsense"})
    assert GOOD["password"] not in response.content.decode()


@pytest.mark.parametrize("email", ["alice@example.com", "Alice@Example.COM"])
def test_logging_in_takes_the_email_in_any_capitals(client, email):
    user = a_person("alice@example.com")
    response = client.post(LOGIN, {"username": email, "password": "password"})
    assert response["Location"] == HOME
    assert client.session["_auth_user_id"] == str(user.pk)


def test_a_wrong_password_and_an_unknown_email_get_the_same_words(client):
    a_person("alice@example.com")
    wrong = client.post(LOGIN, {"username": "alice@example.com", "password": "nope"})
    unknown = client.post(LOGIN, {"username": "bob@example.com", "password": "nope"})
    assert wrong.context["form"].errors == unknown.context["form"].errors
    assert "Wrong email or password" in wrong.content.decode()


def test_somebody_deactivated_cannot_log_in(client):
    user = a_person("alice@example.com")
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert client.post(LOGIN, {"username": "alice@example.com", "password": "password"}).status_code == 200
    assert "_auth_user_id" not in client.session


def test_logging_out_is_by_post_alone(client):
    client.force_login(a_person())
    assert client.get(LOGOUT).status_code == 405
    assert "_auth_user_id" in client.session
    assert client.post(LOGOUT)["Location"] == HOME
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize("path", [REGISTER, LOGIN, LOGOUT])
def test_a_form_without_its_token_is_refused(path):
    response = Client(enforce_csrf_checks=True).post(path, GOOD)
    assert response.status_code == 403
    assert "has expired" in response.content.decode()


@pytest.mark.parametrize("path", [REGISTER, LOGIN])
def test_who_is_logged_in_needs_neither_form(client, path):
    client.force_login(a_person())
    assert client.get(path)["Location"] == HOME
    assert client.get(path, {"next": "/conversations/"})["Location"] == "/conversations/"


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
@pytest.mark.parametrize("path", [REGISTER, LOGIN])
def test_next_leads_to_this_site_only(client, path, elsewhere):
    a_person("bob@example.com")
    fields = GOOD if path == REGISTER else {"username": "bob@example.com", "password": "password"}
    assert "evil" not in client.get(path, {"next": elsewhere}).content.decode()
    assert client.post(path, {**fields, "next": elsewhere})["Location"] == HOME


def test_next_is_followed_after_registering(client):
    page = client.get(REGISTER, {"next": "/conversations/"}).content.decode()
    assert 'name="next" value="/conversations/"' in page
    assert client.post(REGISTER, {**GOOD, "next": "/conversations/"})["Location"] == "/conversations/"


def test_browsers_are_told_what_to_fill_in(client):
    register, login = client.get(REGISTER).content.decode(), client.get(LOGIN).content.decode()
    assert 'autocomplete="email"' in register
    assert 'autocomplete="new-password"' in register
    assert 'autocomplete="username"' in login
    assert 'autocomplete="current-password"' in login


def told(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def test_registering_turns_the_visitors_own_row_into_an_account(client):
    visitor = as_visitor(client, "I moved to Lisbon", "My cat is called Miso")
    session_key = client.session.session_key
    response = client.post(REGISTER, GOOD)
    user = User.objects.get()
    assert (user.pk, user.is_visitor, user.email) == (visitor.pk, False, "alice@example.com")
    assert user.check_password(GOOD["password"])
    assert client.session.session_key != session_key
    assert Conversation.objects.for_user(user).count() == 2
    assert set(Turn.objects.values_list("user", flat=True)) == {user.pk}
    assert "The 2 messages you wrote in this browser are yours now." in told(response)


def test_a_visitor_may_look_at_both_forms(client):
    as_visitor(client)
    assert [client.get(path).status_code for path in (REGISTER, LOGIN)] == [200, 200]


@pytest.mark.parametrize("path", [LOGIN, "/admin/login/"])
def test_logging_in_moves_what_a_visitor_said_to_the_account_and_removes_the_visitor(client, path):
    user = a_person("alice@example.com")
    User.objects.update(is_staff=True)
    visitor = as_visitor(client, "I moved to Lisbon")
    before = {model: set(model.objects.values_list("pk", flat=True)) for model in (Conversation, Turn)}
    client.post(path, {"username": "alice@example.com", "password": "password"})
    assert {model: set(model.objects.filter(user=user).values_list("pk", flat=True)) for model in before} == before
    assert not User.objects.filter(pk=visitor.pk).exists()
    assert "The message you wrote in this browser is yours now." in client.get(HOME).content.decode()


def test_moving_keeps_every_field_of_a_row_but_its_owner(client):
    user, visitor = a_person(), a_visitor()
    a_visitors_turn(visitor, "I moved to Lisbon")
    rows = [model.objects.values().get() for model in (Conversation, Turn)]
    visitors.move_to_account(visitor=visitor, user=user)
    moved = [model.objects.values().get() for model in (Conversation, Turn)]
    for before, after in zip(rows, moved, strict=True):
        changed = {name for name in before if before[name] != after[name]}
        assert changed <= {"user_id", "updated_at"}


def test_a_failed_login_leaves_it_with_the_visitor(client):
    a_person("alice@example.com")
    visitor = as_visitor(client, "I moved to Lisbon")
    client.post(LOGIN, {"username": "alice@example.com", "password": "wrong"})
    assert client.session["_auth_user_id"] == str(visitor.pk)
    assert Turn.objects.get().user == visitor


def test_a_registration_that_is_refused_leaves_the_visitor_as_they_were(client):
    a_person("alice@example.com")
    visitor = as_visitor(client, "I moved to Lisbon")
    client.post(REGISTER, GOOD)
    assert list(User.objects.filter(is_visitor=True)) == [visitor]
    assert client.session["_auth_user_id"] == str(visitor.pk)


def test_nothing_is_told_when_nothing_came_along(client):
    a_person("bob@example.com")
    assert told(client.post(REGISTER, GOOD)) == []


def test_the_next_person_at_this_browser_gets_nothing_of_it(client):
    as_visitor(client, "I moved to Lisbon")
    client.post(REGISTER, GOOD)
    client.post(LOGOUT)
    assert "I moved to Lisbon" not in client.get(HOME).content.decode()
    client.post(REGISTER, {**GOOD, "email": "bob@example.com"})
    assert not Conversation.objects.for_user(User.objects.get(email="bob@example.com")).exists()


def test_visitors_who_come_no_more_are_removed_with_what_they_said():
    gone, silent, talking = a_visitor(), a_visitor(), a_visitor()
    person = a_person()
    a_visitors_turn(gone, "Hello")
    a_visitors_turn(talking, "Hello")
    User.objects.update(joined_at=NOW - timedelta(days=40))
    Turn.objects.filter(user=gone).update(said_at=NOW - timedelta(days=31))
    Turn.objects.filter(user=talking).update(said_at=NOW - timedelta(days=29))
    User.objects.filter(pk=silent.pk).update(joined_at=NOW - timedelta(days=29))
    with as_a_worker():
        assert visitors.remove_silent(now=NOW, after=timedelta(days=30)) == 1
    assert set(User.objects.all()) == {silent, talking, person}
    assert set(Conversation.objects.values_list("user", flat=True)) == {talking.pk}


def test_the_database_knows_no_visitor_with_an_email_and_no_account_without_one():
    for user in (User(email="a@example.com", is_visitor=True), User(email=None)):
        with pytest.raises(IntegrityError), transaction.atomic():
            user.save()


@pytest.mark.parametrize("typed", ["Europe/Lisbon", "lisbon", " Lisbon "])
def test_a_time_zone_is_typed_by_its_name_or_its_city(client, typed):
    client.post(REGISTER, GOOD)
    client.post("/settings/account/", {"time_zone": typed})
    assert User.objects.get().time_zone == "Europe/Lisbon"
    refused = client.post("/settings/account/", {"time_zone": "Atlantis"})
    assert "There is no such time zone" in refused.text
    assert User.objects.get().time_zone == "Europe/Lisbon"
