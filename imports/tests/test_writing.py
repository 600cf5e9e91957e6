"""The writer: everything comes in once, with its own times, and what was changed or deleted here stays so."""

import pytest

from core.isolation.acting import acting_as
from imports.models import Import, ImportedItem
from imports.storing.conversations import BATCH_TURNS, Batch, stretches
from imports.tests.exports import SAID, a_conversation, message
from intake.chats.deleting import delete_conversation, delete_turn
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import index
from memory.index.scoring import score
from memory.models import Embedding
from memory.models.documents import Corpus, Scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def person():
    return a_person()


def bring(user, *conversations):
    with acting_as(user):
        made = Import.objects.create(user=user, filename="x.zip", bytes=1)
    outcomes = []
    for conversation in conversations:
        for stretch in stretches(conversation, otherwise=NOW):
            with acting_as(user):
                outcomes.append(Batch([stretch], user=user, brought_by=made).write())
    return made, outcomes


def texts(user):
    return list(
        Turn.objects.for_user(user)
        .order_by("conversation__external_id", "turn_number")
        .values_list("user_message", "assistant_message")
    )


def test_a_conversation_comes_in_with_its_own_times_and_title(person):
    bring(person, a_conversation(turns=2))
    conversation = Conversation.objects.get()
    assert (conversation.source, conversation.external_id, conversation.title) == ("chatgpt", "c1", "About c1")
    assert conversation.started_at == SAID
    assert conversation.turn_count == 2
    turns = list(conversation.turns.in_order())
    assert [turn.turn_number for turn in turns] == [1, 2]
    assert conversation.last_active_at == turns[1].said_at
    assert {turn.status for turn in turns} == {"complete"}
    assert turns[0].user_message == "Question 1 of c1"
    assert turns[0].usage == {"model": "gpt-4o"}


def test_a_title_in_markdown_comes_in_as_plain_text_and_first_words_as_they_are(person):
    bring(person, a_conversation("c1", title="# **Trip** to `Rome`"), a_conversation("c2", title="**"))
    asked = message("q", "user", "**Trip** to Rome?", at=SAID)
    bring(person, a_conversation("c3", title="**Trip** to Rome?", messages=(asked,)))
    titles = dict(Conversation.objects.values_list("external_id", "title"))
    assert titles == {"c1": "Trip to Rome", "c2": "**", "c3": "**Trip** to Rome?"}


def test_an_archived_conversation_comes_in_archived(person):
    bring(person, a_conversation("c1", is_archived=True), a_conversation("c2"))
    archived = Conversation.objects.exclude(archived_at=None)
    assert [conversation.external_id for conversation in archived] == ["c1"]


def test_what_came_in_is_found_by_its_words_at_once_and_waits_for_vectors(person):
    bring(person, a_conversation(turns=2))
    hits = score(Scope(person, (Corpus.CHAT,)), query="question", limit=10)[0]
    assert len(hits) == 2
    assert Embedding.objects.filter(user=person, vector=None).count() == 2


def test_the_same_again_adds_nothing(person):
    bring(person, a_conversation(turns=3))
    before = list(Turn.objects.order_by("pk").values())
    _, (outcome,) = bring(person, a_conversation(turns=3))
    assert (outcome.conversations, outcome.turns) == (0, 0)
    assert list(Turn.objects.order_by("pk").values()) == before


def test_a_newer_export_adds_what_is_new(person):
    bring(person, a_conversation("c1", turns=2))
    bring(person, a_conversation("c1", turns=4), a_conversation("c2", turns=1))
    assert [said for said, _ in texts(person)] == [
        *(f"Question {number} of c1" for number in (1, 2, 3, 4)),
        "Question 1 of c2",
    ]
    assert Conversation.objects.get(external_id="c1").turn_count == 4


def test_an_answer_that_was_being_written_is_completed(person):
    asked = message("q", "user", "Why?")
    bring(person, a_conversation(messages=(asked,)))
    bring(person, a_conversation(messages=(asked, message("a", "assistant", "First."))))
    bring(
        person,
        a_conversation(messages=(asked, message("a", "assistant", "First."), message("b", "assistant", "Then."))),
    )
    assert texts(person) == [("Why?", "First.\n\nThen.")]
    assert score(Scope(person, (Corpus.CHAT,)), query="then first", limit=10)[0]


def test_a_turn_changed_here_is_left_alone(person):
    asked = message("q", "user", "Why?")
    bring(person, a_conversation(messages=(asked,)))
    Turn.objects.update(user_message="Why so?")
    bring(person, a_conversation(messages=(asked, message("a", "assistant", "First."))))
    assert texts(person) == [("Why so?", "")]


def test_a_turn_deleted_here_is_not_brought_back(person):
    bring(person, a_conversation(turns=3))
    with acting_as(person):
        delete_turn(caller=caller_for(person), conversation_id=Conversation.objects.get().pk, turn_number=2)
    bring(person, a_conversation(turns=4))
    assert [said for said, _ in texts(person)] == [f"Question {number} of c1" for number in (1, 3, 4)]


def test_a_conversation_deleted_here_is_not_brought_back(person):
    bring(person, a_conversation(turns=2))
    with acting_as(person):
        delete_conversation(caller=caller_for(person), conversation_id=Conversation.objects.get().pk)
    _, (outcome,) = bring(person, a_conversation(turns=5))
    assert (outcome.turns, texts(person)) == (0, [])


def test_what_follows_in_the_export_is_a_version_of_what_was_said_here_since(person):
    bring(person, a_conversation(turns=1))
    a_turn(person, "And here?", conversation=Conversation.objects.get())
    bring(person, a_conversation(turns=2))
    assert [said for said, _ in texts(person)] == ["Question 1 of c1", "And here?", "Question 2 of c1"]
    assert list(Turn.objects.in_order().values_list("parent_number", flat=True)) == [None, 1, 1]
    assert Conversation.objects.get().current_number == 2


def test_other_branches_come_in_as_versions_and_the_current_one_is_chosen(person):
    main = (message("q", "user", "How warm?"), message("a", "assistant", "Warm.", parent="q"))
    others = (
        message("b", "assistant", "Cold.", parent="q"),
        message("r", "user", "How cold?", parent="b"),
    )
    _, (outcome,) = bring(person, a_conversation(messages=main, other_branches=others))
    assert (outcome.turns, outcome.versions) == (3, 2)
    assert list(Turn.objects.in_order().values_list("assistant_message", "parent_number")) == [
        ("Warm.", None),
        ("Cold.", None),
        ("", 2),
    ]
    assert Conversation.objects.get().current_number == 1


def test_a_newer_export_goes_on_on_the_chosen_path(person):
    bring(person, a_conversation(turns=1))
    bring(person, a_conversation(turns=3))
    assert list(Turn.objects.in_order().values_list("parent_number", flat=True)) == [None, 1, 2]
    assert Conversation.objects.get().current_number == 3


def test_a_conversation_longer_than_a_batch_comes_in_by_stretches(person):
    _, outcomes = bring(person, a_conversation(turns=BATCH_TURNS + 5))
    assert [outcome.turns for outcome in outcomes] == [BATCH_TURNS, 5]
    assert Conversation.objects.get().turn_count == BATCH_TURNS + 5
    assert ImportedItem.objects.filter(kind="turn").count() == BATCH_TURNS + 5


def test_two_people_bring_the_same_export_in_each_for_themselves(person):
    other = a_person("bob@example.com")
    bring(person, a_conversation(turns=1))
    bring(other, a_conversation(turns=1))
    assert texts(person) == texts(other)
    assert Conversation.objects.count() == 2


def test_a_message_longer_than_the_chat_takes_is_kept_whole(person):
    text = "word " * 20_000
    bring(person, a_conversation(messages=(message("q", "user", text),)))
    assert texts(person) == [(text, "")]


def test_a_worker_cuts_what_came_in_into_passages_and_fills_their_vectors(person):
    long = "sentence after sentence. " * 400
    bring(person, a_conversation(messages=(message("q", "user", long), message("a", "assistant", "Yes."))))
    index.embed_pending()
    rows = Embedding.objects.filter(user=person)
    assert rows.count() > 1
    assert not rows.filter(vector=None).exists()
    assert not rows.filter(length=0).exists()
