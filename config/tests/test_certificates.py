"""What a deleted account leaves: a signed statement in numbers. And what goes by itself after so many days."""

import json
from datetime import timedelta

import pytest
from django.apps import apps
from django.test import Client
from django.urls import reverse

from core.isolation.acting import acting_as
from core.isolation.checks import personal_models
from intake.accounts import activity
from intake.chats import certificates, deleting
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index
from memory.models import Embedding
from testing.examiner import as_the_application
from testing.traces import traces_of

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_answers_of_other_tests")]

SECRET = "kwyjibo"


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def test_whoever_deletes_their_account_is_given_a_signed_statement_of_what_went(alice):
    client = Client()
    client.force_login(alice)
    conversation = a_turn(alice, f"Remember {SECRET}").conversation
    a_turn(alice, f"And {SECRET}", conversation=conversation)
    with acting_as(alice):
        documents.append(user=alice, day=None, text=SECRET, now=NOW)
    index.embed_pending()
    page = client.post(reverse("intake:delete_account"), {"password": "password"}, follow=True)
    assert not User.objects.exists()
    at = page.redirect_chain[-1][0]
    assert "Your account is deleted" in page.text and SECRET not in page.text + at
    stated = json.loads(Client().get(at, {"as": "json"}).content)
    went = stated["deleted"]
    assert (went["conversations"], went["turns"], went["memory documents"], went["sessions"]) == (1, 2, 1, 1)
    assert went["embeddings"] == 3, "the database takes these along by itself"
    assert stated["account"] == alice.pk and at.endswith(f"/{stated['signed']}/")
    text = Client().get(at, {"as": "text"})
    assert "           2  turns\n" in text.text and "attachment" in text["Content-Disposition"]


def test_a_statement_that_this_server_did_not_sign_is_not_there():
    rows = {"intake.Turn": 2, "agent_tools.AccessToken": 1, "oauth2_provider.AccessToken": 2, "intake.Session": 0}
    signed = certificates.sign(certificates.certify(user_id=7, at=NOW, rows=rows))
    assert certificates.read(signed).deleted == {"access tokens": 3, "turns": 2}
    for forged in (signed[:-1] + ("A" if signed[-1] != "A" else "B"), "nothing", "x" * 9_000):
        assert Client().get(reverse("intake:account_deleted", args=[forged])).status_code == 404


def test_the_page_of_a_statement_names_the_rows_in_the_readers_language_and_its_files_in_english():
    signed = certificates.sign(certificates.certify(user_id=7, at=NOW, rows={"intake.Turn": 2, "memory.MapPoint": 3}))
    address = reverse("intake:account_deleted", args=[signed])
    german = {"accept-language": "de"}
    page = Client().get(address, headers=german).text
    assert "Nachrichten mit Antworten <span>2</span>" in page and "Punkte der Karte <span>3</span>" in page
    assert "2  turns" in Client().get(f"{address}?as=text", headers=german).text


def test_every_kind_of_row_that_a_deletion_counts_has_a_name_in_the_statement():
    of_users = [
        model
        for model in apps.get_models()
        if model is User or any(field.related_model is User for field in model._meta.fields)
    ]
    assert {str(model._meta.verbose_name_plural) for model in [*of_users, *personal_models()]} == set(
        certificates.KINDS
    )


def test_turns_older_than_the_retention_go_with_all_that_was_made_of_them_and_later_ones_move_up(alice, settings):
    old, new = NOW - timedelta(days=31), NOW - timedelta(days=29)
    bob = a_person("bob@example.com")
    gone = a_turn(bob, f"Long ago: {SECRET}").conversation
    mixed = a_turn(alice, f"First {SECRET}").conversation
    for text in (f"Second {SECRET}", "Third", "Fourth"):
        a_turn(alice, text, conversation=mixed)
    Turn.objects.update(said_at=new)
    Turn.objects.filter(user_message__contains=SECRET).update(said_at=old)
    index.embed_pending()
    User.objects.update(retention_due_at=NOW)
    with as_the_application():
        deleting.remove_old_turns(now=NOW)
    assert Turn.objects.count() == 5, "everything is kept unless the setting says otherwise"
    settings.RETENTION_DAYS = 30
    with as_the_application():
        assert not deleting.remove_old_turns(now=NOW), "nobody is due any more"
    assert not Conversation.objects.filter(pk=gone.pk).exists()
    left = Turn.objects.order_by("turn_number").values_list("turn_number", "parent_number")
    assert list(left) == [(3, None), (4, 3)]
    assert Conversation.objects.get().title == "Third"
    assert set(Embedding.objects.values_list("chunk_index", flat=True)) == {3, 4}
    assert [place for place in traces_of(SECRET) if not place.startswith(("term_blocks", "pending_terms"))] == []
    assert not activity.list_activity(alice, after=None).rows, "their owner did not do it"
    client = Client()
    client.force_login(alice)
    assert "deleted 30 days later" in client.get(reverse("intake:account")).text


def test_the_retention_takes_a_share_of_each_at_a_time_and_goes_on_where_it_stopped(alice, settings, monkeypatch):
    settings.RETENTION_DAYS = 30
    monkeypatch.setattr(deleting, "CONVERSATIONS_AT_ONCE", 2)
    bob, carol = a_person("bob@example.com"), a_person("carol@example.com")
    for user, chats in ((alice, 5), (bob, 1)):
        for number in range(chats):
            a_turn(user, f"Chat {number}", said_at=NOW - timedelta(days=31))
    a_turn(bob, "Later", said_at=NOW - timedelta(days=29, hours=20))
    User.objects.update(retention_due_at=NOW)
    left = []
    for minutes in range(4):
        with as_the_application():
            is_more = deleting.remove_old_turns(now=NOW + timedelta(minutes=minutes))
        left.append((is_more, Turn.objects.filter(user=alice).count(), Turn.objects.filter(user=bob).count()))
    assert left == [(True, 3, 1), (True, 1, 1), (False, 0, 1), (False, 0, 1)]
    due = dict(User.objects.values_list("pk", "retention_due_at"))
    assert due[carol.pk] == NOW + timedelta(days=1)
    assert due[bob.pk] == NOW + timedelta(hours=4), "when the oldest that is left is too old"

    monkeypatch.setattr(deleting, "STEP_SECONDS", 0)
    with as_the_application():
        assert deleting.remove_old_turns(now=NOW + timedelta(days=2)), "no step lasts longer than its time"
