"""What its owner is told of a deleted account, in numbers. And what goes by itself after so many days."""

from datetime import timedelta

import pytest
from django.apps import apps
from django.test import Client
from django.urls import reverse

from core.isolation.acting import acting_as
from core.isolation.checks import personal_models
from intake.accounts import activity
from intake.chats import deleting, retention
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index
from memory.models import Embedding
from testing.examiner import as_the_application
from testing.traces import traces_of

pytestmark = pytest.mark.django_db

SECRET = "kwyjibo"


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def a_full_account(alice):
    conversation = a_turn(alice, f"Remember {SECRET}").conversation
    a_turn(alice, f"And {SECRET}", conversation=conversation)
    with acting_as(alice):
        documents.append(user=alice, day=None, text=SECRET, now=NOW)
    index.embed_pending()


def test_the_owner_of_a_deleted_account_is_shown_how_much_of_each_kind_went(alice):
    client = Client()
    client.force_login(alice)
    a_full_account(alice)
    page = client.post(reverse("intake:delete_account"), {"password": "password"}, headers={"accept-language": "de"})
    assert not User.objects.exists() and SECRET not in page.text
    assert page["Clear-Site-Data"] == '"cache", "storage"'
    for row in ("Chats <span>1</span>", "Beiträge <span>2</span>"):
        assert row in page.text
    assert client.get(reverse("intake:account")).status_code == 302, "the session has ended"


def test_the_api_counts_what_a_deletion_removed(alice):
    client = Client()
    client.force_login(alice)
    a_full_account(alice)
    response = client.delete("/api/v1/account/", {"password": "password"}, content_type="application/json")
    went = response.json()["deleted"]
    assert (went["conversations"], went["turns"], went["memory documents"], went["sessions"]) == (1, 2, 1, 1)
    assert went["embeddings"] == 3, "the database deletes these by itself"


def test_every_kind_of_row_that_a_deletion_counts_has_a_name():
    of_users = [
        model
        for model in apps.get_models()
        if model is User or any(field.related_model is User for field in model._meta.fields)
    ]
    assert {str(model._meta.verbose_name_plural) for model in [*of_users, *personal_models()]} == set(deleting.KINDS)


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
        retention.remove_old_turns(now=NOW)
    assert Turn.objects.count() == 5, "everything is kept unless the setting says otherwise"
    settings.RETENTION_DAYS = 30
    with as_the_application():
        assert not retention.remove_old_turns(now=NOW), "nobody is due any more"
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
    monkeypatch.setattr(retention, "CONVERSATIONS_AT_ONCE", 2)
    bob, carol = a_person("bob@example.com"), a_person("carol@example.com")
    for user, chats in ((alice, 5), (bob, 1)):
        for number in range(chats):
            a_turn(user, f"Chat {number}", said_at=NOW - timedelta(days=31))
    a_turn(bob, "Later", said_at=NOW - timedelta(days=29, hours=20))
    User.objects.update(retention_due_at=NOW)
    left = []
    for minutes in range(4):
        with as_the_application():
            is_more = retention.remove_old_turns(now=NOW + timedelta(minutes=minutes))
        left.append((is_more, Turn.objects.filter(user=alice).count(), Turn.objects.filter(user=bob).count()))
    assert left == [(True, 3, 1), (True, 1, 1), (False, 0, 1), (False, 0, 1)]
    due = dict(User.objects.values_list("pk", "retention_due_at"))
    assert due[carol.pk] == NOW + timedelta(days=1)
    assert due[bob.pk] == NOW + timedelta(hours=4), "when the oldest that is left is too old"

    monkeypatch.setattr(retention, "STEP_SECONDS", 0)
    with as_the_application():
        assert retention.remove_old_turns(now=NOW + timedelta(days=2)), "no step lasts longer than its time"
