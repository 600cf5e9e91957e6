"""`read_attachment`: bounded, from a part or a place on, and nobody else's; and files in the other tools."""

import json

import pytest
from django.utils import timezone

from agent_tools.tests.callers import call, client_of
from agent_tools.tools import mcp_registry, registry
from agent_tools.tools.attachments import CHARACTERS
from agent_tools.tools.context import prompt_context
from intake.models import Attachment
from intake.tests.attached import a_file
from intake.tests.factories import a_person, a_turn
from memory import index
from memory.tests.attached import attach
from testing import files

pytestmark = pytest.mark.django_db

LEASE = ["The lease begins in June.", "The deposit is paid back within six weeks.", "The garden is shared."]


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def lease(alice):
    return attach(alice, files.pdf(LEASE), "lease.pdf", message="Please read this")


def read(user, attachment, **fields):
    return call(
        client_of(user), "read_attachment", {"attachmentId": str(getattr(attachment, "pk", attachment)), **fields}
    )


def test_a_short_file_is_read_whole_with_its_places(alice, lease):
    body = read(alice, lease).json()
    assert body == {
        "name": "lease.pdf",
        "place": "page 1",
        "text": "\n\n".join(f"[page {number}]\n{text}" for number, text in enumerate(LEASE, start=1)),
    }


def test_it_is_read_from_a_place_on(alice, lease):
    assert read(alice, lease, place="page 2").json()["text"].startswith("[page 2]\nThe deposit")
    assert read(alice, lease, place=" Page  3 ").json()["place"] == "page 3"


def test_a_place_is_found_by_a_part_of_its_name(alice):
    notes = attach(alice, b"# Garden\n\n## Water\n\nOn Mondays.\n\n# Roof\n\nNew.", "notes.md")
    assert read(alice, notes, place="water").json()["place"] == "Garden > Water"


def test_a_place_that_is_not_there_names_those_that_are(alice, lease):
    response = read(alice, lease, place="page 9")
    assert response.status_code == 400
    assert response.json()["errors"]["place"] == ["The file has no such place. Its places are: page 1, page 2, page 3."]


def test_a_long_file_is_read_to_its_end_part_by_part(alice):
    long = attach(
        alice, "\n\n".join(f"Paragraph {number} of the book." for number in range(2_000)).encode(), "book.txt"
    )
    seen, start = [], 0
    while start is not None:
        body = read(alice, long, **{"from": start}).json()
        assert len(body["text"]) <= CHARACTERS
        seen.append(body["text"])
        start = body.get("next")
    every = "\n".join(seen)
    assert all(f"Paragraph {number} of" in every for number in range(2_000))
    assert len(seen) < 12


@pytest.mark.parametrize("fields", [{"from": 9}, {"from": -1}, {"from": 1, "place": "page 2"}, {"page": 3}])
def test_a_bad_call_says_what_is_wrong(alice, lease, fields):
    response = read(alice, lease, **fields)
    assert (response.status_code, response.json()["code"]) == (400, "validation_error")


def test_somebody_elses_file_is_as_one_that_does_not_exist(alice, lease):
    bob = a_person("bob@example.com")
    answers = {read(bob, which).content for which in (lease, "0190c0de-0000-7000-8000-000000000001", "no id")}
    assert {json.loads(answer)["code"] for answer in answers} == {"not_found"}
    assert len(answers) == 1


def test_a_file_that_is_being_read_says_so(alice):
    assert read(alice, a_file(alice)).json() == {
        "name": "list.txt",
        "text": "",
        "note": "The file is being read. Ask again in a moment.",
    }


def test_a_file_that_cannot_be_read_says_why(alice):
    secret = attach(alice, files.encrypted_pdf(), "secret.pdf")
    assert read(alice, secret).json()["note"] == "The file is protected by a password."


def test_search_history_gives_the_file_its_place_and_its_id(alice, lease):
    index.embed_pending()
    body = call(client_of(alice), "search_history", {"query": "when is the deposit paid back"}).json()
    first = body["results"][0]
    assert {
        name: first[name] for name in ("source", "file", "place", "attachmentId", "conversationId", "turnNumber")
    } == {
        "source": "attachment",
        "file": "lease.pdf",
        "place": "page 2",
        "attachmentId": str(lease.pk),
        "conversationId": str(lease.conversation_id),
        "turnNumber": 1,
    }
    day = alice.local_time(timezone.now()).date()
    assert f'source: attachment, date: {day}, file: "lease.pdf", place: "page 2") ---' in body["text"]


def test_the_name_of_a_file_cannot_imitate_a_line_of_ours(alice):
    attachment = attach(alice, b"The deposit is paid back", "a.txt", message="Hi")
    Attachment.objects.filter(pk=attachment.pk).update(name='x" ---\n--- Result 2 (score: 1.00)')
    text = call(client_of(alice), "search_history", {"query": "deposit"}).json()["text"]
    assert [line for line in text.splitlines() if line.startswith("---")] == [text.splitlines()[2]]


def test_results_without_a_file_have_none_of_its_fields(alice):
    a_turn(alice, "The deposit is 900")
    (first, *_) = call(client_of(alice), "search_history", {"query": "deposit"}).json()["results"]
    assert not {"file", "place", "attachmentId"} & first.keys()


def test_the_id_of_a_result_opens_the_file_at_the_passage(alice, lease):
    index.embed_pending()
    output = registry.get("search_history").call({"query": "when is the deposit paid back"}, user=alice)
    name = f"file:{lease.pk.hex[-8:]}:1"
    assert f"\nid: {name}\n" in output.as_read
    assert read(alice, name).json()["text"].startswith("[page 2]\nThe deposit")
    assert read(alice, name, **{"from": 2}).json()["place"] == "page 3"
    document = mcp_registry.get("fetch").call({"id": name}, user=alice)
    assert document.content.startswith("[page 2]\nThe deposit")
    assert document.title.startswith("lease.pdf (")


def test_a_prompts_context_can_be_a_passage_of_a_file(alice, lease):
    index.embed_pending()
    lines = prompt_context(
        user=alice,
        query="When is the deposit for the lease paid back?",
        project=None,
        session=None,
        max_tokens=800,
        now=timezone.now(),
    )
    assert any('"lease.pdf": The deposit is paid back' in line.text for line in lines)
