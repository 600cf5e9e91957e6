"""Taking one's data along: all of one's own, nothing of others', valid JSON however long, little memory."""

import io
import itertools
import json
import random
import tracemalloc
import zipfile

import pytest
from django.apps import apps
from django.utils import timezone

from chat.exporting import account_as_json, json_zip, markdown_zip
from core.isolation.acting import acting_as
from intake.chats import exporting, markdown_files, services
from intake.models import ChatPreferences, Conversation, Turn, User
from intake.tests.attached import PDF, a_file
from intake.tests.factories import NOW, a_long_conversation, a_person, a_turn, caller_for
from memory import records

pytestmark = pytest.mark.django_db

PATH = "/api/v1/account/export/"


def exported(user: User) -> dict:
    return json.loads(b"".join(account_as_json(user=user, now=timezone.now())))


def test_an_export_holds_all_of_ones_own_and_nothing_of_others():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(bob, "Bob's alone")
    first = a_turn(alice, 'Quotes " and \\ and \u2028 and 🙂', "Noted.\n")
    a_turn(alice, "Second", conversation=first.conversation)
    ChatPreferences.objects.create(user=alice, how_to_answer="Briefly")
    document = exported(alice)
    assert document["profile"]["email"] == "alice@example.com"
    assert document["profile"]["how_to_answer"] == "Briefly"
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
    Conversation.objects.bulk_create(Conversation(user=alice, title=str(number)) for number in range(201))
    assert len({item["id"] for item in exported(alice)["conversations"]}) == 201


@pytest.mark.extended
def test_ten_thousand_turns_need_a_few_megabytes(monkeypatch):
    """The rows are made as they are asked for, so that only what the export itself keeps is measured."""
    alice = a_person()
    text = "x" * 1000

    def ten_thousand(conversation, user):
        for number in range(10_000):
            yield {"turn_number": number, "user_message": text}

    monkeypatch.setattr(exporting, "turns_of", ten_thousand)
    Conversation.objects.create(user=alice)
    pieces = account_as_json(user=alice, now=timezone.now())
    tracemalloc.start()
    total = sum(len(piece) for piece in pieces)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 10_000_000
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


@pytest.mark.django_db(transaction=True)
def test_the_whole_export_is_downloaded_as_a_zip_of_either_kind(log_in, person):
    a_long_conversation(person, 300)
    client = log_in(person)
    for form, name in (("zip", "recollect.json"), ("markdown", "conversations/")):
        answer = client.get(PATH, params={"as": form})
        assert answer.headers["content-type"] == "application/zip"
        assert answer.headers["content-disposition"].endswith(f'{"json" if form == "zip" else form}.zip"')
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            [entry] = [entry for entry in archive.namelist() if entry.startswith(name)]
            assert b"Answer 300" in archive.read(entry)


@pytest.mark.django_db(transaction=True)
def test_a_conversation_is_downloaded_by_itself(log_in, person):
    turn = a_turn(person, "Wie warm, für Brot?", "About 25 degrees.")
    a_turn(person, "Another chat")
    client = log_in(person)
    path = f"/api/v1/conversations/{turn.conversation_id}/export/"
    markdown, as_json = client.get(path), client.get(path, params={"as": "json"})
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert "filename*=utf-8''2026-" in markdown.headers["content-disposition"]
    assert markdown.text == (
        "# Wie warm, für Brot?\n\n## 1. You, 2026-03-01 12:00 UTC\n\nWie warm, für Brot?\n\n"
        "## Answer\n\nAbout 25 degrees.\n\n"
    )
    [conversation] = as_json.json()["conversations"]
    assert conversation["id"] == str(turn.conversation_id)
    assert "Another" not in markdown.text + as_json.text


@pytest.mark.django_db(transaction=True)
def test_another_form_is_refused_with_the_forms_there_are(log_in, person):
    turn = a_turn(person, "Hello")
    client = log_in(person)
    for path in (PATH, f"/api/v1/conversations/{turn.conversation_id}/export/"):
        for query in ("as=pdf", "as=json&as=json", "as="):
            answer = client.get(f"{path}?{query}")
            assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
            assert "markdown" in answer.json()["errors"]["as"][0]


@pytest.mark.django_db(transaction=True)
def test_whole_exports_are_limited_in_rate_whatever_their_form(log_in, person, limited):
    limited(export="2/hour")
    client = log_in(person)
    statuses = [client.get(PATH, params={"as": form}).status_code for form in ("json", "zip", "markdown")]
    assert statuses == [200, 200, 429]


@pytest.mark.django_db(transaction=True)
def test_a_conversation_of_somebody_else_is_not_there(log_in, person):
    turn = a_turn(a_person("bob@example.com"), "Bob's")
    client = log_in(person)
    theirs = client.get(f"/api/v1/conversations/{turn.conversation_id}/export/")
    nobodys = client.get("/api/v1/conversations/of-nobody/export/")
    assert (theirs.status_code, theirs.content) == (404, nobodys.content)


@pytest.mark.extended
def test_as_markdown_a_long_conversation_needs_a_few_megabytes_too(monkeypatch):
    alice = a_person()
    text = random.Random(1).randbytes(750).hex()

    def four_thousand(conversation, user):
        for number in range(4_000):
            fields = {"turn_number": number, "parent_number": number - 1, "said_at": NOW, "status": "complete"}
            yield {**fields, "user_message": text, "assistant_message": text}

    monkeypatch.setattr(markdown_files, "turns_of", four_thousand)
    Conversation.objects.create(user=alice)
    tracemalloc.start()
    total = sum(len(piece) for piece in markdown_zip(user=alice, now=timezone.now()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total > 50_000
    assert peak < 2_000_000


def a_turn_with_a_file(user, name="plan (v2).pdf", data=PDF):
    with acting_as(user):
        turn = services.create_turn(
            services.TurnRequest(message="Read this", attachments=[a_file(user, data, name).pk]),
            caller=caller_for(user),
            now=NOW,
        )
        services.finish_turn(turn_id=turn.pk, answer=services.Answer(text="Read.", status=Turn.Status.COMPLETE))
    return turn


@pytest.mark.parametrize("pack", [json_zip, markdown_zip])
def test_a_zip_holds_attached_files_under_the_name_that_their_turn_gives(pack):
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    large = bytes(range(256)) * 3_000
    a_turn_with_a_file(alice)
    a_turn_with_a_file(alice, "scan.bin", large)
    a_turn_with_a_file(bob, "bobs.pdf")
    a_file(alice, b"of no message", "draft.txt")
    named = [each for one in exported(alice)["conversations"] for turn in one["turns"] for each in turn["attachments"]]
    assert [(each["name"], each["size"]) for each in named] == [("plan (v2).pdf", len(PDF)), ("scan.bin", len(large))]
    with zipfile.ZipFile(io.BytesIO(b"".join(pack(user=alice, now=NOW)))) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if name.startswith("attachments/")}
    assert found == {named[0]["file"]: PDF, named[1]["file"]: large}


def test_markdown_shows_versions_files_and_facts_and_nothing_that_an_import_needs():
    alice = a_person()
    turn = a_turn_with_a_file(alice)
    a_turn(alice, "# Again", "- ok", conversation=turn.conversation, parent=0)
    records.create(user=alice, content="We use PostgreSQL", now=NOW, project_id="p", tags=["db", "x"])
    with zipfile.ZipFile(io.BytesIO(b"".join(markdown_zip(user=alice, now=NOW)))) as archive:
        texts = {name.partition("/")[0]: archive.read(name).decode(errors="replace") for name in archive.namelist()}
        (file,) = (name for name in archive.namelist() if name.startswith("attachments/"))
    assert texts["conversations"] == (
        f"# Read this\n\n## 1. You, 2026-03-01 12:00 UTC\n\nRead this\n\n- files: {file}\n\n## Answer\n\nRead."
        "\n\n## 2. You, 2026-03-01 12:00 UTC, following nothing\n\n# Again\n\n## Answer\n\n- ok\n\n"
    )
    assert texts["records.md"] == (
        "# Memories\n\n## note, 2026-03-01 12:00 UTC\n\nWe use PostgreSQL\n\n- project id: p\n- tags: db, x\n\n"
    )
    assert not any(word in text for text in texts.values() for word in ("proof", "<!--", str(turn.conversation_id)))


def test_a_turn_without_files_is_exported_as_before():
    alice = a_person()
    a_turn(alice, "No file")
    assert "attachments" not in exported(alice)["conversations"][0]["turns"][0]
