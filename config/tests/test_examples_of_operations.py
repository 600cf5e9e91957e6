"""Each operation of the REST API has an example in the OpenAPI document (`config/examples.json`), which is run here."""

import json
import re
from dataclasses import replace
from datetime import date

import pytest
from django.utils import timezone
from jsonschema import Draft202012Validator

from config import urls
from config.tests.endpoints import house
from config.tests.endpoints.matrix import InSession, path_of, undone
from config.tests.endpoints.registered import ENDPOINTS
from intake.models import Attachment, AttachmentText, Conversation
from intake.tests.factories import NOW, a_turn
from testing.model_server import Say

DOCUMENT = json.loads(urls.document(urls.JSON)[0])
KEPT = json.loads(urls.EXAMPLES.read_text())
# As the manual writes them.
IDS = {"conversation": "01890a5d-ac96-774b-bcce-b302099a8057", "file": "01890a5d-ac96-7c30-9d55-2e8b4f1a6d20"}


def operations(*, is_streamed):
    for endpoint in ENDPOINTS.values():
        path = DOCUMENT["paths"].get("/" + re.sub(r"<str:(\w+)>", r"{\1}", endpoint.route), {})
        for method, probes in endpoint.probes.items():
            if (described := path.get(method.lower())) and probes[0].is_streamed == is_streamed:
                yield endpoint, method, probes[0], described


def with_ids(value, things):
    """The ids of the house in place of the manual's."""
    text = json.dumps(value)
    for name, id_ in IDS.items():
        text = text.replace(id_, getattr(things, name))
    return json.loads(text)


def check(described, status, answered):
    name = described["operationId"]
    kept = KEPT.get(name, {})
    assert (name, kept.get("status"), type(kept.get("response"))) == (name, status, type(answered)), answered
    media = described["responses"][str(status)].get("content", {}).get("application/json")
    if isinstance(answered, dict) and media:
        for shown in (answered, kept["response"]):
            Draft202012Validator({**media["schema"], "components": DOCUMENT["components"]}).validate(shown)
        assert kept["response"].keys() <= answered.keys(), name


def read(content_type, content):
    """What a document can show: JSON or a text."""
    return json.loads(content) if "json" in content_type else content.decode() if "text" in content_type else None


def run(alice, ask, *, is_streamed):
    for endpoint, method, probe, described in operations(is_streamed=is_streamed):
        kept = KEPT.get(described["operationId"], {}).get("request", probe.body)
        asked = kept if isinstance(kept, bytes) else with_ids(kept, alice.things)
        status, content_type, content = ask(method, path_of(endpoint, alice), replace(probe, body=asked))
        check(described, status, read(content_type, content))


@pytest.mark.medium
@pytest.mark.django_db
def test_the_example_of_each_operation_is_what_it_takes_and_answers(monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    alice = house.move_in("alice", "fastnet", day=date(2026, 2, 3))
    person = InSession(alice)

    def ask(method, path, probe):
        with undone():
            person.ask(method, path, probe, alice.things.fill)
        return person.got.status_code, person.got.get("Content-Type", ""), person.got.content

    conversation = Conversation.objects.for_user(alice.user).get(pk=alice.things.conversation)
    for _ in range(2):
        a_turn(alice.user, "And what is its light?", conversation=conversation)
    Attachment.objects.for_user(alice.user).filter(pk=alice.things.file).update(places=[["page 2", 0]])
    AttachmentText.objects.for_user(alice.user).update(place="page 2")
    run(alice, ask, is_streamed=False)
    assert {each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()} == {*KEPT}


@pytest.mark.extended
@pytest.mark.django_db(transaction=True)
def test_so_is_that_of_each_operation_that_is_streamed(log_in, language_model):
    language_model(Say(("Fastnet.",)))
    alice = house.move_in("alice", "fastnet", day=date(2026, 2, 3))
    client = log_in(alice.user)

    def ask(method, path, probe):
        sent = {} if probe.body is None else {"json": probe.body}
        got = client.request(method, f"/{path}", headers=client._csrf(), **sent)
        return got.status_code, got.headers["content-type"], got.content

    run(alice, ask, is_streamed=True)
