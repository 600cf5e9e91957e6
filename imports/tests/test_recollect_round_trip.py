"""Export, delete, import: the same export again."""

import io
import json
import zipfile
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chat import exporting
from core.ids import uuid7
from core.isolation.acting import acting_as
from imports.storing.conversations import id_here
from imports.tests.over_rest import Importer
from intake.accounts import activity
from intake.attachments.services import bytes_of
from intake.chats import deleting
from intake.models import Activity, Attachment, AttachmentPiece, AttachmentText, Conversation, Project, Turn
from intake.tests.attached import a_file, a_picture
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import documents, projects, proposals, records
from memory.models import Proposal
from memory.models.documents import ABOUT_ME
from memory.search.history import HistoryRequest, search_history
from memory.tests.attached import read_all, say
from testing import files
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db

PARTS = ("projects", "conversations", "documents", "records", "proposals")


def make_one_of_each():
    """A person with one of everything that an export has, files aside."""
    alice = a_person()
    turn = a_turn(alice, "How warm?\n\n<!-- end {} -->", "About 25 degrees.\r\n")
    conversation = turn.conversation
    a_turn(alice, "And then?", "", conversation=conversation)
    Turn.objects.filter(pk=turn.pk).update(
        tool_calls=[{"id": "c", "name": "search_history", "input": {"query": "-->"}}],
        usage={"model": "m", "seconds": 0.5},
        reasoning="Warm -->",
    )
    with acting_as(alice):
        a_turn(alice, "And now?", "Fold it.", conversation=Conversation.objects.get(pk=conversation.pk))
    Turn.objects.filter(user=alice, turn_number=3).update(
        parent_number=1, status=Turn.Status.FAILED, error={"code": "unavailable", "detail": "Away.", "retryable": True}
    )
    Turn.objects.filter(user=alice, turn_number=2).update(parent_number=1, is_recall=True)
    at = NOW.replace(microsecond=456)
    Conversation.objects.filter(pk=conversation.pk).update(current_number=2, title="Dough 🙂", last_active_at=at)
    other = a_turn(alice, "From elsewhere").conversation
    Conversation.objects.filter(pk=conversation.pk).update(pinned_at=at, titled_by="person", project="me/dough")
    Conversation.objects.filter(pk=conversation.pk).update(
        model="fast", instructions="Briefly.\n", temperature=0.5, uses_memory=False
    )
    Conversation.objects.filter(pk=other.pk).update(archived_at=at, source="chatgpt", external_id="abc")
    with acting_as(alice):
        documents.append(user=alice, day=NOW.date(), text="Planted beans", now=NOW)
        documents.append(user=alice, day=None, text="Tea, not coffee", now=NOW)
        documents.append(user=alice, day=ABOUT_ME, text="I live in Delft", now=NOW)
        documents.append(user=alice, day=None, text="And no sugar", now=NOW + timedelta(days=1))
        documents.create_note(user=alice, title="Bread: 2 ways", content="# Rye\n\n---\n", at=NOW)
        documents.create_note(user=alice, title="Beans", content="Two rows", at=NOW, project="me/dough")
        for project in ("me/dough", "me dough"):
            documents.append(user=alice, day=None, project=project, text=f"Memory of {project}", now=NOW)
            documents.append(user=alice, day=NOW.date(), project=project, text=f"Log of {project}", now=NOW)
        projects.save_project(
            user=alice,
            name="me/dough",
            colour="red",
            instructions="In grams.\n",
            is_closed=True,
            labels=["me/bread", "bakery"],
        )
        activity.note(alice, Activity.LOGGED_IN)
        old = records.create(user=alice, content="We use PostgreSQL", now=NOW, project_id="p", tags=["db", "x"])
        facts = {"replaces": old.id, "valid_from": NOW.date(), "valid_until": NOW.date(), "done": True}
        source = {"source_conversation": conversation.pk, "source_turn": 1}
        records.create(user=alice, content="Use SQLite", type="todo", now=NOW, facts={**facts, **source})
        own = {"content": "The dough is at 25 degrees.", "type": "fact", "quote": "How warm?", "project_id": "me/dough"}
        agents = {"content": "We use SQLite --> now.", "replaces": old.id}
        proposals.propose(user=alice, drafts=[{**own, **source}, agents], now=NOW)
    return alice


@kept_rows
def one_of_each():
    return make_one_of_each()


@pytest.fixture
def alice(one_of_each):
    return one_of_each


def exported(user):
    document = json.loads(b"".join(exporting.account_as_json(user=user, now=NOW)))
    return {part: document.get(part, []) for part in PARTS}


def importer_of(user):
    client = Client()
    client.force_login(user)
    return Importer(client)


@pytest.fixture
def importer(alice):
    return importer_of(alice)


def delete_all(user):
    with acting_as(user):
        for conversation in Conversation.objects.for_user(user):
            deleting.delete_conversation(caller=caller_for(user), conversation_id=conversation.pk)
        for document in list(documents.MemoryDocument.objects.for_user(user)):
            document.delete()
        for record in list(records.MemoryRecord.objects.for_user(user)):
            record.delete()
        Proposal.objects.for_user(user).delete()
        Project.objects.for_user(user).delete()


@pytest.mark.medium
def test_what_was_exported_and_deleted_comes_back_to_the_letter(alice, importer):
    """So does the zip, which brings the files too: below."""
    before = exported(alice)
    data = b"".join(exporting.account_as_json(user=alice, now=timezone.now()))
    delete_all(alice)
    assert exported(alice) == {part: [] for part in PARTS}
    done = importer.bring(data)
    assert done["state"] == "done", done["error"]
    assert exported(alice) == before


def test_a_copy_of_what_is_here_adds_nothing(alice, importer):
    before = exported(alice)
    data = b"".join(exporting.account_as_json(user=alice, now=timezone.now()))
    id_ = importer.upload(data)
    assert {item["status"] for item in importer.get(f"{id_}/preview/", kind="conversation").json()["items"]} == {"here"}
    everything = [item["external_id"] for item in importer.get(f"{id_}/preview/").json()["items"]]
    assert importer.bring(data, only=everything)["state"] == "done"
    assert exported(alice) == before


@pytest.mark.medium
def test_it_comes_to_another_account_too_and_twice_is_once(alice):
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    bob = a_person("bob@example.com")
    importer = importer_of(bob)
    for _ in range(2):
        assert importer.bring(data)["state"] == "done"
        theirs, ours = exported(bob), exported(alice)
        ids = {conversation.pop("id") for conversation in [*theirs["conversations"], *ours["conversations"]]}
        # Without the proof of this account, another id is made from the user's and the exported one.
        assert len(ids) == 4
        for conversation in [*theirs["conversations"], *ours["conversations"]]:
            del conversation["proof"], conversation["instructions"]
        # They stand in the order of their ids, which differ.
        [project], [own] = theirs.pop("projects"), ours.pop("projects")
        assert (project["instructions"], own["instructions"]) == ("", "In grams.\n")
        for name in ("name", "colour", "is_closed", "labels", "created_at"):
            assert project[name] == own[name]
        # The chat of a proposal has another id here, and so the proposal names none.
        for name in ("source_conversation", "source_turn"):
            del ours["proposals"][0][name]
        for document in (theirs, ours):
            document["conversations"].sort(key=lambda conversation: conversation["title"])
        assert theirs == ours


def test_a_turn_that_was_deleted_here_stays_deleted_and_a_later_one_comes(alice, importer):
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    conversation = Conversation.objects.get(user=alice, title="Dough 🙂")
    with acting_as(alice):
        deleting.delete_turn(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=2)
    before = exported(alice)
    id_ = importer.upload(data)
    everything = [item["external_id"] for item in importer.get(f"{id_}/preview/").json()["items"]]
    assert importer.bring(data, only=everything)["state"] == "done"
    assert exported(alice) == before


def forged(user, *branches):
    """An export in which conversations, named by number, continue others: pairs of (conversation, its origin)."""
    document = json.loads(b"".join(exporting.account_as_json(user=user, now=NOW)))
    [kept] = document["conversations"][:1]
    ids = {}
    for number in {number for pair in branches for number in pair if number is not None}:
        ids[number] = str(uuid7())
    document["conversations"] = [
        {**kept, "id": ids[number], "branched_from": ids.get(origin), "branched_after": origin and 1}
        for number, origin in branches
    ]
    return json.dumps(document).encode(), ids


@pytest.mark.parametrize("branches", [[(1, 1)], [(1, 2), (2, 3), (3, 1)], [(1, 9)]], ids=["itself", "ring", "gone"])
def test_an_import_may_only_continue_an_earlier_conversation(branches):
    bob = a_person("bob@example.com")
    a_turn(bob, "Hello")
    data, ids = forged(bob, *branches)
    client = Client()
    client.force_login(bob)
    done = Importer(client).bring(data)
    assert done["state"] == "done", done["error"]
    here = {name: Conversation.objects.filter(pk=id_here(bob, UUID(name))).first() for name in ids.values()}
    first = here[ids[1]]
    assert (first.branched_from, first.branched_after) == (None, None)
    [said] = [each for each in done["skipped"] if each["external_id"] == ids[1]]
    assert "continues a conversation that is not here" in said["reason"]
    for number, origin in branches[1:]:
        kept = here[ids[number]].branched_from
        assert kept is None or kept == here[ids[origin]].pk
        assert client.get(f"/c/{here[ids[number]].pk}/").status_code == 200


def test_a_ring_cannot_be_closed_by_importing_an_origin_anew():
    bob = a_person("bob@example.com")
    a_turn(bob, "Hello")
    client = Client()
    client.force_login(bob)
    data, ids = forged(bob, (1, None), (2, 1))
    assert Importer(client).bring(data)["state"] == "done"
    with acting_as(bob):
        deleting.delete_conversation(
            caller=caller_for(bob), conversation_id=Conversation.objects.get(pk=id_here(bob, UUID(ids[1]))).pk
        )
    again = json.loads(data)
    again["conversations"] = [{**again["conversations"][0], "branched_from": ids[2], "branched_after": 1}]
    name = again["conversations"][0]["id"]
    assert Importer(client).bring(json.dumps(again).encode(), only=[name])["state"] == "done"
    back = Conversation.objects.filter(pk=id_here(bob, UUID(ids[1]))).first()
    assert back is None or back.branched_from is None


# --- Attached files ---

LEASE = files.pdf(["The lease ends in May.", "The deposit is paid back within six weeks."])


@kept_rows
def one_of_each_with_files():
    """Two files of one name, a zip and an export of Recollect, which are no part of the export that holds them."""
    alice = make_one_of_each()
    own = b"".join(exporting.account_as_json(user=alice, now=NOW))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as written:
        written.writestr("recollect.json", own)
    a_turn_with = {"lease.pdf": LEASE, "room.png": a_picture(), "own.json": own, "all.zip": packed.getvalue()}
    attached = [a_file(alice, data, name) for name, data in a_turn_with.items()]
    attached.append(a_file(alice, b"Milk, eggs", "lease.pdf", kind="pasted"))
    say(alice, *attached, message="Keep these")
    read_all()
    return alice


@pytest.fixture
def with_files(one_of_each_with_files):
    return one_of_each_with_files


def bytes_by_name(user):
    rows = Attachment.objects.for_user(user).order_by("position")
    return [(each.name, each.kind, each.media_type, bytes_of(each)) for each in rows]


def places(user):
    texts = AttachmentText.objects.for_user(user).order_by("attachment__position", "number")
    return list(texts.values_list("place", "text"))


def found(user):
    results = search_history(HistoryRequest(query="deposit paid back"), user=user, now=timezone.now()).results
    return [(each.reference.file, each.reference.place) for each in results if each.reference.file]


@pytest.mark.medium
def test_files_come_back_to_their_turns_with_their_bytes_places_and_ids(with_files):
    before = exported(with_files), bytes_by_name(with_files), places(with_files), found(with_files)
    assert len(before[1]) == 5 and before[3] == [("lease.pdf", "page 2")]
    data = b"".join(exporting.json_zip(user=with_files, now=timezone.now()))
    delete_all(with_files)
    assert not AttachmentPiece.objects.exists()
    done = importer_of(with_files).bring(data)
    assert (done["state"], done["skipped"]) == ("done", [])
    read_all()
    assert (exported(with_files), bytes_by_name(with_files), places(with_files), found(with_files)) == before


@pytest.mark.medium
def test_a_page_that_was_read_comes_back_with_its_address_and_is_no_file_of_its_message():
    alice = a_person()
    turn = a_turn(alice, "What do bakers say?", "240 degrees.")
    Turn.objects.filter(pk=turn.pk).update(tool_calls=[{"id": "c", "name": "open_page", "input": {"url": "a"}}])
    page = a_file(alice, b"# Rye\n\nBake it at 240 degrees.", "Rye.md", kind="page")
    where = {"conversation_id": turn.conversation_id, "turn_number": 1, "address": "https://bakers.example/rye?a=b"}
    Attachment.objects.filter(pk=page.pk).update(**where)
    read_all()
    before = exported(alice), bytes_by_name(alice), places(alice)
    assert len(before[1]) == 1
    data = b"".join(exporting.json_zip(user=alice, now=timezone.now()))
    delete_all(alice)
    assert importer_of(alice).bring(data)["state"] == "done"
    read_all()
    assert (exported(alice), bytes_by_name(alice), places(alice)) == before
    assert Attachment.objects.get().address == where["address"]
    assert Turn.objects.get().attachment_count == 0


@pytest.mark.medium
def test_an_address_that_is_none_of_the_web_does_not_come_in():
    alice, bob = a_person(), a_person("bob@example.com")
    turn = a_turn(alice, "What do bakers say?", "240 degrees.")
    Turn.objects.filter(pk=turn.pk).update(tool_calls=[{"id": "c", "name": "open_page", "input": {"url": "a"}}])
    page = a_file(alice, b"# Rye", "Rye.md", kind="page")
    where = {"conversation_id": turn.conversation_id, "turn_number": 1, "address": "javascript:alert(1)"}
    Attachment.objects.filter(pk=page.pk).update(**where)
    importer_of(bob).bring(b"".join(exporting.json_zip(user=alice, now=timezone.now())))
    assert [each.address for each in Attachment.objects.filter(user=bob)] == [""]


@pytest.mark.medium
def test_files_come_to_another_account_too_once_and_with_other_ids(with_files):
    data = b"".join(exporting.json_zip(user=with_files, now=timezone.now()))
    bob = a_person("bob@example.com")
    importer = importer_of(bob)
    for _ in range(2):
        assert importer.bring(data)["state"] == "done"
        read_all()
        assert bytes_by_name(bob) == bytes_by_name(with_files)
        assert places(bob) == places(with_files)
        assert found(bob) == [("lease.pdf", "page 2")]
    ids = set(Attachment.objects.values_list("pk", flat=True))
    assert len(ids) == 10


@pytest.mark.medium
def test_a_document_without_its_zip_says_how_many_files_it_does_not_have(with_files):
    data = b"".join(exporting.account_as_json(user=with_files, now=NOW))
    delete_all(with_files)
    done = importer_of(with_files).bring(data)
    assert any("5 attached files are missing" in each for each in done["notices"])
    assert Turn.objects.get(user_message="Keep these").attachment_count == 0


@pytest.mark.medium
def test_undoing_takes_the_files_of_an_export_with_it(with_files):
    data = b"".join(exporting.json_zip(user=with_files, now=timezone.now()))
    delete_all(with_files)
    importer = importer_of(with_files)
    done = importer.bring(data)
    importer.undo(done["id"])
    assert not (Attachment.objects.exists() or AttachmentPiece.objects.exists() or AttachmentText.objects.exists())


@pytest.mark.medium
@pytest.mark.parametrize("is_renamed", [True, False])
def test_undoing_an_import_takes_its_projects_and_their_lines_back(alice, is_renamed):
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    bob = a_person("bob@example.com")
    client = Client()
    client.force_login(bob)
    documents.append(user=bob, day=None, project="me/dough", text="Bob's own line", now=NOW)
    done = Importer(client).bring(data)
    assert (done["stored"]["projects"], done["found"]["projects"]) == (1, 1)
    name = "Bread" if is_renamed else "me/dough"
    projects.rename_project(user=bob, name="me/dough", new_name=name)
    assert "Memory of me/dough" in documents.read(user=bob, day=None, project=name).content
    Importer(client).undo(done["id"], force=True)
    # What was changed here stays.
    assert [each.name for each in Project.objects.filter(user=bob)] == (["Bread"] if is_renamed else [])
    assert documents.read(user=bob, day=None, project=name).content == "Bob's own line\n"
    assert not documents.exists(user=bob, day=NOW.date(), project=name)


def test_an_import_gives_no_project_the_labels_that_are_in_use_here(alice):
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    bob = a_person("bob@example.com")
    conversation = a_turn(bob, "In the bakery").conversation
    Conversation.objects.filter(pk=conversation.pk).update(project="bakery")
    done = importer_of(bob).bring(data)
    assert Project.objects.get(user=bob).labels == ["me/bread"]
    assert [each["reason"] for each in done["skipped"]] == [
        "These labels are in use here, and so they do not belong to it: bakery"
    ]
    conversation.refresh_from_db()
    assert conversation.project == "bakery"


def test_the_labels_of_projects_are_read_once_for_many_chats(alice):
    for number in range(20):
        chat = a_turn(alice, f"In the bakery {number}").conversation
        Conversation.objects.filter(pk=chat.pk).update(project=f"shelf {number}")
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    with CaptureQueriesContext(connection) as asked:
        importer_of(a_person("bob@example.com")).bring(data)
    of_labels = [each["sql"] for each in asked if '"labels"' in each["sql"]]
    assert len([sql for sql in of_labels if "INSERT" not in sql]) < 20


def test_an_export_from_before_there_were_projects_still_comes_in(alice, importer):
    document = json.loads(b"".join(exporting.account_as_json(user=alice, now=NOW)))
    del document["projects"]
    document["documents"] = [each for each in document["documents"] if "project" not in each]
    delete_all(alice)
    done = importer.bring(json.dumps(document).encode())
    assert done["state"] == "done" and "projects" not in done["stored"]
    assert documents.read(user=alice, day=None).content == "Tea, not coffee\nAnd no sugar\n"


def test_only_what_waits_comes_in_and_undoing_leaves_what_was_decided(alice, importer):
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    with acting_as(alice):
        Proposal.objects.for_user(alice).delete()
    done = importer.bring(data)
    with acting_as(alice):
        first, second = Proposal.objects.for_user(alice).order_by("id")
        proposals.decide(user=alice, proposal_id=first.pk, state="accepted", now=NOW)
        left_out = json.loads(b"".join(exporting.account_as_json(user=alice, now=NOW)))["proposals"]
    assert [each["id"] for each in left_out] == [str(second.pk)]
    assert importer.undo(done["id"]).status_code < 300
    with acting_as(alice):
        assert [each.state for each in Proposal.objects.for_user(alice)] == ["accepted"]


def test_a_proposal_of_an_export_is_refused_where_too_many_wait(alice, importer, monkeypatch):
    data = b"".join(exporting.account_as_json(user=alice, now=NOW))
    with acting_as(alice):
        Proposal.objects.for_user(alice).delete()
    monkeypatch.setattr(proposals, "MOST_WAITING", 1)
    done = importer.bring(data)
    assert "1 proposals wait" in json.dumps(done)
    with acting_as(alice):
        assert Proposal.objects.for_user(alice).count() == 1
