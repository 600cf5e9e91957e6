"""The first person administers a new installation, and chooses who may register afterwards."""

import threading
from contextlib import nullcontext
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connections, transaction
from django.test import Client
from django.urls import reverse

from config.public_url import is_within_reach
from config.settings import base
from config.stack import preflight
from core.errors import InvalidInput
from core.ids import first_code
from intake.accounts import registration, visitors
from intake.accounts.adapters import OtherServiceAdapter
from intake.llm import model_servers
from intake.models import InstallationSetting, Invitation, User, installation
from intake.tests.factories import a_person, a_visitor
from testing.examiner import as_the_application

pytestmark = pytest.mark.django_db

REGISTER, LOGIN, HOME = (reverse(f"intake:{name}") for name in ("register", "login", "home"))
SETTINGS, INVITE = reverse("intake:staff_settings"), reverse("intake:staff_invite")
GOOD = {"email": "alice@example.com", "password": "correct horse battery"}


@pytest.fixture(autouse=True)
def nothing_kept():
    """What a process remembers of another test's settings."""
    installation.forget_kept_settings()
    yield
    installation.forget_kept_settings()


@pytest.fixture
def staff(client):
    person = User.objects.create_user("alice@example.com", "password", is_staff=True)
    client.force_login(person)
    return client


def test_the_first_person_administers_and_is_asked_who_may_register(client):
    page = client.post(REGISTER, GOOD, follow=True).content.decode()
    alice = User.objects.get()
    assert (alice.is_staff, alice.is_superuser) == (True, True)
    assert "your account administers this Recollect" in page
    assert "data-who-may-register" in page
    # One question at a time.
    assert "data-example" not in page and "no-model" not in page and 'role="status">You' not in page
    answer = client.post(SETTINGS, {"registration": "invite", "from_home": "1"}, follow=True)
    assert "data-who-may-register" not in answer.content.decode()
    assert Client().get(REGISTER).status_code == 403


def test_the_second_person_administers_nothing(client):
    a_person()
    page = client.post(REGISTER, GOOD, follow=True).content.decode()
    bob = User.objects.get(email=GOOD["email"])
    assert (bob.is_staff, bob.is_superuser) == (False, False)
    assert "administers" not in page and "data-who-may-register" not in page


def test_a_visitor_who_is_first_to_register_administers(client):
    visitor = a_visitor()
    client.force_login(visitor)
    client.post(REGISTER, GOOD)
    alice = User.objects.get()
    assert (alice.pk, alice.is_staff) == (visitor.pk, True)


@pytest.mark.django_db(transaction=True)
def test_of_several_who_register_at_once_one_is_first():
    together = threading.Barrier(4)

    def register(number: int) -> None:
        try:
            together.wait()
            visitors.register(visitor=None, email=f"p{number}@example.com", password="password", time_zone="UTC")
        finally:
            connections.close_all()

    threads = [threading.Thread(target=register, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert User.objects.count() == 4
    assert User.objects.filter(is_staff=True, is_superuser=True).count() == 1


def test_where_a_stranger_could_be_first_the_code_is_needed(client, settings, rf):
    settings.FIRST_PERSON_CODE = True
    assert 'name="code"' in client.get(REGISTER).content.decode()
    for wrong in ("", "AAAA-AAAA-AAAA", "é"):
        answer = client.post(REGISTER, {**GOOD, "code": wrong})
        assert "Enter the code" in answer.content.decode()
    assert not User.objects.exists()
    request = rf.get("/")
    request.session = {}
    assert OtherServiceAdapter().is_open_for_signup(request, None) is False
    code = first_code(settings.SECRET_KEY)
    assert client.post(REGISTER, {**GOOD, "code": f" {code.lower()} "})["Location"] == HOME
    assert User.objects.get().is_staff
    other = Client()
    assert 'name="code"' not in other.get(REGISTER).content.decode()
    assert other.post(REGISTER, {**GOOD, "email": "bob@example.com"})["Location"] == HOME
    assert OtherServiceAdapter().is_open_for_signup(request, None) is True


def test_a_code_of_another_key_opens_nothing(settings):
    settings.FIRST_PERSON_CODE = True
    with pytest.raises(InvalidInput):
        visitors.register(
            visitor=None, email="a@example.com", password="password", time_zone="UTC", code=first_code("another key")
        )
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("public_url", "hosts", "expected"),
    [
        ("", [], False),
        ("", ["localhost", "127.0.0.1"], False),
        ("", ["localhost", "192.168.1.5"], True),
        ("https://memory.example", [], True),
        ("https://nas.local", [], False),
        ("http://192.168.1.5:8000", [], False),
    ],
)
def test_a_code_is_needed_where_others_reach_the_server(public_url, hosts, expected):
    assert is_within_reach(public_url, hosts) is expected


def test_the_terminal_prints_the_code_until_somebody_has_registered(settings):
    out = StringIO()
    call_command("invite", "--first", stdout=out)
    assert f"{REGISTER} asks for {first_code(settings.SECRET_KEY)}" in out.getvalue()
    a_person()
    with pytest.raises(CommandError, match="registered already"):
        call_command("invite", "--first")


@pytest.mark.parametrize(
    ("environment", "is_first", "expected"),
    [
        ({}, True, "administers this Recollect."),
        ({"PUBLIC_URL": "https://memory.example"}, True, f"needs the code {first_code('a key')}."),
        ({"ALLOWED_HOSTS": "localhost,192.168.1.5"}, True, f"needs the code {first_code('a key')}."),
        ({"ALLOWED_HOSTS": "localhost,192.168.1.5", "FIRST_PERSON_CODE": "off"}, True, "administers this Recollect."),
        ({"PUBLIC_URL": "https://memory.example"}, False, ""),
    ],
)
def test_make_up_says_who_is_first(monkeypatch, environment, is_first, expected):
    server = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: (not is_first,)))
    monkeypatch.setattr(preflight, "connected", lambda *_, **__: nullcontext(server))
    sentence = preflight.about_the_first_person({"DATABASE_OWNER_URL": "", "SECRET_KEY": "a key", **environment})
    assert sentence.endswith(expected) if expected else sentence == ""
    assert ("code" in sentence) is ("code" in expected)


@pytest.mark.parametrize(
    ("environment", "kept", "is_named"),
    [({}, None, True), ({}, ([],), True), ({}, ([{"name": "fast"}],), False), ({"LLM_MODEL": "gpt"}, None, False)],
)
def test_make_up_names_a_server_of_models_until_one_is_connected(monkeypatch, environment, kept, is_named):
    server = SimpleNamespace(execute=lambda _: SimpleNamespace(fetchone=lambda: kept))
    monkeypatch.setattr(preflight, "connected", lambda *_, **__: nullcontext(server))
    found = [("Ollama", "http://127.0.0.1:11434/v1", ["llama"])]
    monkeypatch.setattr(model_servers, "find_servers", lambda **_: found)
    sentences = preflight.about_servers_of_models(
        {"DATABASE_OWNER_URL": "", **environment}, own_port=8000, address="http://localhost:8000"
    )
    expected = "Ollama runs at http://127.0.0.1:11434/v1: use it by one click at http://localhost:8000/staff/models/."
    assert sentences == ([expected] if is_named else [])


# -- The page of settings ------------------------------------------------------------------------------------------------


def test_only_staff_see_the_page_of_settings(client):
    assert client.get(SETTINGS)["Location"].startswith(LOGIN)
    client.force_login(a_visitor())
    assert client.get(SETTINGS)["Location"].startswith(LOGIN)
    client.force_login(a_person())
    for path in (SETTINGS, reverse("intake:staff_models"), reverse("intake:staff_model", args=["new"])):
        assert client.get(path).status_code == 404
        assert client.post(path, {"registration": "closed"}).status_code == 404
    assert client.post(INVITE).status_code == 404
    assert not InstallationSetting.objects.exists() and not Invitation.objects.exists()


def test_what_staff_choose_applies_at_once(staff):
    assert Client().get(HOME).status_code == 200
    page = staff.post(SETTINGS, {"registration": "closed", "visitors": "no"}, follow=True).content.decode()
    assert 'value="closed" checked' in page and 'value="no" checked' in page
    assert Client().get(REGISTER).status_code == 403
    assert Client().get(HOME)["Location"].startswith(LOGIN)
    assert staff.post(SETTINGS, {"registration": "sometimes"}).status_code == 200
    assert registration.policy() == "closed"


def test_what_is_not_sent_stays(staff):
    staff.post(SETTINGS, {"visitors": "no"})
    staff.post(SETTINGS, {"registration": "invite"})
    assert (registration.policy(), installation.may_visitors_chat()) == ("invite", False)


def test_the_environment_is_shown_as_fixed_and_wins(staff, settings):
    staff.post(SETTINGS, {"registration": "closed"})
    settings.REGISTRATION, settings.VISITORS = "open", True
    page = staff.get(SETTINGS).content.decode()
    # The list of chats beside it has buttons that wait for their script.
    assert page.partition("<main")[2].count(" disabled>") == 2
    assert page.count("Set in the environment.") == 2
    staff.post(SETTINGS, {"registration": "invite", "visitors": "no"})
    assert (registration.policy(), installation.may_visitors_chat()) == ("open", True)
    settings.REGISTRATION = ""
    assert registration.policy() == "closed"


def test_an_invitation_is_made_in_the_page_and_lets_one_person_in(staff):
    staff.post(SETTINGS, {"registration": "invite"})
    page = staff.post(INVITE).content.decode()
    secret = page.split("?invitation=")[1].split('"')[0]
    assert "?invitation=" not in staff.get(SETTINGS).content.decode()
    other = Client()
    assert other.post(REGISTER, {**GOOD, "email": "bob@example.com", "invitation": secret})["Location"] == HOME
    assert Client().get(REGISTER, {"invitation": secret}).status_code == 403


def test_another_process_learns_of_a_change_within_five_seconds(settings):
    """It asks again after `KEPT_SETTINGS_SECONDS`."""
    assert base.KEPT_SETTINGS_SECONDS < 5
    assert registration.policy() == "open"
    InstallationSetting.objects.create(name=installation.REGISTRATION, value="closed")
    assert registration.policy() == "open"
    settings.KEPT_SETTINGS_SECONDS = 0
    assert registration.policy() == "closed"


def test_the_application_reads_settings_and_writes_none():
    InstallationSetting.objects.create(name=installation.REGISTRATION, value="closed")
    for write in (
        lambda: InstallationSetting.objects.update(value="open"),
        lambda: InstallationSetting.objects.create(name="other", value=1),
        lambda: InstallationSetting.objects.all().delete(),
    ):
        with as_the_application():
            assert InstallationSetting.objects.get().value == "closed"
            with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
                write()
