"""Proposals wait for a decision: kept as a record, refused for good, undone; on the page, over REST, by agents."""

import json
from datetime import timedelta
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from core.errors import Conflict, InvalidInput, NotFound, QuotaExceeded
from core.isolation.acting import acting_as
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn
from memory import exporting, index, projects, proposals, records
from memory.backends.embedders import FakeEmbedder, using
from memory.models import IndexedText, MemoryRecord, Proposal
from memory.models.documents import MAX_PROPOSAL_LENGTH, PROPOSAL_STATES
from memory.search.records import MemorySearchQuery, search_memory

pytestmark = pytest.mark.django_db

OAK = {"content": "We take the oak worktop.", "type": "decision"}


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def propose(user, *drafts, now=NOW):
    return proposals.propose(user=user, drafts=drafts or [OAK], now=now)


def decide(user, proposal, state, **changed):
    with acting_as(user):
        return proposals.decide(user=user, proposal_id=proposal.id, state=state, now=NOW, **changed)


def undo(user, proposal):
    with acting_as(user):
        return proposals.undo(user=user, proposal_id=proposal.id)


def waiting(user):
    with acting_as(user):
        return [row.content for row in proposals.list_proposals(user=user).rows]


def test_accepting_saves_a_record_with_its_source_and_undoing_deletes_it(alice):
    turn = a_turn(alice, "We take the oak worktop.")
    (found,) = propose(alice, OAK | {"source_conversation": turn.conversation_id, "source_turn": 1})
    decided = decide(alice, found, "accepted", content="We take the oak worktop, 40 mm.")
    record = MemoryRecord.objects.get()
    assert (decided.state, decided.record, record.content) == ("accepted", record.pk, "We take the oak worktop, 40 mm.")
    assert (record.type, record.source_conversation, record.source_turn) == ("decision", turn.conversation_id, 1)
    undo(alice, found)
    assert not MemoryRecord.objects.exists()
    assert waiting(alice) == ["We take the oak worktop."]


def test_accepting_what_replaces_hides_the_earlier_record_and_undo_brings_it_back(alice):
    with acting_as(alice):
        older = records.create(user=alice, content="The worktop is oak.", now=NOW)
    (found,) = propose(alice, {"content": "The worktop is walnut.", "replaces": older.id})
    decide(alice, found, "accepted")
    with acting_as(alice):
        assert records.read(user=alice, record_id=older.id).replaced_by == MemoryRecord.objects.latest("pk").pk
    undo(alice, found)
    with acting_as(alice):
        assert records.read(user=alice, record_id=older.id).replaced_by is None


def test_a_record_to_replace_that_is_gone_or_replaced_meanwhile_is_not_needed(alice):
    with acting_as(alice):
        older = records.create(user=alice, content="The worktop is oak.", now=NOW)
    (found,) = propose(alice, {"content": "The worktop is walnut.", "replaces": older.id})
    with acting_as(alice):
        records.create(user=alice, content="The worktop is slate.", facts={"replaces": older.id}, now=NOW)
    decide(alice, found, "accepted")
    assert MemoryRecord.objects.get(content="The worktop is walnut.").replaces is None


def test_what_is_kept_in_the_same_words_already_is_kept_once_and_not_undone(alice):
    (found,) = propose(alice)
    with acting_as(alice):
        records.create(user=alice, content=OAK["content"], now=NOW)
    assert decide(alice, found, "accepted").record is None
    undo(alice, found)
    assert MemoryRecord.objects.count() == 1


@pytest.mark.parametrize("state", ["rejected", "never"])
def test_what_was_refused_is_not_proposed_again_in_nearly_the_same_words(alice, state):
    (found,) = propose(alice)
    decide(alice, found, state)
    assert propose(alice) == [proposals.REFUSED]
    assert propose(alice, {"content": "we take the OAK worktop"}) == [proposals.REFUSED]
    assert not isinstance(propose(alice, {"content": "My sister lives in Rome."})[0], str)
    undo(alice, found)
    assert propose(alice) == [proposals.WAITS]


class Turned(FakeEmbedder):
    """Places each text at the angle that stands at its end, so that distances are what a test says."""

    def embed_documents(self, texts):
        import numpy as np

        angles = [float(text.rstrip(".").rsplit(" ", 1)[1]) for text in texts]
        return np.array([[np.cos(each), np.sin(each), *[0.0] * 382] for each in angles], np.float32)


def test_never_reaches_further_than_no_by_the_models_own_calibration(alice):
    # Distances from an angle of 0: 0.18 at 0.6, 0.46 at 1.0, 0.93 at 1.5.
    with using(Turned()):
        (found,) = propose(alice, {"content": "Cats are grey 0"})
        decide(alice, found, "rejected")
        assert propose(alice, {"content": "Dogs bark loudly 0.6"}) == [proposals.REFUSED]
        (other,) = propose(alice, {"content": "Birds sing well 1.0"})
        with acting_as(alice):
            proposals.withdraw(user=alice, proposal_id=other.id)
        undo(alice, found)
        decide(alice, found, "never")
        assert propose(alice, {"content": "Birds sing well 1.0"}) == [proposals.REFUSED]
        assert not isinstance(propose(alice, {"content": "Fish swim deep 1.5"})[0], str)


def test_after_another_model_the_refused_are_compared_by_its_vectors(alice):
    (found,) = propose(alice, {"content": "Cats are grey 0"})
    decide(alice, found, "rejected")
    with using(Turned(name="turned")):
        assert propose(alice, {"content": "Dogs bark loudly 0.6"}) == [proposals.REFUSED]
    assert Proposal.objects.get().vector_model == "turned"


def test_a_decision_is_made_once_and_another_one_takes_an_undo(alice):
    (found,) = propose(alice)
    assert decide(alice, found, "rejected") == decide(alice, found, "rejected")
    with pytest.raises(Conflict):
        decide(alice, found, "accepted")
    assert not MemoryRecord.objects.exists()


def test_bad_proposals_are_refused_with_the_field_that_is_wrong(alice):
    for draft, field in (
        ({"content": " "}, "content"),
        ({"content": "x" * (MAX_PROPOSAL_LENGTH + 1)}, "content"),
        ({"content": "x", "type": "x" * 101}, "type"),
        ({"content": "x", "project_id": "x" * 201}, "project_id"),
    ):
        with pytest.raises(InvalidInput) as refused:
            propose(alice, draft)
        assert list(refused.value.errors) == [field]
    with pytest.raises(NotFound):
        propose(alice, {"content": "x", "replaces": uuid4()})


@pytest.mark.parametrize("state", ["accepted", "rejected", "never"])
def test_a_wrong_field_is_refused_with_every_decision(alice, state):
    (found,) = propose(alice)
    with pytest.raises(InvalidInput) as refusal:
        decide(alice, found, state, project_id="x" * 201)
    assert list(refusal.value.errors) == ["project_id"]
    assert waiting(alice) == [OAK["content"]]


def test_no_more_than_two_hundred_wait(alice, monkeypatch):
    monkeypatch.setattr(proposals, "MOST_WAITING", 1)
    propose(alice)
    with pytest.raises(QuotaExceeded):
        propose(alice, {"content": "Another one."})


def test_what_waits_is_not_searched_and_exported_among_the_proposals_alone(alice):
    (waiting_one,) = propose(alice)
    index.embed_pending()
    assert not IndexedText.objects.exists()
    assert search_memory(MemorySearchQuery(text="the oak worktop"), user=alice) == []
    with acting_as(alice):
        parts = {name: [*rows] for name, rows in exporting.exported(user=alice).items()}
    assert [each["id"] for each in parts.pop("proposals")] == [waiting_one.id]
    assert not any(parts.values())


def test_another_users_proposal_does_not_exist(alice):
    bob = a_person("bob@example.com")
    (found,) = propose(alice)
    for call in (decide, lambda user, each, _: undo(user, each)):
        with pytest.raises(NotFound):
            call(bob, found, "accepted")
    assert waiting(bob) == []


# -- The page -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def browser(alice):
    client = Client()
    client.force_login(alice)
    return client


def page(browser, **query):
    return browser.get(reverse("memory:proposals"), query).text


def post(browser, **form):
    return browser.post(reverse("memory:proposals"), form, follow=True)


def test_the_page_groups_by_chat_and_says_what_reading_cost_and_left_out(alice, browser):
    turn = a_turn(alice, "We take the oak worktop.")
    readings = {"times": 1, "input": 1_180, "output": 54, "left_out": 2, "proposed": 1}
    Conversation.objects.update(title="Kitchen", readings=readings)
    propose(alice, OAK | {"source_conversation": turn.conversation_id, "source_turn": 1, "quote": "the oak worktop"})
    propose(alice, {"content": "From an agent."})
    text = page(browser)
    for words in ("Kitchen", "1,234", "2 left out: not your words", "the oak worktop", "From an agent."):
        assert words in text
    assert f"/c/{turn.conversation_id}/?turn=1" in text
    assert "From an agent." not in page(browser, chat=str(turn.conversation_id))


def test_the_page_keeps_changes_refuses_and_undoes(alice, browser):
    first, second, third = propose(alice, OAK, {"content": "Cats are grey."}, {"content": "My sister lives in Rome."})
    post(browser, id=first.id, do="accept", content="We take oak.", type="fact", project_id="kitchen")
    assert MemoryRecord.objects.values_list("content", "type", "project_id").get() == (
        "We take oak.",
        "fact",
        "kitchen",
    )
    post(browser, id=second.id, do="reject")
    assert "Cats are grey." in post(browser, id=third.id, do="never").text
    assert dict(Proposal.objects.values_list("content", "state")) == {
        "We take the oak worktop.": "accepted",
        "Cats are grey.": "rejected",
        "My sister lives in Rome.": "never",
    }
    for each in (first, second, third):
        post(browser, id=each.id, do="undo")
    assert set(Proposal.objects.values_list("state", flat=True)) == {"waiting"}
    assert not MemoryRecord.objects.exists()


def test_the_page_names_a_kind_in_its_language_and_another_word_as_it_is(alice, browser):
    propose(alice, {"content": "We take oak.", "type": "Decision"}, {"content": "Cats are grey.", "type": "rule"})
    text = browser.get(reverse("memory:proposals"), headers={"Accept-Language": "de"}).text
    assert '<span class="chip">Entscheidung</span>' in text and '<span class="chip">rule</span>' in text


def test_a_project_is_named_by_its_folder_too_and_never_as_everything_but_it(alice, browser):
    with acting_as(alice):
        projects.save_project(user=alice, name="House", labels=["me/house"])
    first, second = propose(
        alice, {"content": "We take oak.", "project_id": "/src/House"}, {"content": "Cats are grey."}
    )
    assert first.project_id == "House"
    answer = browser.post(reverse("memory:proposals"), {"id": second.id, "do": "accept", "project_id": "-House"})
    assert answer.status_code == 400 and "It cannot begin with a hyphen." in answer.text
    post(browser, id=second.id, do="accept", project_id="git@github.com:me/house.git")
    assert MemoryRecord.objects.get().project_id == "House"


def test_all_of_a_chat_are_kept_by_one_request(alice, browser):
    found = propose(alice, OAK, {"content": "Cats are grey."})
    post(browser, id=[str(each.id) for each in found], do="accept")
    assert MemoryRecord.objects.count() == 2


def test_a_change_that_is_refused_stays_on_the_page_with_the_reason(alice, browser):
    (found,) = propose(alice)
    answer = browser.post(reverse("memory:proposals"), {"id": found.id, "do": "accept", "content": "x" * 33_000})
    assert answer.status_code == 400
    assert "At most 32,000 characters" in answer.text
    assert "x" * 33_000 in answer.text
    assert browser.post(reverse("memory:proposals"), {"id": found.id, "do": "what"}).status_code == 400


def test_the_records_page_says_how_many_wait(alice, browser):
    assert reverse("memory:proposals") not in browser.get(reverse("memory:records")).text
    propose(alice)
    assert reverse("memory:proposals") in browser.get(reverse("memory:records")).text


# -- REST ---------------------------------------------------------------------------------------------------------------


def send(browser, method, path, body=None):
    data = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
    return getattr(browser, method)(f"/api/v1/memory/proposals/{path}", **data)


def test_rest_lists_decides_and_undoes(alice, browser):
    turn = a_turn(alice, "We take the oak worktop.")
    (found,) = propose(alice, OAK | {"source_conversation": turn.conversation_id, "source_turn": 1})
    propose(alice, {"content": "Cats are grey."})
    listed = send(browser, "get", f"?conversation={turn.conversation_id}").json()
    assert [each["id"] for each in listed["proposals"]] == [str(found.id)]
    assert listed["proposals"][0]["sourceTurn"] == 1
    assert len(send(browser, "get", "?limit=1").json()["proposals"]) == 1
    decided = send(browser, "patch", f"{found.id}/decision/", {"state": "accepted", "content": "Oak it is."}).json()
    assert MemoryRecord.objects.get(pk=decided["record"]).content == "Oak it is."
    assert send(browser, "patch", f"{found.id}/decision/", {"state": "never"}).status_code == 412
    assert send(browser, "delete", f"{found.id}/decision/").status_code == 204
    assert not MemoryRecord.objects.exists()
    assert [each["state"] for each in send(browser, "get", "?state=waiting").json()["proposals"]] == ["waiting"] * 2


def test_the_list_names_its_project_by_a_repository_of_it(alice, browser):
    with acting_as(alice):
        projects.save_project(user=alice, name="House", labels=["me/house"])
    (oak, _) = propose(alice, OAK | {"project_id": "House"}, {"content": "Cats are grey."})
    for named in ("House", "me/house", "git@git.example:me/house.git"):
        listed = send(browser, "get", f"?project={quote(named)}").json()["proposals"]
        assert [each["id"] for each in listed] == [str(oak.id)], named


def test_rest_refuses_what_is_no_decision_and_knows_no_other_users(alice, browser):
    (found,) = propose(a_person("bob@example.com"))
    assert send(browser, "patch", f"{found.id}/decision/", {"state": "accepted"}).status_code == 404
    assert send(browser, "delete", "nothing/decision/").status_code == 404
    assert send(browser, "patch", f"{found.id}/decision/", {"state": "waiting"}).status_code == 400
    assert send(browser, "get", "?state=all").status_code == 400
    assert "waiting" in PROPOSAL_STATES


# -- The switches -------------------------------------------------------------------------------------------------------


def test_the_switch_of_the_account_is_off_at_first_and_notes_since_when(alice, browser, settings):
    settings.LLM_MODEL = "scripted"
    settings.LLM_BASE_URL = "http://127.0.0.1:9/v1"
    settings.CHAT_TITLES = True
    assert alice.proposes_since is None
    assert 'name="proposes"' in browser.get(reverse("intake:account")).text
    browser.post(reverse("intake:titles"), {"titles_by_model": "on", "proposes": "on"})
    alice.refresh_from_db()
    since = alice.proposes_since
    assert since is not None
    browser.post(reverse("intake:titles"), {"proposes": "on"})
    alice.refresh_from_db()
    assert (alice.proposes_since, alice.titles_by_model) == (since, False)
    browser.post(reverse("intake:titles"), {})
    alice.refresh_from_db()
    assert alice.proposes_since is None


def test_a_chat_is_left_out_by_its_own_switch(alice, browser, settings):
    settings.LLM_MODEL = "scripted"
    settings.LLM_CONTEXT_TOKENS = 32_000
    turn = a_turn(alice, "We take the oak worktop.")
    path = f"/api/v1/conversations/{turn.conversation_id}/"
    changed = browser.patch(path, json.dumps({"proposes": False}), content_type="application/json").json()
    assert changed["proposes"] is False
    assert Conversation.objects.get().proposes is False
    alice.proposes_since = NOW - timedelta(days=1)
    alice.save()
    chat = browser.get(f"/c/{turn.conversation_id}/").text
    assert 'data-choice="proposes"' in chat
    assert "data-proposes" in chat


def test_proposals_of_a_closed_project_are_listed_only_from_inside(alice, browser):
    turn = a_turn(alice, "We take the oak worktop.")
    source = {"source_conversation": turn.conversation_id, "source_turn": 1, "project_id": "kitchen"}
    propose(alice, {"content": "The board is 40 mm thick."} | source, {"content": "Cats are grey."})
    with acting_as(alice):
        projects.save_project(user=alice, name="kitchen", is_closed=True)
        assert proposals.count_waiting(alice) == 1
    assert waiting(alice) == ["Cats are grey."]
    assert "40 mm" not in page(browser)
    for query in ({"chat": str(turn.conversation_id)}, {"project": "kitchen"}):
        assert "40 mm" in page(browser, **query)
    assert len(send(browser, "get", "?project=kitchen").json()["proposals"]) == 1


def test_a_project_takes_its_proposals_along(alice):
    propose(alice, OAK | {"project_id": "kitchen"})
    with acting_as(alice):
        projects.save_project(user=alice, name="kitchen")
        projects.rename_project(user=alice, name="kitchen", new_name="cellar")
    assert Proposal.objects.get().project_id == "cellar"
