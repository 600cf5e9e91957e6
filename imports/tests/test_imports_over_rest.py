"""From the upload to the undoing, over REST and by the worker: what a person sees, and what is in the database then."""

import io
import json
import shutil
import zipfile

import pytest
from django.test import Client
from django.utils import timezone

from core.isolation.acting import acting_as
from core.isolation.checks import personal_models
from imports.models import Import, ImportJob
from imports.reading.envelopes import OpenedText
from imports.storing import job, queue, worker
from imports.tests.exports import chatgpt
from imports.tests.over_rest import URL, Importer
from intake.chats.tree import Tree
from intake.models import ActivityEntry, Conversation, Turn
from intake.tests.factories import a_person, a_turn
from memory import documents, projects
from memory.models import MemoryDocument, MemoryRecord
from memory.models.documents import MAX_DOCUMENT_LENGTH
from recollect_cli.tests.test_transcripts import LOGS, SAID

# Those that commit themselves look at what the product does after a commit, or does in another transaction.
pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def importer(alice):
    client = Client()
    client.force_login(alice)
    return Importer(client)


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as export:
        for name, content in files.items():
            export.writestr(name, content if isinstance(content, bytes | str) else json.dumps(content))
    return buffer.getvalue()


def export(**options):
    return zipped({"conversations.json": chatgpt(**options)})


def said(user):
    return sorted(Turn.objects.for_user(user).values_list("user_message", flat=True))


def on_path(user):
    conversation = Conversation.objects.for_user(user).get()
    numbers = Tree.of(conversation).path_to(conversation.current_number)
    turns = {turn.turn_number: turn for turn in Turn.objects.for_user(user)}
    return [(turns[number].user_message, turns[number].assistant_message) for number in numbers]


def everything():
    """Every row of every person, but those of imports themselves and what is noted of them."""
    return {
        model._meta.label: sorted(map(repr, model.objects.values()))
        for model in personal_models()
        if model._meta.app_label != "imports" and model is not ActivityEntry
    }


def test_an_export_is_uploaded_looked_at_chosen_from_stored_and_reported(importer, alice):
    id_ = importer.upload(export(conversations=3, turns=2))
    assert said(alice) == [], "nothing is stored before it is started"
    preview = importer.get(f"{id_}/preview/").json()
    assert preview["import"]["state"] == "ready"
    assert preview["import"]["product_label"] == "ChatGPT"
    assert preview["import"]["found"] == {
        "conversations": 3,
        "documents": 0,
        "records": 0,
        "turns": 6,
        "new": 3,
        "longer": 0,
        "here": 0,
        "deleted": 0,
        "skipped": 0,
    }
    assert preview["import"]["from"].startswith("2023-05-01")
    assert preview["newest"] == ["Sourdough 2", "Sourdough 1", "Sourdough 0"]
    assert [item["status"] for item in preview["items"]] == ["new"] * 3
    assert importer.post(f"{id_}/start/", {"only": ["conversation\0"]}).status_code == 400
    response = importer.post(f"{id_}/start/", {"except": ["conversation-1"]})
    assert (response.status_code, response.json()["state"]) == (202, "waiting")
    assert worker.work()
    done = importer.get(f"{id_}/").json()
    assert done["state"] == "done"
    assert done["stored"] == {"conversations": 2, "turns": 4, "versions": 0, "documents": 0, "records": 0}
    assert done["vectors"]["waiting"] == 4
    assert done["can_undo"]
    stored = importer.get(f"{id_}/preview/", status="stored").json()["items"]
    assert {item["conversation_id"] for item in stored} == {
        str(pk) for pk in Conversation.objects.values_list("pk", flat=True)
    }
    assert {item["external_id"] for item in stored} == {"conversation-0", "conversation-2"}


@pytest.mark.django_db(transaction=True)
def test_the_upload_is_deleted_when_the_job_ends(importer, imports_dir):
    importer.bring(export())
    assert not [path for path in imports_dir.rglob("*") if path.is_file()]
    assert not ImportJob.objects.exists()


def test_the_same_export_again_adds_nothing_and_says_so(importer, alice):
    importer.bring(export())
    before = everything()
    again = importer.bring(export())
    assert again["found"]["here"] == 3
    assert sum(again["stored"].values()) == 0
    assert everything() == before


def test_a_newer_export_brings_what_is_new_or_longer(importer, alice):
    importer.bring(export(conversations=2, turns=1))
    newer = importer.bring(export(conversations=3, turns=2))
    assert (newer["found"]["new"], newer["found"]["longer"]) == (1, 2)
    assert newer["stored"]["turns"] == 4
    assert len(said(alice)) == 6


def test_only_what_was_chosen_comes_in(importer, alice):
    importer.bring(export(), only=["conversation-2", "unknown"])
    assert len(said(alice)) == 2
    importer.bring(export(), since="2023-05-02T00:00:00Z")
    assert set(Conversation.objects.values_list("external_id", flat=True)) == {"conversation-1", "conversation-2"}


@pytest.mark.medium
def test_an_undone_import_leaves_the_database_as_it_was(importer, alice):
    a_turn(alice, "I was here before")
    importer.bring(export(conversations=1, turns=1))
    before = everything()
    done = importer.bring(export(conversations=4, turns=3))
    assert everything() != before
    assert importer.undo(done["id"]).status_code == 202
    assert importer.get(f"{done['id']}/").json()["state"] == "undone"
    after = everything()
    kept = Conversation.objects.get(external_id="conversation-0")
    # Of a conversation that it made longer the count stays: a number is never given again.
    assert kept.turn_count == 3
    Conversation.objects.filter(pk=kept.pk).update(turn_count=1)
    assert everything() | {"intake.Conversation": None} == before | {"intake.Conversation": None}, after
    assert everything()["intake.Conversation"] == before["intake.Conversation"]


def growing(answers):
    """An export of one question, with so many answers, and of a note."""
    mapping = {"q": {"parent": None, "message": said_by("user", "Why does dough rise?")}}
    for number in range(answers):
        mapping[f"a{number}"] = {
            "parent": f"a{number - 1}" if number else "q",
            "message": said_by("assistant", f"{number}."),
        }
    return zipped(
        {"conversations.json": [{"conversation_id": "c", "mapping": mapping, "current_node": list(mapping)[-1]}]}
    )


def said_by(role, text):
    return {"author": {"role": role}, "create_time": 1.7e9, "content": {"content_type": "text", "parts": [text]}}


def answers(user):
    return list(Turn.objects.for_user(user).values_list("assistant_message", flat=True))


@pytest.mark.medium
@pytest.mark.parametrize(("order", "counting"), [("210", 0), ("012", 0), ("102", 1)])
def test_imports_that_made_one_turn_longer_are_undone_in_any_order(importer, alice, order, counting):
    before = everything()
    made = [importer.bring(growing(0)), importer.bring(growing(2)), importer.bring(growing(3))]
    assert [each["found"]["longer"] for each in made] == [0, 1, 1]
    assert [each["selected"]["turns"] for each in made] == [each["stored"]["turns"] for each in made] == [1, 1, 1]
    for older in (0, 2, 3):
        again = importer.bring(growing(older))
        assert (again["found"]["here"], sum(again["stored"].values())) == (1, 0)
    for number, place in enumerate(map(int, order)):
        assert answers(alice) == ["0.\n\n1.\n\n2."], "what another import brought too stays"
        assert importer.undo(made[place]["id"]).status_code == 202
        notices = importer.get(f"{made[place]['id']}/").json()["notices"]
        stays = "Messages and notes that another import brought too, or made longer, stay with that import: 1."
        assert notices == ([stays] if number == counting else [])
    assert answers(alice) == []
    assert everything() == before


def test_an_import_that_is_off_the_list_keeps_what_it_made_longer(importer, alice):
    first, second = importer.bring(growing(0)), importer.bring(growing(2))
    importer.client.delete(f"{URL}{second['id']}/")
    importer.undo(first["id"])
    assert answers(alice) == ["0.\n\n1."]


def test_a_preview_from_a_day_on_counts_what_would_be_stored(importer, alice):
    importer.bring(export(conversations=4, turns=1))
    id_ = importer.upload(export(conversations=5, turns=3))
    # PostgreSQL knows no offset of more than 15:59; and this one lies before the year 1.
    assert importer.get(f"{id_}/preview/", since="0099-08-24T23:06:05.52+17:27").status_code == 200
    assert importer.get(f"{id_}/preview/", since="0001-01-01T00:00:00+17:27").status_code == 400
    shown = importer.get(f"{id_}/preview/", since="2023-05-03T00:00:00Z").json()
    assert len(shown["items"]) == 3
    assert shown["comes_in"] == {"conversations": 3, "turns": 7, "documents": 0, "records": 0}
    assert importer.get(f"{id_}/preview/").json()["comes_in"]["turns"] == 11
    started = importer.post(f"{id_}/start/", {"since": "2023-05-03T00:00:00Z"}).json()
    while worker.work():
        pass
    done = importer.get(f"{id_}/").json()
    assert started["selected"] == shown["comes_in"]
    assert done["stored"]["turns"] == 7


def test_after_an_undoing_the_same_comes_in_again_but_for_what_was_deleted(importer, alice):
    done = importer.bring(export(conversations=2, turns=1))
    Conversation.objects.get(external_id="conversation-0").delete()
    importer.undo(done["id"])
    again = importer.bring(export(conversations=2, turns=1))
    assert again["found"]["deleted"] == 1
    assert set(Conversation.objects.values_list("external_id", flat=True)) == {"conversation-1"}


def test_undoing_asks_where_something_was_continued_and_keeps_what_was_said_here(importer, alice):
    done = importer.bring(export(conversations=2, turns=2))
    a_turn(alice, "And now?", conversation=Conversation.objects.get(external_id="conversation-1"))
    refused = importer.undo(done["id"])
    assert (refused.status_code, refused.json()["code"]) == (409, "continued_since")
    assert refused.json()["continued_since"] == 1
    assert len(said(alice)) == 5
    assert importer.undo(done["id"], force=True).status_code == 202
    assert said(alice) == ["And now?"]
    noted = ActivityEntry.objects.filter(user=alice).exclude(what="logged_in").order_by("at")
    lines = noted.values_list("what", "count")
    assert list(lines) == [("import_started", 1), ("import_undone", 2)], "one line for all that was deleted"


@pytest.mark.medium
def test_a_killed_worker_is_followed_by_another_that_stores_the_same(importer, alice, monkeypatch):
    data = export(conversations=10, turns=3)
    monkeypatch.setattr(job, "BATCH_TURNS", 6)
    id_ = importer.upload(data)
    importer.post(f"{id_}/start/")
    write, written = job.Batch, []

    def die_at_the_third(batch, **options):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(batch)
        return write(batch, **options)

    monkeypatch.setattr(job, "Batch", die_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        worker.work()
    assert 0 < len(said(alice)) < 30
    assert importer.get(f"{id_}/").json()["state"] == "running"
    monkeypatch.setattr(job, "Batch", write)
    assert not worker.work(), "as long as the lease of the dead one runs"
    ImportJob.objects.update(due_at=Import.objects.get().created_at)
    assert worker.work()
    done = importer.get(f"{id_}/").json()
    assert (done["state"], done["stored"]["turns"], done["stored"]["conversations"]) == ("done", 30, 10)
    resumed = sorted(Turn.objects.values_list("conversation__external_id", "turn_number", "user_message", "said_at"))
    other = a_person("bob@example.com")
    client = Client()
    client.force_login(other)
    Importer(client).bring(data)
    mine = Turn.objects.for_user(other)
    assert sorted(mine.values_list("conversation__external_id", "turn_number", "user_message", "said_at")) == resumed


def test_a_cancelled_import_stops_at_its_batch_and_can_be_undone(importer, alice, monkeypatch):
    monkeypatch.setattr(job, "BATCH_TURNS", 6)
    id_ = importer.upload(export(conversations=10, turns=3))
    importer.post(f"{id_}/start/")
    write, written = job.Batch, []

    def cancelled_meanwhile(batch, **options):
        if len(written) == 2:
            raise queue.LeaseLost
        written.append(batch)
        return write(batch, **options)

    monkeypatch.setattr(job, "Batch", cancelled_meanwhile)
    worker.work()
    assert importer.post(f"{id_}/cancel/").json()["state"] == "cancelled"
    assert not worker.work()
    assert len(said(alice)) == 12
    monkeypatch.setattr(job, "Batch", write)
    assert importer.undo(id_).status_code == 202
    assert said(alice) == []


@pytest.mark.django_db(transaction=True)
def test_a_lease_that_was_taken_away_lets_nothing_more_be_stored(importer, alice, monkeypatch):
    id_ = importer.upload(export(conversations=2, turns=1))
    importer.post(f"{id_}/start/")
    read = job.read

    def cancel_while_reading(*arguments):
        importer.post(f"{id_}/cancel/")
        yield from read(*arguments)

    monkeypatch.setattr(job, "read", cancel_while_reading)
    worker.work()
    assert said(alice) == []
    assert importer.get(f"{id_}/").json()["state"] == "cancelled"


def test_an_upload_goes_on_where_it_stands(importer):
    data = export()
    id_ = importer.begin(data)
    assert importer.put(id_, data[:100], first=0, total=len(data)).json()["bytes_received"] == 100
    wrong = importer.put(id_, data[200:300], first=200, total=len(data))
    assert (wrong.status_code, wrong.json()["code"], wrong.json()["bytes_received"]) == (409, "wrong_offset", 100)
    head = importer.client.head(f"{URL}{id_}/")
    assert head.headers["Upload-Offset"] == "100"
    last = importer.put(id_, data[100:], first=100, total=len(data))
    assert last.json()["state"] == "reading"
    assert importer.put(id_, b"x", first=len(data), total=len(data)).json()["code"] == "wrong_state"


@pytest.mark.parametrize(
    ("data", "header", "status"),
    [
        (b"abc", "bytes 0-2/999", 400),
        (b"abc", "bytes 0-1/10", 400),
        (b"abc", "nonsense", 400),
        (b"abc", "", 400),
        (b"x" * 11, "bytes 0-10/10", 400),
        (b"", "bytes 0-0/10", 400),
        (b"x" * (2 * 1024 * 1024 + 1), f"bytes 0-{2 * 1024 * 1024}/10", 413),
    ],
)
def test_a_chunk_that_is_none_is_refused_and_changes_nothing(importer, data, header, status):
    id_ = importer.begin(b"x" * 10)
    response = importer.client.put(
        f"{URL}{id_}/content/", data, content_type="application/octet-stream", headers={"content-range": header}
    )
    assert (response.status_code, response["content-type"]) == (status, "application/problem+json")
    assert importer.get(f"{id_}/").json()["bytes_received"] == 0


def test_there_is_a_limit_to_open_imports_and_to_their_bytes(importer, monkeypatch):
    monkeypatch.setattr("imports.services.MOST_OPEN", 1)
    monkeypatch.setattr("imports.services.MOST_BYTES", 100)
    large = importer.post("", {"filename": "x", "bytes": 101})
    assert (large.status_code, large.json()["code"]) == (413, "quota_exceeded")
    importer.begin(b"x")
    more = importer.post("", {"filename": "x", "bytes": 1})
    assert (more.status_code, more.json()["code"]) == (409, "too_many_imports")


def test_an_upload_for_which_the_disk_has_no_room_is_refused_before_it_begins(importer, monkeypatch):
    monkeypatch.setattr("imports.storing.uploads.FREE_BYTES", 2**60)
    response = importer.post("", {"filename": "x", "bytes": 1})
    assert (response.status_code, response.json()["code"]) == (507, "no_room")
    assert not Import.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filename"),
        ({"filename": "x", "bytes": 0}, "bytes"),
        ({"filename": "x", "bytes": 1, "product": "myspace"}, "product"),
        ({"filename": "x", "bytes": 1, "path": "/etc"}, "path"),
    ],
)
def test_what_cannot_be_begun_is_said_by_field(importer, body, field):
    response = importer.post("", body)
    assert response.status_code == 400
    assert field in response.json()["errors"]


def test_an_empty_file_is_refused_in_one_sentence(importer):
    refused = importer.post("", {"filename": "x", "bytes": 0}).json()
    assert (refused["detail"], refused["errors"]) == ("This file is empty.", {"bytes": ["This file is empty."]})


def test_a_file_name_is_never_a_path(importer, imports_dir):
    importer.begin(b"x", filename="../../etc/passwd\x00")
    importer.put(importer.get("").json()["imports"][0]["id"], b"x", first=0, total=1)
    (file,) = [path for path in imports_dir.rglob("*") if path.is_file()]
    assert file.parent.parent == imports_dir
    assert oct(file.stat().st_mode & 0o777) == "0o600"


# Forty megabytes are packed for one of them, more than `Limits.ratio_from_bytes`: each is made by its own test.
UNREADABLE = {
    "text": lambda: b"hello",
    "broken zip": lambda: b"PK\x03\x04 broken",
    "empty": lambda: b"[]",
    "unknown": lambda: b'{"a": 1}',
    "slack": lambda: zipped({"users.json": [], "channels.json": []}),
    "bomb": lambda: zipped({"bomb.json": b"0" * 40_000_000}),
    "cut off": lambda: zipped({"conversations.json": b'[{"mapping": {"a": '}),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_fails_with_a_sentence_and_no_path_of_the_server(importer, alice, imports_dir, kind):
    id_ = importer.upload(UNREADABLE[kind]())
    got = importer.get(f"{id_}/").json()
    assert got["state"] in ("failed", "ready")
    if got["state"] == "failed":
        assert got["error"].endswith((".", "!"))
    assert str(imports_dir) not in json.dumps(got)
    assert said(alice) == []


def test_a_report_is_in_the_language_of_the_page_and_in_english_for_programs(importer):
    slack = importer.upload(zipped({"users.json": [], "channels.json": [{}]}))
    prompt = {"header": "Gemini Apps", "title": "Prompted Hello", "time": "2025-01-01T10:00:00Z"}
    odd = {"header": "Maps", "title": "x", "time": "2025-01-01T10:00:00Z"}
    gemini = importer.upload(zipped({"Takeout/My Activity/Gemini Apps/MyActivity.json": [prompt, odd]}))
    german = {"X-Recollect-Language": "de"}
    refused, read = (importer.client.get(f"{URL}{id_}/", headers=german).json() for id_ in (slack, gemini))
    assert refused["error"].startswith("Das sieht nach einem Slack-Export aus")
    assert "ChatGPT" in refused["error"] and refused["notices"] == []
    assert read["notices"][0].startswith("Der Export von Gemini sagt nicht")
    assert [each["reason"] for each in read["skipped"]] == ["ein Eintrag eines anderen Produkts"]
    refused, read = (importer.get(f"{id_}/").json() for id_ in (slack, gemini))
    assert refused["error"].startswith("This looks like a Slack export, which is not supported. What can be read: ")
    assert [each["reason"] for each in read["skipped"]] == ["an entry of another product"]


def test_a_failure_of_ours_is_tried_again_and_ends_with_a_sentence(importer, monkeypatch, caplog):
    data = export()

    def broken(*_):
        raise RuntimeError("secret words")

    monkeypatch.setattr("imports.storing.preview.recognise", broken)
    id_ = importer.begin(data)
    importer.put(id_, data, first=0, total=len(data))
    for _ in range(4):
        ImportJob.objects.update(due_at=Import.objects.get().created_at)
        assert worker.work()
    got = importer.get(f"{id_}/").json()
    assert (got["state"], got["error"]) == ("failed", worker.BROKEN)
    assert "RuntimeError at" in caplog.text
    assert "secret words" not in caplog.text


@pytest.mark.django_db(transaction=True)
def test_an_upload_that_nobody_goes_on_with_is_deleted(importer, imports_dir):
    id_ = importer.begin(b"xyz")
    importer.put(id_, b"x", first=0, total=3)
    assert not worker.work()
    ImportJob.objects.update(due_at=Import.objects.get().created_at)
    assert worker.work()
    got = importer.get(f"{id_}/").json()
    assert (got["state"], got["error"]) == ("cancelled", job.EXPIRED)
    assert not [path for path in imports_dir.rglob("*") if path.is_file()]


def test_an_import_that_is_removed_takes_its_line_and_its_upload_along_and_leaves_what_it_brought(importer, alice):
    done = importer.bring(export(conversations=1, turns=1))
    assert importer.client.delete(f"{URL}{done['id']}/").status_code == 204
    assert importer.get(f"{done['id']}/").status_code == 404
    assert len(said(alice)) == 1
    assert importer.bring(export(conversations=1, turns=1))["found"]["here"] == 1


def test_states_that_do_not_fit_are_refused(importer):
    id_ = importer.begin(b"xyz")
    for path in ("start", "undo"):
        response = importer.post(f"{id_}/{path}/")
        assert (response.status_code, response.json()["code"]) == (409, "wrong_state"), path
    assert importer.get(f"{id_}/preview/").json()["code"] == "wrong_state"


def test_a_session_needs_its_csrf_token(alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    assert client.post(URL, json.dumps({"filename": "x", "bytes": 1}), content_type="application/json").status_code in (
        401,
        403,
    )


@pytest.mark.medium
def test_notes_memory_and_daily_logs_come_in_once_and_go_again(importer, alice):
    files = {
        "workspace/MEMORY.md": "# Memory\n\nLikes rye.\n",
        "workspace/USER.md": "Lives in Baarn.\n",
        "workspace/memory/2024-02-03.md": "- Baked a loaf\n",
    }
    before = everything()
    done = importer.bring(zipped(files))
    assert done["stored"]["documents"] == 3
    by_kind = {document.kind: document for document in MemoryDocument.objects.all()}
    assert set(by_kind) == {"memory", "about", "daily_log"}
    assert "Likes rye." in by_kind["memory"].content
    assert str(by_kind["daily_log"].date) == "2024-02-03"
    contents = sorted(MemoryDocument.objects.values_list("content", flat=True))
    importer.bring(zipped(files))
    assert sorted(MemoryDocument.objects.values_list("content", flat=True)) == contents
    longer = importer.bring(zipped(files | {"workspace/MEMORY.md": "# Memory\n\nLikes rye.\nLikes oats.\n"}))
    assert MemoryDocument.objects.get(kind="memory").content.endswith("Likes rye.\nLikes oats.\n")
    assert longer["found"]["longer"] == 1
    importer.undo(longer["id"])
    assert MemoryDocument.objects.get(kind="memory").content.endswith("Likes rye.\nLikes oats.\n"), "both brought it"
    longer = importer.bring(zipped(files | {"workspace/MEMORY.md": "# Memory\n\nLikes rye.\nLikes millet.\n"}))
    importer.undo(done["id"])
    assert [document.kind for document in MemoryDocument.objects.all()] == ["memory"], "the longer export has it too"
    importer.undo(longer["id"])
    assert not MemoryRecord.objects.exists()
    assert everything() == before


@pytest.mark.medium
def test_a_memory_that_has_no_room_any_more_is_listed_with_its_place_and_the_rest_comes_in(importer, alice):
    with acting_as(alice):
        documents.append(user=alice, day=None, text="x" * (MAX_DOCUMENT_LENGTH - 10), now=timezone.now())
    before = MemoryDocument.objects.get(kind="memory").content
    done = importer.bring(zipped({"workspace/MEMORY.md": "Likes rye and oats.\n", "workspace/USER.md": "Of Baarn.\n"}))
    assert (done["state"], done["stored"]["documents"], done["found"]["skipped"]) == ("done", 1, 1)
    (skipped,) = done["skipped"]
    assert "MEMORY.md" in skipped["where"]
    assert str(MAX_DOCUMENT_LENGTH) in skipped["reason"].replace(",", "")
    assert MemoryDocument.objects.get(kind="memory").content == before


def test_notes_are_documents_of_their_own_with_their_dates(importer, alice):
    files = {"Trip.md": "---\ndate: 2022-05-06\n---\n# A trip\n\nTo Norway.\n", "Other.md": "Nothing much.\n"}
    done = importer.bring(zipped(files))
    assert done["stored"]["documents"] == 2
    trip = MemoryDocument.objects.get(title="A trip")
    assert (trip.kind, trip.updated_at.date().isoformat()) == ("note", "2022-05-06")
    assert "To Norway." in trip.content
    with acting_as(alice):
        documents.rewrite_note(user=alice, note_id=trip.pk, title="A trip", content="To Oslo.", at=timezone.now())
    importer.undo(done["id"], force=True)
    assert MemoryDocument.objects.get().content == "To Oslo.", "what was changed here stays"


def test_announced_uploads_of_all_people_count_against_the_free_space(importer, settings, monkeypatch):
    free = shutil.disk_usage("/").free
    size = 100 * 1024 * 1024
    monkeypatch.setattr(
        "imports.storing.uploads.FREE_BYTES", shutil.disk_usage(settings.IMPORTS_DIR.parent).free - 2 * size - size // 2
    )
    bob = Client()
    bob.force_login(a_person("bob@example.com"))
    requested = {"filename": "x.zip", "bytes": size}
    assert importer.post("", requested).status_code == 201
    assert Importer(bob).post("", requested).status_code == 201
    refused = importer.post("", requested)
    assert (refused.status_code, refused.json()["code"]) == (507, "no_room")
    assert abs(free - shutil.disk_usage("/").free) < size, "nothing is written for it"
    assert Import.objects.count() == 2


def test_each_chunk_is_refused_once_the_disk_is_nearly_full(importer, monkeypatch):
    data = export(conversations=1, turns=1)
    id_ = importer.begin(data)
    monkeypatch.setattr("imports.storing.uploads.FREE_BYTES", 10**18)
    refused = importer.put(id_, data, first=0, total=len(data))
    assert (refused.status_code, refused.json()["code"]) == (507, "no_room")
    monkeypatch.setattr("imports.storing.uploads.FREE_BYTES", 0)
    assert importer.put(id_, data, first=0, total=len(data)).status_code == 200


@pytest.mark.medium
@pytest.mark.parametrize("step", ["reading", "storing", "undoing"])
def test_a_short_import_does_not_wait_for_a_long_one_of_anyone(importer, alice, monkeypatch, step):
    monkeypatch.setattr("imports.storing.worker.TURN_SECONDS", 0.0)
    monkeypatch.setattr(job, "BATCH_TURNS", 6)
    monkeypatch.setattr("imports.storing.preview.BATCH", 2)
    monkeypatch.setattr("imports.storing.undoing.BATCH", 2)
    bob = a_person("bob@example.com")
    client = Client()
    client.force_login(bob)
    long, short = export(conversations=20, turns=3), export(conversations=1, turns=1)
    if step == "reading":
        id_ = importer.begin(long)
        importer.put(id_, long, first=0, total=len(long))
    else:
        id_ = importer.upload(long)
        importer.post(f"{id_}/start/")
    if step == "undoing":
        assert worker.work()
        importer.post(f"{id_}/undo/")
    for each in (importer, Importer(client)):
        each.put(each.begin(short), short, first=0, total=len(short))
    ended = []
    save = Import.save

    def note(self, *arguments, **options):
        save(self, *arguments, **options)
        if self.state in ("ready", "done", "undone") and self.pk not in ended:
            ended.append(self.pk)

    monkeypatch.setattr(Import, "save", note)
    assert worker.work()
    assert len(ended) == 3 and str(ended[-1]) == id_
    assert not ImportJob.objects.filter(due_at__lte=timezone.now()).exists()


@pytest.mark.medium
def test_imports_that_take_turns_each_store_everything(importer, alice, monkeypatch):
    monkeypatch.setattr("imports.storing.worker.TURN_SECONDS", 0.0)
    monkeypatch.setattr(job, "BATCH_TURNS", 6)
    people = [a_person(f"{number}@example.com") for number in range(5)]
    for person in people:
        client = Client()
        client.force_login(person)
        one = Importer(client)
        id_ = one.upload(export(conversations=6, turns=3))
        one.post(f"{id_}/start/")
    while worker.work():
        pass
    assert [Turn.objects.for_user(person).count() for person in people] == [18] * 5
    assert set(Import.objects.values_list("state", flat=True)) == {"done"}


def claude_code_session(questions):
    lines, parent = [], None
    for number, question in enumerate(questions):
        for role, text in (("user", question), ("assistant", f"Answer {number}.")):
            node = f"{role}{number}"
            message = {"role": role, "content": text}
            at = f"2026-09-03T10:{number:02}:0{role == 'assistant':d}Z"
            line = {"type": role, "uuid": node, "parentUuid": parent, "sessionId": "s", "timestamp": at}
            lines.append(json.dumps({**line, "message": message}))
            parent = node
    return zipped({"projects/-a/s.jsonl": "\n".join(lines) + "\n"})


@pytest.mark.medium
def test_importing_again_mends_texts_that_came_in_with_envelopes(importer, alice, monkeypatch):
    questions = [
        "<system-reminder>be careful</system-reminder>\nPaint the penstock",
        "Why is it red? <system-reminder>todo</system-reminder>",
        "<tick>1</tick>",
        "Thanks",
    ]
    with monkeypatch.context() as earlier:
        as_it_is = lambda texts, *_, **__: OpenedText("\n\n".join(texts))  # noqa: E731
        earlier.setattr("imports.reading.session_tree.opened", as_it_is)
        importer.bring(claude_code_session(questions))
    assert any("system-reminder" in text for text in said(alice))
    assert Conversation.objects.get().title.startswith("<system-reminder>")

    again = importer.bring(claude_code_session(questions))

    assert again["account"]["changed"]["turns"] == 2
    with acting_as(alice):
        turns = list(Turn.objects.order_by("turn_number").values_list("user_message", "assistant_message"))
    assert turns[:2] == [("Paint the penstock", "Answer 0."), ("Why is it red?", "Answer 1.")]
    assert Conversation.objects.get().title == "Paint the penstock"
    assert importer.bring(claude_code_session(questions))["account"]["changed"]["turns"] == 0


def test_mending_parts_an_answer_that_was_glued_to_that_of_a_hidden_prompt(importer, alice, monkeypatch):
    questions = ["Paint it", "<tick>1</tick>"]
    with monkeypatch.context() as earlier:
        earlier.setattr("imports.reading.products.claude_code.SessionTree.hidden_above", lambda *_: ())
        importer.bring(claude_code_session(questions))
    assert Turn.objects.for_user(alice).get().assistant_message == "Answer 0.\n\nAnswer 1."

    again = importer.bring(claude_code_session(questions))

    assert (again["account"]["changed"]["turns"], again["account"]["stored"]["turns"]) == (1, 1)
    answers = Turn.objects.for_user(alice).order_by("turn_number").values_list("assistant_message", flat=True)
    assert list(answers) == ["Answer 0.", "Answer 1."]


def bring_without_replies(importer, monkeypatch, product):
    """As the release before did; returns the log."""
    name, lines = LOGS[product]
    log = zipped({name: "\n".join(map(json.dumps, lines)) + "\n"})
    with monkeypatch.context() as earlier:
        for name in ("asked", "answers_in_output") if product == "codex" else ("asked_in", "replies_in_results"):
            earlier.setattr(f"imports.reading.products.{product.replace('-', '_')}.{name}", lambda *_: "")
        importer.bring(log)
    return log


def test_importing_again_keeps_what_was_changed_and_continued_here(importer, alice, monkeypatch):
    log = bring_without_replies(importer, monkeypatch, "claude-code")
    with acting_as(alice):
        changed = Turn.objects.get(user_message="And paint it.")
        changed.user_message = "And paint it red."
        changed.save()
    a_turn(alice, "Which brush?", conversation=changed.conversation)
    importer.bring(log)
    turns = dict(Turn.objects.for_user(alice).values_list("user_message", "turn_number"))
    wanted = {words for words, _answer in SAID["claude-code"]} - {"And paint it."} | {
        "And paint it red.",
        "Which brush?",
    }
    assert set(turns) == wanted
    assert turns["And paint it red."] == changed.turn_number
    assert Turn.objects.for_user(alice).count() == len(wanted)


@pytest.mark.parametrize("product", ["claude-code", "codex"])
def test_importing_again_adds_the_replies_that_an_earlier_reader_left_out(importer, alice, monkeypatch, product):
    log = bring_without_replies(importer, monkeypatch, product)
    missing = len(SAID[product]) - len(said(alice))
    assert missing > 0

    shown = importer.bring(log)

    turns = Turn.objects.for_user(alice)
    assert sorted(turns.values_list("user_message", "assistant_message")) == sorted(SAID[product])
    again = importer.bring(log)
    assert (again["account"]["changed"]["turns"], again["account"]["stored"]["turns"]) == (0, 0)
    # At their place in time: as where they came in at once.
    newcomer, client = a_person("newcomer@example.com"), Client()
    client.force_login(newcomer)
    Importer(client).bring(log)
    assert on_path(alice) == on_path(newcomer)
    said_before = f"Messages that were left out before, when these chats came in: {missing}. They come in now, at their place in time."
    assert said_before in shown["notices"] and said_before not in again["notices"]


def test_what_was_deleted_in_its_product_comes_in_only_if_it_is_asked_for(importer, alice):
    at = "2026-09-05T08:01:00Z"
    lines = [
        {"type": "session", "id": "o1", "timestamp": at, "cwd": "/home/me"},
        {
            "type": "message",
            "id": "m1",
            "parentId": None,
            "timestamp": at,
            "message": {"role": "user", "content": "Why?"},
        },
    ]
    log = zipped({"sessions/o1.jsonl.deleted.2026-09-06T12-10-11.000Z": "\n".join(map(json.dumps, lines))})
    assert importer.bring(log)["account"]["not_chosen"]["turns"] == 1
    assert said(alice) == []
    importer.bring(log, only=["o1"])
    assert said(alice) == ["Why?"]


def test_the_account_adds_up_after_every_import(importer, alice):
    importer.bring(export(conversations=2, turns=1))
    with acting_as(alice):
        Conversation.objects.get(external_id="conversation-0").delete()
    done = importer.bring(export(conversations=4, turns=3), **{"except": ["conversation-3"]})
    account = done["account"]
    places = ("stored", "changed", "here", "deleted", "not_chosen")
    assert {name: account[name]["turns"] for name in places} == {
        "stored": 5,
        "changed": 0,
        "here": 1,
        "deleted": 3,
        "not_chosen": 3,
    }
    for unit in ("turns", "characters"):
        assert account["read"][unit] == sum(account[name][unit] for name in places)
    assert account["stored"]["turns"] == done["stored"]["turns"]
    again = importer.bring(export(conversations=4, turns=3), **{"except": ["conversation-3"]})["account"]
    assert (again["stored"]["turns"], again["here"]["turns"], again["read"]) == (0, 6, account["read"])


def test_an_export_with_two_projects_gives_two_and_a_new_name_holds_for_the_next_one(importer, alice):
    kept = chatgpt(conversations=4, turns=1)
    for conversation, letter in zip(kept, "aabb", strict=True):
        conversation["conversation_template_id"] = f"g-p-{letter * 32}"
    importer.bring(zipped({"conversations.json": kept[::2]}))
    found = [(each.name, each.chats) for each in projects.list_projects(user=alice)]
    assert found == [("ChatGPT project aaaaaaaa", 1), ("ChatGPT project bbbbbbbb", 1)]
    projects.rename_project(user=alice, name="ChatGPT project aaaaaaaa", new_name="Garden")
    importer.bring(zipped({"conversations.json": kept}))
    found = [(each.name, each.chats) for each in projects.list_projects(user=alice)]
    assert found == [("ChatGPT project bbbbbbbb", 2), ("Garden", 2)]


def test_the_notes_of_a_folder_of_claude_code_belong_to_its_project(importer, alice):
    line = {"type": "user", "uuid": "u", "sessionId": "s", "timestamp": "2025-11-20T06:01:00Z", "cwd": "/home/me/shop"}
    session = json.dumps({**line, "message": {"role": "user", "content": "Why?"}}) + "\n"
    folder = "projects/-home-me-shop"
    importer.bring(zipped({f"{folder}/memory/NOTES.md": "Orders are kept", f"{folder}/s.jsonl": session}))
    assert list(MemoryDocument.objects.values_list("title", "project")) == [("NOTES", "shop")]
    assert list(Conversation.objects.values_list("project", flat=True)) == ["shop"]
