"""Staff run the installation in the product's own pages: people, settings, index, usage, and what everybody reads about it."""

import os
import re
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.core import mail
from django.db import connections
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agent_tools.models import AccessToken
from agent_tools.tests.callers import client_of
from chat.agent.context import ChatDeps, deps_for
from chat.agent.prompt import instructions
from chat.pages import people, usage
from chat.pages import staff_models as staff_pages
from config.ops import endpoints
from core.errors import InvalidInput, QuotaExceeded
from core.isolation.acting import acting_as
from intake.llm import language_models
from intake.models import Activity, ActivityEntry, Conversation, Invitation, Session, User, installation
from intake.tests.factories import a_person, a_turn, caller_for
from memory import quotas
from memory.models import Embedding
from testing.examiner import as_the_application

pytestmark = pytest.mark.django_db

PEOPLE, SETTINGS, INDEX, USAGE = "/staff/people/", "/staff/settings/", "/staff/index/", "/staff/"
INVITE = reverse("intake:staff_invite")
SECRET = "rumpelstiltskin"


@pytest.fixture(autouse=True)
def as_the_web_process():
    """With the rights that a web process has, so that a right that is missing fails here."""
    installation.forget_kept_settings()
    with as_the_application():
        yield
    installation.forget_kept_settings()


@pytest.fixture
def root():
    return User.objects.create_superuser("root@example.com", "password")


@pytest.fixture
def staff(client, root):
    client.force_login(root)
    return client


@pytest.fixture
def bob():
    return a_person("bob@example.com")


def page_of(user):
    return reverse("intake:staff_person", args=[user.pk])


def act(staff, user, action, **fields):
    return staff.post(page_of(user), {"do": action, **fields}, follow=True).content.decode()


def noted(user):
    with acting_as(user):
        return list(ActivityEntry.objects.for_user(user).values_list("what", flat=True))


# --- Who sees them ---


@pytest.mark.parametrize("path", [PEOPLE, SETTINGS, INDEX, USAGE, "/staff/people/1/"])
def test_everybody_else_finds_no_such_page(client, bob, path):
    client.force_login(bob)
    missing = client.get("/no/such/page/").content
    assert client.get(path).status_code == 404
    assert client.get(path).content == missing
    assert client.post(path, {"do": "disable"}).status_code in (404, 405)


def test_staff_find_them_in_the_menu_and_others_do_not(staff, bob):
    assert SETTINGS in staff.get("/").content.decode()
    staff.force_login(bob)
    assert SETTINGS not in staff.get("/").content.decode()


def test_no_page_of_staff_holds_a_word_that_a_person_wrote(staff, bob):
    a_turn(bob, f"The ship is {SECRET}", f"So it is {SECRET}")
    with acting_as(bob):
        Conversation.objects.filter(user=bob).update(title=SECRET)
    for path in (PEOPLE, page_of(bob), USAGE, INDEX, SETTINGS):
        page = staff.get(path).content.decode().lower()
        assert SECRET not in page, path
    assert "bob@example.com" in staff.get(PEOPLE).content.decode()


def test_the_page_of_figures_says_how_old_the_last_daily_backup_is(staff, settings, tmp_path):
    settings.VAR_DIR = tmp_path
    assert "Last backup" not in staff.get(USAGE).text
    (tmp_path / "backups").mkdir()
    for name, hours in (("a-daily", 50), ("b-daily", 26), ("c-before-1.1.0", 1)):
        made = tmp_path / "backups" / f"{name}.backup"
        made.touch()
        os.utime(made, times=(time.time() - hours * 3600,) * 2)
    assert "1 day, 2 hours ago" in staff.get(USAGE).text.replace("\xa0", " ")


# --- People ---


def test_people_are_listed_with_figures_and_found_by_email(staff, bob):
    a_turn(bob, "One"), a_turn(bob, "Two")
    a_person("carol@example.com")
    page = staff.get(PEOPLE).content.decode()
    assert "carol@example.com" in page and "2 chats" in page and "2 messages" in page
    found = staff.get(PEOPLE, {"q": "BOB"}).content.decode()
    assert "bob@example.com" in found and "carol@example.com" not in found
    assert "Nobody has such an address." in staff.get(PEOPLE, {"q": "zed\0%"}).content.decode()


def test_a_long_list_of_people_has_pages(staff, monkeypatch):
    monkeypatch.setattr(people, "PER_PAGE", 2)
    for name in ("one", "two", "three"):
        a_person(f"{name}@example.com")
    first, second = (staff.get(PEOPLE, {"page": page}).content.decode() for page in (1, 2))
    assert "three@example.com" in first and "one@example.com" not in first
    assert "one@example.com" in second and "root@example.com" in second
    assert staff.get(PEOPLE, {"page": "none"}).status_code == 200
    # The page that shows a link has the same pages beside it.
    assert f'href="{PEOPLE}?q=&amp;page=2"' in staff.post(INVITE).content.decode()


def test_an_invitation_is_shown_once_and_mailed_where_mail_is_set(staff, settings):
    page = staff.post(INVITE, {"email": "new@example.com"}).content.decode()
    (link,) = re.findall(r'value="(http://testserver/register/\?invitation=[^"]+)"', page)
    assert not mail.outbox
    settings.EMAIL_HOST = "mail.example"
    page = staff.post(INVITE, {"email": "new@example.com"}).content.decode()
    (message,) = mail.outbox
    assert message.to == ["new@example.com"] and "?invitation=" in message.body
    assert "mailed to new@example.com" in page
    assert link not in staff.get(PEOPLE).content.decode()
    assert "valid email" in staff.post(INVITE, {"email": "nobody"}).content.decode()
    assert Invitation.objects.count() == 2


def test_a_mail_that_is_not_sent_is_said_to_be_and_the_link_stays(staff, bob, settings, monkeypatch):
    settings.EMAIL_HOST = "mail.example"
    monkeypatch.setattr(mail.EmailMessage, "send", lambda *_, **__: (_ for _ in ()).throw(OSError()))
    for page in (staff.post(INVITE, {"email": "new@example.com"}).content.decode(), act(staff, bob, "reset")):
        assert "could not be sent" in page and "mailed to" not in page
        assert 'value="http://testserver/' in page


def test_disabling_ends_sessions_tokens_and_logins_at_once(staff, bob):
    browser, agent = Client(), client_of(bob)
    browser.force_login(bob)
    assert "is disabled" in act(staff, bob, "disable")
    assert not Session.objects.filter(user=bob).exists()
    assert not AccessToken.objects.filter(user=bob).exists()
    assert browser.get("/settings/account/").status_code == 302
    assert agent.get("/api/v1/conversations/").status_code == 401
    assert not browser.login(username="bob@example.com", password="password")
    assert {Activity.STAFF_CHANGED, Activity.SESSION_ENDED, Activity.TOKEN_REVOKED} <= set(noted(bob))
    act(staff, bob, "enable")
    bob.refresh_from_db()
    assert bob.is_active


def test_a_new_password_is_chosen_once_by_the_link_that_is_shown(staff, bob, settings):
    settings.EMAIL_HOST = "mail.example"
    page = act(staff, bob, "reset")
    (link,) = re.findall(r'value="http://testserver(/login/password/[^"]+)"', page)
    assert link in mail.outbox[0].body
    browser = Client()
    form = browser.get(link, follow=True)
    browser.post(form.redirect_chain[-1][0], {"password1": "a staple and a stapler"})
    assert Client().login(username="bob@example.com", password="a staple and a stapler")
    assert "password1" not in Client().get(link, follow=True).content.decode()
    assert Activity.STAFF_CHANGED in noted(bob)


def test_a_quota_of_one_person_wins_over_everybodys(staff, bob, settings):
    settings.QUOTA_BYTES = 1
    act(staff, bob, "quotas", text_megabytes="1", file_megabytes="")
    quotas.take(bob.pk, size=1_000)
    with pytest.raises(QuotaExceeded):
        quotas.take(bob.pk, size=2_000_000)
    assert "1.0 MB" in [most for _name, _used, most in quotas.lines_of(bob.pk)][1].replace("\xa0", " ")
    assert installation.quota_for(bob.pk, "file_bytes") == 0
    act(staff, bob, "quotas", text_megabytes="", file_megabytes="")
    with pytest.raises(QuotaExceeded):
        quotas.take(bob.pk, size=1_000)
    assert "greater than or equal to 0" in act(staff, bob, "quotas", text_megabytes="-1")


def test_staff_are_made_and_unmade_but_never_the_last(staff, root, bob):
    assert "bob@example.com is an administrator now." in act(staff, bob, "promote")
    bob.refresh_from_db()
    assert (bob.is_staff, bob.is_superuser) == (True, True)
    assert "own account" in act(staff, root, "demote")
    act(staff, bob, "demote")
    bob.refresh_from_db()
    assert (bob.is_staff, bob.is_superuser) == (False, False)


@pytest.mark.django_db(transaction=True)
def test_of_two_who_remove_each_other_at_once_one_stays(root):
    bob = User.objects.create_superuser("bob@example.com", "password")
    together = threading.Barrier(2)

    def remove(remover, removed):
        browser = Client()
        browser.force_login(remover)
        together.wait()
        browser.post(page_of(removed), {"do": "demote"})
        connections.close_all()

    threads = [threading.Thread(target=remove, args=pair) for pair in ((root, bob), (bob, root))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert User.objects.filter(is_superuser=True, is_staff=True).count() == 1


def test_the_last_administrator_is_not_removed(root, bob):
    people._refuse_for_the_last(bob)
    with pytest.raises(InvalidInput, match="last administrator"):
        people._refuse_for_the_last(root)


def test_staff_without_all_rights_take_over_no_account(client, bob, root):
    helper = User.objects.create_user("helper@example.com", "password", is_staff=True)
    client.force_login(helper)
    for action in ("reset", "promote"):
        assert "Only administrators with all rights" in act(client, bob, action)
    assert "Only administrators with all rights" in act(client, root, "disable")
    assert "is disabled" in act(client, bob, "disable")
    bob.refresh_from_db()
    root.refresh_from_db()
    assert (bob.is_staff, bob.is_active, root.is_active) == (False, False, True)


def test_a_person_who_does_not_exist_has_no_page(staff):
    for name in ("0", "999999999", "x", "9" * 40, "\u0661"):
        assert staff.get(f"/staff/people/{name}/").status_code == 404


# --- Settings ---


def test_the_languages_that_staff_choose_are_offered(staff, bob):
    staff.post(SETTINGS, {"part": "languages", "languages": ["de", "es"]})
    assert installation.languages_offered() == [("de", "Deutsch"), ("es", "Español")]
    staff.force_login(bob)
    page = staff.get("/settings/account/", headers={"accept-language": "en"}).content.decode()
    assert '<html lang="de"' in page and ">English<" not in page


def test_no_language_at_all_is_refused(staff):
    assert "at least one language" in staff.post(SETTINGS, {"part": "languages"}).content.decode()
    assert len(installation.languages_offered()) == 3


def test_a_shorter_retention_asks_whether_one_is_sure(staff, settings):
    form = {"part": "retention", "retention_days": "30"}
    assert "Confirm that older messages" in staff.post(SETTINGS, form).content.decode()
    assert installation.retention_days() == 0
    staff.post(SETTINGS, {**form, "is_sure": "on"})
    assert installation.retention_days() == 30
    staff.post(SETTINGS, {"part": "retention", "retention_days": "60"})
    assert installation.retention_days() == 60
    settings.RETENTION_DAYS = 7
    assert "Set in the environment." in staff.get(SETTINGS).content.decode()
    staff.post(SETTINGS, {"part": "retention", "retention_days": "90"})
    assert installation.retention_days() == 7


def test_quotas_of_everybody_apply_and_wrong_ones_are_refused(staff, bob):
    staff.post(SETTINGS, {"part": "quotas", "turns": "2", "text_megabytes": "", "file_megabytes": "3"})
    assert [installation.quota_for(bob.pk, name) for name in ("turns", "bytes", "file_bytes")] == [2, 0, 3 * 1024**2]
    with pytest.raises(QuotaExceeded):
        quotas.take(bob.pk, turns=3)
    page = staff.post(SETTINGS, {"part": "quotas", "turns": "many"}).content.decode()
    assert "Enter a whole number." in page
    assert installation.quota_for(bob.pk, "turns") == 2


def test_the_instructions_of_staff_come_before_a_persons_own(staff, bob):
    staff.post(SETTINGS, {"part": "instructions", "instructions": "Answer in verse."})
    turn = a_turn(bob, "Hello")
    with acting_as(bob):
        deps = deps_for(caller_for(bob), turn.conversation, now=timezone.now())
    assert "Answer in verse." in instructions(deps, may_use_tools=True)[0]
    assert (
        "for everybody" not in instructions(ChatDeps(caller=caller_for(bob), now=timezone.now()), may_use_tools=True)[0]
    )


# --- The index ---


def failed(user, *, error):
    a_turn(user, "Something to embed")
    with acting_as(user):
        Embedding.objects.filter(user=user).update(last_error=error, attempts=5, quarantined_at=timezone.now())


def test_the_index_names_what_failed_and_tries_it_again(staff, bob):
    failed(bob, error="TimeoutError")
    page = staff.get(INDEX).content.decode()
    assert "TimeoutError" in page and "Try again" in page and "intake_conversation_turns" in page
    assert "tried again" in staff.post(INDEX, follow=True).content.decode()
    with acting_as(bob):
        row = Embedding.objects.filter(user=bob).first()
    assert (row.attempts, row.quarantined_at, row.last_error) == (0, None, "")
    assert "Nothing failed." in staff.get(INDEX).content.decode()


def test_a_slow_index_says_its_speed_and_the_time_left(staff, bob):
    now = timezone.now()
    a_turn(bob, "Embedded a while ago")
    with acting_as(bob):
        Embedding.objects.filter(user=bob).update(embedded_at=now - timedelta(minutes=20), vector=[0.5] * 8)
    a_turn(bob, "Waits")
    assert "0.00028 texts a second, 1 h left" in staff.get(INDEX).content.decode()


# --- Usage and activity ---


def test_usage_counts_by_day_and_person_and_names_what_staff_did(staff, bob):
    turn = a_turn(bob, "Hello")
    with acting_as(bob):
        type(turn).objects.filter(pk=turn.pk).update(
            said_at=timezone.now(), usage={"input_tokens": 4321, "output_tokens": 17}
        )
        Conversation.objects.filter(pk=turn.conversation_id).update(started_at=timezone.now())
    act(staff, bob, "quotas", text_megabytes="5")
    page = staff.get(USAGE).content.decode()
    assert "4321" in page and "17" in page
    assert "root@example.com changed the quotas of bob@example.com." in page
    assert LogEntry.objects.filter(change_message="quotas").count() == 1


def test_usage_says_of_how_many_people_it_is(staff, bob, monkeypatch):
    monkeypatch.setattr(usage, "MOST_COUNTED", 1)
    page = staff.get(USAGE).content.decode()
    assert "of 1 person" in page and "Of 2 in all" in page


# --- Models that were found at the start ---


OLLAMA = ("Ollama", "http://127.0.0.1:11434/v1", ["llama", "qwen"])


def test_a_new_installation_offers_a_found_server_by_one_click(staff, bob, monkeypatch):
    monkeypatch.setattr(staff_pages, "find_servers", lambda **_: [OLLAMA])
    monkeypatch.setattr(staff_pages, "_nearby", [(-1.0e9, [])])
    # Who may register is asked first.
    assert "Ollama runs here." not in staff.get("/").content.decode()
    staff.post(SETTINGS, {"registration": "invite", "from_home": "1"})
    page = staff.get("/").content.decode()
    assert "Ollama runs here." in page
    form = {"do": "adopt", "address": OLLAMA[1], "from_home": "1"}
    answer = staff.post(reverse("intake:staff_models"), form)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")
    assert [row["base_url"] for row in language_models.kept_models()] == [OLLAMA[1]]
    assert "Ollama runs here." not in staff.get("/").content.decode()
    staff.force_login(bob)
    assert "Ollama runs here." not in staff.get("/").content.decode()


def test_nobody_but_staff_makes_the_server_look_for_models(client, bob, monkeypatch):
    monkeypatch.setattr(staff_pages, "find_servers", lambda **_: pytest.fail("looked"))
    client.force_login(bob)
    assert client.get("/").status_code == 200


# --- About this installation ---


def test_everybody_who_is_logged_in_reads_what_it_is_the_version_and_the_licences(client, bob):
    assert client.get("/about/").status_code == 302
    client.force_login(bob)
    page = client.get("/about/").content.decode()
    assert endpoints.VERSION in page and "Django" in page and "BSD" in page
    assert page.count("<li>") >= 9 and "Recollect is a chat whose memory belongs to you." in page
    assert '/about/"' in client.get("/").content.decode()


@pytest.mark.parametrize("path", [SETTINGS, INVITE])
def test_an_unattended_browser_changes_nothing_without_a_new_proof(staff, settings, path):
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
    answer = staff.post(path, {"retention_days": 1, "uses": 1})
    assert answer["Location"].startswith(reverse("account_reauthenticate"))
    assert not Invitation.objects.exists()
