"""Taking one's data along: all of one's own, nothing of others', valid JSON however long, little memory."""

import itertools
import json
import tracemalloc

import pytest
from django.apps import apps
from django.utils import timezone

from intake import exporting
from intake.models import Conversation, Turn, User
from intake.tests.factories import NOW, a_long_conversation, a_person, a_turn

pytestmark = pytest.mark.django_db

PATH = "/api/v1/account/export/"


def exported(user: User) -> dict:
    return json.loads(b"".join(exporting.account_as_json(user=user, now=timezone.now())))


def test_an_export_holds_all_of_ones_own_and_nothing_of_others():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(bob, "Bob's alone")
    first = a_turn(alice, 'Quotes " and \\ and \u2028 and 🙂', "Noted.\n")
    a_turn(alice, "Second", conversation=first.conversation)
    document = exported(alice)
    assert document["profile"]["email"] == "alice@example.com"
    [conversation] = document["conversations"]
    assert conversation["id"] == str(first.conversation_id)
    assert [turn["turn_number"] for turn in conversation["turns"]] == [1, 2]
    assert conversation["turns"][0]["user_message"] == 'Quotes " and \\ and \u2028 and 🙂'
    assert conversation["turns"][0]["said_at"] == NOW.isoformat().replace("+00:00", "Z")
    assert "Bob" not in json.dumps(document)


def test_who_said_nothing_exports_a_whole_document():
    alice = a_person()
    Conversation.objects.create(user=alice, title="Empty")
    assert exported(alice)["conversations"][0]["turns"] == []
    assert exported(a_person("bob@example.com"))["conversations"] == []


@pytest.mark.parametrize("count", [199, 200, 201, 400])
def test_nothing_is_lost_or_doubled_where_a_page_ends(count):
    alice = a_person()
    a_long_conversation(alice, count)
    turns = exported(alice)["conversations"][0]["turns"]
    assert [turn["turn_number"] for turn in turns] == list(range(1, count + 1))


def test_conversations_are_paged_too():
    alice = a_person()
    Conversation.objects.bulk_create(Conversation(user=alice, title=str(number)) for number in range(450))
    assert len({item["id"] for item in exported(alice)["conversations"]}) == 450


def test_another_app_adds_its_part_by_a_setting(settings):
    settings.ACCOUNT_EXPORTS = {**settings.ACCOUNT_EXPORTS, "email_letters": "intake.tests.test_exporting.letters"}
    assert exported(a_person("ab@example.com"))["email_letters"] == [{"letter": "a"}, {"letter": "b"}]


def letters(*, user: User):
    return ({"letter": letter} for letter in user.email[:2])


def test_a_hundred_thousand_turns_need_a_few_megabytes(monkeypatch):
    """The rows are made as they are asked for, so that only what the export itself keeps is measured."""
    alice = a_person()
    text = "x" * 1000

    def a_hundred_thousand(conversation, user):
        for number in range(100_000):
            yield {"turn_number": number, "user_message": text}

    monkeypatch.setattr(exporting, "_turns", a_hundred_thousand)
    Conversation.objects.create(user=alice)
    pieces = exporting.account_as_json(user=alice, now=timezone.now())
    tracemalloc.start()
    total = sum(len(piece) for piece in pieces)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 100_000_000
    assert peak < 2_000_000


def test_between_two_pieces_only_pages_are_read(django_assert_max_num_queries):
    alice = a_person()
    a_long_conversation(alice, 1000)
    rows = exporting.in_pages(Turn.objects.for_user(alice), key="turn_number")
    with django_assert_max_num_queries(2):
        list(itertools.islice(rows, 300))


@pytest.mark.django_db(transaction=True)
def test_it_is_downloaded_with_a_session_or_a_token_and_kept_by_no_cache(log_in, new_client, person):
    a_long_conversation(person, 500)
    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=person)
    by_token = new_client().get(PATH, headers={"Authorization": f"Token {token}"})
    by_session = log_in(person).get(PATH)
    for answer in (by_token, by_session):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-disposition"].startswith('attachment; filename="recollect-')
        assert "no-store" in answer.headers["cache-control"]
        assert len(answer.json()["conversations"][0]["turns"]) == 500


@pytest.mark.django_db(transaction=True)
def test_nobody_exports_without_credentials(visitor):
    answer = visitor.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (401, "authentication_required")
