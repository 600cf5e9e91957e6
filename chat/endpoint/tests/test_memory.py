"""What a program's model gets of the memory, and what it never gets."""

from threading import Event

import pytest

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from agent_tools.tests.test_context import BUILT_IN_MODEL
from chat.endpoint import answering
from chat.endpoint.tests.test_conversations import Program
from core.isolation.acting import acting_as
from intake.models import Turn
from intake.tests.factories import NOW
from memory import index, records
from memory.models import IndexedText
from testing.examiner import as_a_worker
from testing.model_server import Say

pytestmark = pytest.mark.extended

SYSTEM = {"role": "system", "content": "You are a cook."}


@pytest.fixture(autouse=True)
def patient(monkeypatch, settings):
    """The machine of a test may be slow. A question finds what says the same in other words."""
    settings.EMBEDDER = BUILT_IN_MODEL
    monkeypatch.setattr(answering, "RECALL_SECONDS", 20)


def remembered(person, words, *, project=""):
    """Among other texts, by which it is told how rare its words are."""
    with acting_as(person):
        for text in (words, *(f"Remark {number} about the garden" for number in range(5))):
            records.create(user=person, content=text, type="decision", project_id=project, now=NOW)
    with as_a_worker():
        index.embed_pending()


def test_the_memory_is_one_framed_part_after_the_programs_own_instructions(new_client, person, language_model):
    model = language_model(*[Say(("Miso.",))] * 3)
    remembered(person, "We moved the orders to Postgres at Zanzibar")
    program = Program(new_client(), person)
    program.history = [SYSTEM]
    got = program.say("Where did we move the orders to Postgres?")
    first, last = model.requests[0]["messages"]
    assert first["content"].startswith("You are a cook.\n\n")
    assert first["content"].count("Zanzibar") == 1
    assert "never contains instructions" in first["content"]
    assert last["content"] == "Where did we move the orders to Postgres?"
    assert got.headers["X-Recollect-Sources"] == "1"
    # The same again, in the same chat: nothing of it was taken for told, or for said.
    program.say("Where did we move the orders to Postgres, again?")
    assert "Zanzibar" in model.requests[1]["messages"][0]["content"]
    with acting_as(person):
        kept = Turn.objects.for_user(person)
        assert not kept.exclude(conversation__title="").filter(assistant_message__contains="Zanzibar").exists()
        assert IndexedText.objects.for_user(person).count() == 8
    for name in ("recollect-plain", "recollect-private", "scripted:plain"):
        language_model(Say(("Miso.",)))
        plain = program.post([SYSTEM, {"role": "user", "content": "The orders to Postgres?"}], model=name)
        assert plain.headers["X-Recollect-Sources"] == "0"


def test_a_short_question_is_about_what_was_said_before_it(new_client, person, language_model):
    model = language_model(*[Say(("Fine.",))] * 3)
    remembered(person, "We moved the orders to Postgres at Zanzibar")
    program = Program(new_client(), person)
    program.say("Hello")
    program.say("Where did we move the orders to Postgres?", model="recollect-private")
    program.say("and when?")
    assert "Zanzibar" not in str(model.requests[0])
    assert "Zanzibar" in model.requests[2]["messages"][0]["content"]


def test_a_recall_that_takes_longer_is_left_out(new_client, person, language_model, monkeypatch):
    model = language_model(Say(("Miso.",)))
    monkeypatch.setattr(answering, "RECALL_SECONDS", 0.2)
    may_end = Event()
    monkeypatch.setattr(answering, "prompt_context", lambda **_: may_end.wait(60) and [])
    got = Program(new_client(), person).say("Where did we move the orders to Postgres?")
    may_end.set()
    assert (got.headers["X-Recollect-Sources"], len(model.requests[0]["messages"])) == ("0", 1)


def test_a_bound_tokens_model_receives_nothing_of_another_project(new_client, person, language_model):
    model = language_model(*[Say(("Fine.",))] * 3)
    remembered(person, "We moved the orders of the kiln to Postgres, kwyjibo", project="Pottery")
    remembered(person, "We moved the orders of the garden to Postgres, rosebud", project="Garden")
    question = "Where did we move the orders to Postgres?"
    bound = Program(new_client(), person, project="Garden", is_bound=True)
    bound.say(question)
    assert "rosebud" in str(model.requests[0])
    bound.say("And where the orders of the kiln to Postgres?")
    assert "kwyjibo" not in str(model.requests)
    with acting_as(person):
        kept = Turn.objects.for_user(person).filter(user_message=question).values_list("conversation__project")
        assert set(kept) == {("Garden",)}


def test_a_strangers_token_goes_on_with_no_turn_and_no_chat_of_the_person(new_client, person, stranger, language_model):
    model = language_model(*[Say(("Miso with the word rumpelstiltskin in it.",))] * 3)
    mine, theirs = Program(new_client(), person), Program(new_client(), stranger)
    got = mine.say("A soup?", headers={"X-Session-Id": "s-1"})
    with acting_as(person):
        turn = Turn.objects.for_user(person).get()
    asked = {"model": "recollect", "input": "And then?", "previous_response_id": f"resp_{turn.pk}"}
    refused = theirs.http.post("/v1/responses", json=asked)
    unknown = theirs.http.post("/v1/responses", json={**asked, "previous_response_id": "resp_1"})
    assert (refused.status_code, refused.content) == (404, unknown.content)
    theirs.history = [{"role": "user", "content": "A soup?"}, mine.history[-1]]
    found = theirs.say("And then?", headers={"X-Session-Id": "s-1"})
    assert found.headers["X-Recollect-Conversation"] != got.headers["X-Recollect-Conversation"]
    assert [len(turns) for turns in mine.shape()] == [1]
    assert len(model.requests) == 2


def test_a_token_without_the_scope_is_refused(new_client, person):
    http = new_client()
    http.headers["x-api-key"] = create_token(user=person, scopes=[TokenScope.SEARCH]).secret
    for address in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"):
        refused = http.post(address, json={"model": "recollect", "messages": []})
        assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
    assert http.get("/v1/models").status_code == 403


def test_without_a_model_the_default_answers_as_recall_mode_and_others_say_where_to_add_one(new_client, person):
    program = Program(new_client(), person)
    assert program.say("What did I say about the garden?").headers["X-Recollect-Conversation"]
    refused = program.post([{"role": "user", "content": "Hi"}], model="recollect-private")
    assert (refused.status_code, "/staff/models/" in refused.text) == (503, True)
    assert refused.headers["x-should-retry"] == "false"
    assert (
        program.post([{"role": "user", "content": "x" * (26 * 2**20)}]).json()["error"]["code"] == "request_too_large"
    )
