"""Documents and records in the export of an account: one's own, whole."""

import io
import json
import zipfile

import pytest
from django.urls import reverse
from django.utils import timezone

from chat import exporting
from core.isolation.acting import acting_as
from intake.chats import services
from intake.models import Conversation, Turn
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_person, caller_for
from memory import documents, projects, proposals, records

pytestmark = pytest.mark.django_db


def test_an_export_has_the_persons_documents_and_records_and_nobody_elses():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    documents.append(user=alice, day=None, text="Tea, not coffee", now=NOW)
    documents.append(user=alice, day=NOW.date(), text="Planted beans", now=NOW)
    records.create(user=alice, content="We use PostgreSQL", now=NOW, project_id="p", tags=["db"])
    records.create(user=bob, content="Bob's", now=NOW)
    document = json.loads(b"".join(exporting.account_as_json(user=alice, now=timezone.now())))
    assert [(item["kind"], item["date"], item["content"].strip()) for item in document["documents"]] == [
        ("daily_log", "2026-03-01", "Planted beans"),
        ("memory", None, "Tea, not coffee"),
    ]
    [record] = document["records"]
    assert (record["content"], record["project_id"], record["tags"]) == ("We use PostgreSQL", "p", ["db"])


# -- Of a project --------------------------------------------------------------------------------------------------------

PATH = "/api/v1/account/export/"


@pytest.fixture
def alice():
    """Two projects, one of them closed, and things of none; every text names the project that it is of."""
    alice = a_person()
    with acting_as(alice):
        for label in ("house", "work", ""):
            of_it = f"Belongs to {label or 'nothing'}"
            file = a_file(alice, of_it.encode(), f"{label or 'nothing'}.txt")
            turn = services.create_turn(
                services.TurnRequest(message=of_it, attachments=[file.pk]), caller=caller_for(alice), now=NOW
            )
            services.finish_turn(turn_id=turn.pk, answer=services.Answer(text="Yes.", status=Turn.Status.COMPLETE))
            Conversation.objects.filter(pk=turn.conversation_id).update(project=label)
            documents.append(user=alice, day=None, project=label, text=of_it, now=NOW)
            documents.append(user=alice, day=NOW.date(), project=label, text=of_it, now=NOW)
            documents.create_note(user=alice, title=of_it, content=of_it, at=NOW, project=label)
            records.create(user=alice, content=of_it, project_id=label, now=NOW)
            proposals.propose(user=alice, drafts=[{"content": f"{of_it} soon", "project_id": label}], now=NOW)
        projects.save_project(user=alice, name="house", instructions="Belongs to house", is_closed=True)
        projects.save_project(user=alice, name="work", instructions="Belongs to work")
    return alice


def texts_of(pieces):
    """All texts of an export, each file of a zip too."""
    data = b"".join(pieces)
    if not data.startswith(b"PK"):
        return data.decode()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return "\n".join(f"{name} {archive.read(name).decode()}" for name in archive.namelist())


@pytest.mark.parametrize("form", [exporting.account_as_json, exporting.json_zip, exporting.markdown_zip])
@pytest.mark.parametrize("label", ["house", "work"])
def test_an_export_of_a_project_has_what_belongs_to_it_and_nothing_else(alice, form, label):
    (other,) = {"house", "work"} - {label}
    only = texts_of(form(user=alice, now=NOW, project=label))
    # A chat, a log, a note, its MEMORY.md, a record, a proposal and the instructions.
    assert only.count(f"Belongs to {label}") >= 7 and f"{label}.txt" in only
    assert f"Belongs to {other}" not in only and "Belongs to nothing" not in only
    assert alice.email not in only
    but_it = texts_of(form(user=alice, now=NOW, project=f"-{label}"))
    assert f"Belongs to {label}" not in but_it and f"{label}.txt" not in but_it
    for kept in (f"Belongs to {other}", "Belongs to nothing", f"{other}.txt", "nothing.txt"):
        assert kept in but_it, kept
    everything = texts_of(form(user=alice, now=NOW))
    assert all(f"Belongs to {each}" in everything for each in ("house", "work", "nothing"))


def test_an_export_of_a_project_has_its_parts_by_name(alice):
    document = json.loads(texts_of(exporting.account_as_json(user=alice, now=NOW, project="house")))
    assert {part: len(rows) for part, rows in document.items() if isinstance(rows, list)} == {
        "projects": 1,
        "conversations": 1,
        "documents": 3,
        "records": 1,
        "proposals": 1,
    }


@pytest.mark.django_db(transaction=True)
def test_the_endpoint_and_the_page_take_a_project(person, log_in):
    with acting_as(person):
        for label in ("house", "work"):
            records.create(user=person, content=f"Belongs to {label}", project_id=label, now=NOW)
    bob = a_person("bob@example.com")
    with acting_as(bob):
        records.create(user=bob, content="Bob's", project_id="bobs", now=NOW)
    client = log_in(person)
    answer = client.get(PATH, params={"as": "json", "project": "house"})
    assert "house.json" in answer.headers["content-disposition"]
    assert [each["content"] for each in answer.json()["records"]] == ["Belongs to house"]
    answer = client.get("/settings/account/export/", params={"as": "json", "project": "-house"})
    assert [each["content"] for each in answer.json()["records"]] == ["Belongs to work"]
    assert "project=house" in client.get(reverse("memory:project", args=["house"])).text
    # A label of nothing, and another user's project, are alike.
    gone, theirs = (client.get(PATH, params={"project": name}) for name in ("gone", "bobs"))
    assert (gone.status_code, theirs.status_code) == (404, 404)
    assert client.get(f"{PATH}?project=house&project=work").status_code == 400
