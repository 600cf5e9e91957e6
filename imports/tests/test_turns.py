"""From messages to turns: which belong together, what follows what, and what is a version of what."""

from imports.reading.items import ImportedFile
from imports.storing.turns import planned_turns
from imports.tests.exports import SAID, a_conversation, message


def plan(*messages, others=()):
    conversation = a_conversation(messages=tuple(messages), other_branches=tuple(others))
    return planned_turns(conversation, otherwise=SAID)


def texts(turns):
    return [(turn.user_message, turn.assistant_message) for turn in turns]


def test_answers_that_follow_a_message_are_joined():
    turns = plan(
        message("q", "user", "Why?"), message("a", "assistant", "Let me see."), message("b", "assistant", "So.")
    )
    assert texts(turns) == [("Why?", "Let me see.\n\nSo.")]


def test_an_answer_without_a_message_and_a_message_without_an_answer_are_turns():
    turns = plan(
        message("a", "assistant", "Welcome."), message("q", "user", "Hi"), message("r", "user", "Still there?")
    )
    assert texts(turns) == [("", "Welcome."), ("Hi", ""), ("Still there?", "")]
    assert [turn.parent for turn in turns] == [None, turns[0], turns[1]]


def test_another_answer_and_an_edited_message_are_versions():
    others = [
        message("a2", "assistant", "Cold.", parent="q"),
        message("q2", "user", "How cold?", parent="a2"),
        message("b2", "assistant", "Very.", parent="q2"),
        message("e", "user", "How hot?"),
        message("f", "assistant", "Hot.", parent="e"),
    ]
    main = [message("q", "user", "How warm?"), message("a", "assistant", "Warm.", parent="q")]
    turns = plan(*main, others=others)
    assert texts(turns) == [
        ("How warm?", "Warm."),
        ("How warm?", "Cold."),
        ("How cold?", "Very."),
        ("How hot?", "Hot."),
    ]
    assert [turn.parent for turn in turns] == [None, None, turns[1], None]
    assert [turn.is_current for turn in turns] == [True, False, False, False]
    assert len({turn.key for turn in turns}) == 4


def test_another_end_of_an_answer_is_a_version_with_the_same_beginning():
    main = [
        message("q", "user", "Tell me"),
        message("a", "assistant", "One.", parent="q"),
        message("b", "assistant", "Two.", parent="a"),
    ]
    turns = plan(*main, others=[message("c", "assistant", "Three.", parent="a")])
    assert texts(turns) == [("Tell me", "One.\n\nTwo."), ("Tell me", "One.\n\nThree.")]


def test_ids_that_come_twice_stay_apart():
    turns = plan(*[message("q", "user", "Once"), message("q", "user", "Twice")])
    assert len({turn.key for turn in turns}) == 2
    assert [turn.key for turn in plan(message("q", "user", "Once"), message("q", "user", "Twice"))] == [
        turn.key for turn in turns
    ]


def test_what_cannot_be_stored_is_cleaned_and_what_is_attached_is_kept_folded():
    asked = message(
        "q",
        "user",
        "A\x00B\ud800",
        attachments=("photo\x00.jpg",),
        files=(ImportedFile(name="a\x00.txt", text="pasted\x00"),),
    )
    answered = message(
        "a", "assistant", "Yes", tool_calls=({"name": "search", "input": {"q": "\x00x"}},), model="gpt-4o"
    )
    (turn,) = plan(asked, answered)
    assert turn.user_message == "AB\ufffd"
    assert turn.model == "gpt-4o"
    assert turn.files == (ImportedFile(name="a.txt", text="pasted"),)
    assert turn.tool_calls == [
        {"id": "imported-1", "name": "attachment", "input": {"name": "photo.jpg"}},
        {"id": "imported-2", "name": "search", "input": {"q": "x"}},
    ]


def test_what_has_no_time_has_that_of_what_stands_before_it():
    turns = plan(message("q", "user", "When?", at=None), message("r", "user", "And then?", at=None))
    assert [turn.said_at for turn in turns] == [SAID, SAID]


def test_a_chain_of_many_messages_is_walked_without_recursion():
    chain = [message(str(number), "user", "x") for number in range(3_000)]
    assert len(plan(*chain)) == 3_000
