"""The audit log: what happens to an account is noted for its owner to read, without a word that anybody wrote."""

import io
import json
import zipfile
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agent_tools.authentication import create_token
from agent_tools.models import ALL_SCOPES
from chat import exporting
from intake.accounts import activity
from intake.models import Activity, ActivityEntry, User
from intake.tests.factories import a_person, a_turn, a_visitor, a_visitors_turn
from testing.traces import traces_of

pytestmark = pytest.mark.django_db

SECRET = "kwyjibo"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def client():
    return Client(headers={"user-agent": FIREFOX})


def noted(user):
    rows = ActivityEntry.objects.filter(user=user).order_by("at", "id")
    return [(row.what, row.count) for row in rows]


def log_in(client, password="password"):
    return client.post("/login/", {"username": "Alice@example.com", "password": password})


def test_getting_in_and_out_is_noted_with_the_device(client, alice):
    log_in(client, "a wrong one")
    client.post("/login/", {"username": "nobody@example.com", "password": "password"})
    log_in(client)
    log_in(Client())
    client.post(reverse("intake:end_other_sessions"))
    client.post("/logout/")
    assert noted(alice) == [
        ("login_failed", 1),
        ("logged_in", 1),
        ("logged_in", 1),
        ("session_ended", 1),
        ("logged_out", 1),
    ]
    assert ActivityEntry.objects.filter(device="Firefox on Linux").count() == 4


@pytest.mark.django_db(transaction=True)
def test_what_opens_or_empties_an_account_is_noted_without_a_word_of_it(client, alice):
    log_in(client)
    conversation = a_turn(alice, f"About {SECRET}").conversation
    a_turn(alice, SECRET, conversation=conversation)
    other = a_turn(alice, SECRET).conversation
    made = create_token(user=alice, name=SECRET, scopes=ALL_SCOPES)
    agent = Client(headers={"authorization": f"Bearer {made.secret}", "user-agent": "curl/8"})
    record = agent.post("/api/v1/memory/records/", {"content": SECRET}, content_type="application/json").json()
    assert agent.delete(f"/api/v1/memory/records/{record['id']}/").status_code == 204
    client.get("/api/v1/account/export/")
    client.post(reverse("intake:delete_turn", args=[conversation.pk, 2]))
    ids = [str(conversation.pk), str(other.pk)]
    client.post(reverse("intake:change_conversations"), {"do": "delete", "id": ids, "sure": "1"})
    new = {"old_password": "password", "new_password": "correct horse battery", "end_access": "on"}
    client.post(reverse("intake:password"), new)
    assert noted(alice) == [
        ("logged_in", 1),
        ("token_made", 1),
        ("memory_deleted", 1),
        ("exported", 1),
        ("turn_deleted", 1),
        ("chat_deleted", 2),
        ("password_changed", 1),
        ("token_revoked", 1),
    ]
    assert ActivityEntry.objects.get(what="memory_deleted").device == "curl"
    assert not [place for place in traces_of(SECRET) if place.startswith("intake_activity")]


def test_a_person_sees_their_own_newest_first_a_page_at_a_time(client, alice):
    bob = a_person("bob@example.com")
    activity.note(bob, Activity.IMPORT_UNDONE, count=40)
    now = timezone.now()
    for hours in range(activity.PAGE):
        entry = {"user": alice, "what": Activity.EXPORTED, "at": now - timedelta(hours=hours + 1), "count": hours + 2}
        ActivityEntry.objects.create(**entry)
    log_in(client)
    first = client.get(reverse("intake:activity"))
    page = first.context["page"]
    assert [entry.what for entry in page.rows[:2]] == ["logged_in", "exported"]
    assert "Data downloaded (2)" in first.text and "Firefox on Linux" in first.text
    assert "Import undone" not in first.text
    rest = client.get(reverse("intake:activity"), {"after": str(page.more)})
    assert [entry.count for entry in rest.context["page"].rows] == [activity.PAGE + 1]
    assert rest.context["page"].more is None
    assert client.get(reverse("intake:activity"), {"after": "nothing"}).status_code == 404
    client.force_login(bob)
    assert "Import undone: 40 conversations" in client.get(reverse("intake:activity")).text


def test_the_export_has_the_activity_of_its_owner_alone(alice):
    activity.note(a_person("bob@example.com"), Activity.EXPORTED)
    activity.note(alice, Activity.CHAT_DELETED, count=3)
    document = json.loads(b"".join(exporting.account_as_json(user=alice, now=timezone.now())))
    [entry] = document["activity"]
    assert (entry["what"], entry["count"], entry["device"]) == ("chat_deleted", 3, "")
    packed = io.BytesIO(b"".join(exporting.markdown_zip(user=alice, now=timezone.now())))
    with zipfile.ZipFile(packed) as archive:
        assert json.loads(archive.read("activity.json")) == [entry]


def test_staff_who_look_at_somebodys_index_or_change_the_account_are_seen_by_them(client, alice):
    from memory import index

    a_turn(alice, "Anything")
    index.embed_pending()
    root = User.objects.create_superuser("root@example.com", "password")
    client.force_login(root)
    listed = reverse("admin:memory_embedding_changelist")
    row = client.get(listed).context["cl"].result_list[0]
    client.get(reverse("admin:memory_embedding_change", args=[row.pk]))
    assert noted(alice) == [("staff_looked", 1)], "once an hour"
    changed = {"email": alice.email, "time_zone": "Asia/Tokyo", "is_active": "on"}
    client.post(reverse("admin:intake_user_change", args=[alice.pk]), changed)
    assert noted(alice) == [("staff_looked", 1), ("staff_changed", 1)]


def test_visitors_have_no_log_and_a_deleted_account_takes_its_own_along(client, alice):
    visitor = a_visitor()
    client.force_login(visitor)
    turn = a_visitors_turn(visitor, "Hello")
    client.post(reverse("intake:delete_conversation", args=[turn.conversation_id]))
    assert noted(visitor) == []
    log_in(client)
    assert noted(alice)
    client.post(reverse("intake:delete_account"), {"password": "password"})
    assert not ActivityEntry.objects.exists()
