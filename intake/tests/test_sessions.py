"""The sessions of a person: stored by a digest, listed in words, ended one by one or all at once, and by a new password."""

from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib.auth import SESSION_KEY
from django.core import mail
from django.db import connection
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from intake.accounts import devices
from intake.accounts.identity import SessionStore
from intake.models import Session
from intake.models.sessions import SessionDigest
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db

AccessToken = apps.get_model("agent_tools.AccessToken")

SESSIONS, PASSWORD, HOME = (reverse(f"intake:{name}") for name in ("sessions", "password", "home"))
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 Version/19.0 Mobile Safari/604.1"
NEW = {"old_password": "password", "new_password": "correct horse battery"}


def logged_in(user, *, by: str = FIREFOX) -> Client:
    client = Client(headers={"user-agent": by})
    client.post("/login/", {"username": user.email, "password": "password"})
    assert client.session[SESSION_KEY] == str(user.pk)
    return client


def test_a_late_answer_to_a_former_session_leaves_the_new_ones_cookie():
    """A browser asks for a page and logs in, which makes another session; the page's answer comes after the log-in's."""
    late = Client()
    late.cookies["sessionid"] = "of-before-the-log-in"
    assert "sessionid" not in late.get(HOME).cookies
    assert logged_in(a_person()).post("/logout/").cookies["sessionid"].value == ""


def test_logging_out_empties_the_browsers_cache_where_it_can():
    assert logged_in(a_person()).post("/logout/")["Clear-Site-Data"] == '"cache"'


def is_in(client: Client) -> bool:
    return client.get(SESSIONS).status_code == 200


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def test_what_the_database_has_of_a_session_opens_none(alice):
    client = logged_in(alice)
    key = client.session.session_key
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_key FROM intake_sessions")
        stored = [row[0] for row in cursor.fetchall()]
    assert stored == [SessionDigest.of(key)]
    assert SessionStore(key).load()[SESSION_KEY] == str(alice.pk)
    for copied in (stored[0], stored[0][:32]):
        thief = Client()
        thief.cookies["sessionid"] = copied
        assert not is_in(thief)


def test_the_list_says_in_words_where_one_is_logged_in(alice):
    client = logged_in(alice)
    logged_in(alice, by=PHONE)
    logged_in(a_person("bob@example.com"), by="curl/8")
    page = client.get(SESSIONS).text
    assert "Firefox on Linux" in page
    assert "Safari on an iPhone" in page
    assert "curl" not in page
    first, second = client.get(SESSIONS).context["sessions"]
    assert (first["is_this_one"], second["is_this_one"]) == (True, False)
    assert timezone.now() - second["logged_in_at"] < timedelta(minutes=1)


def test_the_last_use_is_noted_to_five_minutes(alice):
    client = logged_in(alice)
    long_ago = timezone.now() - timedelta(hours=3)
    Session.objects.update(last_used_at=long_ago)
    client.get(SESSIONS)
    assert timezone.now() - Session.objects.get().last_used_at < timedelta(minutes=6)


def test_ending_a_session_logs_that_browser_out_and_no_other(alice):
    client, phone, bobs = logged_in(alice), logged_in(alice, by=PHONE), logged_in(a_person("bob@example.com"))
    theirs = bobs.get(SESSIONS).context["sessions"][0]["name"]
    assert client.post(reverse("intake:end_session", args=[theirs])).status_code == 404
    assert client.post(reverse("intake:end_session", args=["none"])).status_code == 404
    other = client.get(SESSIONS).context["sessions"][1]["name"]
    client.post(reverse("intake:end_session", args=[other]))
    assert [is_in(each) for each in (client, phone, bobs)] == [True, False, True]


def test_ending_all_others_leaves_this_one(alice):
    client, *others, bobs = [logged_in(each) for each in (alice, alice, alice, a_person("bob@example.com"))]
    assert "2 other sessions are ended." in client.post(reverse("intake:end_other_sessions"), follow=True).text
    assert [is_in(each) for each in (client, *others, bobs)] == [True, False, False, True]


@pytest.mark.parametrize("ends", [False, True])
def test_a_new_password_ends_other_sessions_and_tokens_if_asked(alice, ends):
    AccessToken.objects.issue(user=alice)
    AccessToken.objects.issue(user=a_person("bob@example.com"))
    client, other = logged_in(alice), logged_in(alice)
    before = client.session.session_key
    response = client.post(PASSWORD, {**NEW, **({"end_access": "on"} if ends else {})})
    assert response["Location"] == reverse("intake:account")
    assert [is_in(client), is_in(other)] == [True, False]
    assert client.session.session_key != before
    assert Session.objects.count() == 1
    assert AccessToken.objects.filter(user=alice).exists() is not ends
    assert AccessToken.objects.count() == (1 if ends else 2)
    alice.refresh_from_db()
    assert alice.check_password(NEW["new_password"])
    assert [message.subject for message in mail.outbox] == ["Recollect: Your password was changed"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"old_password": "wrong"}, "not your password"), ({"new_password": "password"}, "too common")],
)
def test_a_password_is_not_changed_without_the_old_one_nor_to_a_bad_one(alice, fields, words):
    client, other = logged_in(alice), logged_in(alice)
    assert words in client.post(PASSWORD, {**NEW, **fields}).text
    assert is_in(other)
    assert mail.outbox == []


def test_a_session_that_a_new_password_made_void_is_not_listed(alice):
    client = logged_in(alice)
    alice.set_password("another long password")
    alice.save()
    again = Client()
    again.force_login(alice)
    assert not is_in(client)
    assert len(again.get(SESSIONS).context["sessions"]) == 1


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge on Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 15) AppleWebKit/605 Version/19 Safari/605", "Safari on a Mac"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/140.0 Mobile Safari/537.36", "Chrome on Android"),
        ("Mozilla/5.0 (X11; Linux)", "A browser on Linux"),
        ("<script>", "An unknown device"),
        ("", "An unknown device"),
    ],
)
def test_a_device_is_told_by_what_its_browser_says_of_itself(user_agent, words):
    assert devices.in_words(user_agent) == words


def test_a_device_is_named_in_the_language_of_the_page():
    with translation.override("de"):
        assert devices.in_page_language("Safari on an iPhone") == "Safari auf einem iPhone"
        assert devices.in_page_language("A browser on Linux") == "Ein Browser auf Linux"
        assert devices.in_page_language(devices.UNKNOWN) == "Ein unbekanntes Gerät"
