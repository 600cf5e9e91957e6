"""Results as text: short ones whole, long ones around the rare words of the question, all within a budget."""

import pytest

from intake.llm.tokens import tokens_of
from memory.search.excerpts import Segment
from memory.search.writing import CUT, Rarity, within, written

FILLER = "The weather was mild and the street was quiet that day. "


def write(message, answer="", *, query="Which pangolin did we adopt?", budget=1500):
    sides = [Segment(message, before="User: "), Segment(answer, before="Assistant: ")]
    return written(sides, Rarity.of(query, [f"{message} {answer}", "we adopt a cat"]), budget)


def test_a_short_turn_is_written_whole():
    assert write("We met a pangolin.", "A fine animal!") == ["User: We met a pangolin.", "Assistant: A fine animal!"]
    assert write("We met a pangolin.") == ["User: We met a pangolin."]


@pytest.mark.parametrize("place", [0, 20, 40])
def test_a_long_turn_is_cut_around_the_rare_word_wherever_it_is(place):
    sentences = [FILLER] * 41
    sentences[place] = "Its name is Pangolins Prime. "
    (text,) = write("".join(sentences))
    assert "Its name is Pangolins Prime." in text
    assert tokens_of(text) <= CUT + 20


def test_a_message_stays_whole_beside_a_long_answer():
    message, answer = write("We met a pangolin at noon.", FILLER * 40 + "Pangolins sleep. " + FILLER * 40)
    assert message == "User: We met a pangolin at noon."
    assert "Pangolins sleep." in answer
    assert tokens_of(message + answer) <= CUT + 20


def test_a_word_that_many_texts_have_counts_less_than_a_rare_one():
    message = FILLER * 20 + "We adopt it. " + FILLER * 20 + "A pangolin slept. " + FILLER * 20
    assert "A pangolin slept." in " ".join(write(message, budget=200))


def test_results_fill_the_budget_and_the_last_line_counts_and_names_the_rest():
    results = [FILLER * 5, FILLER * 30, "short"]
    texts = within(200, results, write=lambda each, before: each, name=lambda each: f"n{results.index(each)}")
    assert texts == [results[0], "short", "Note: 1 more does not fit in 200 tokens (maxTokens): n1."]
    assert within(2000, results, write=lambda each, before: each, name=str) == results
    assert tokens_of("\n".join(texts)) <= 200


def test_of_the_first_result_as_much_is_written_as_any_budget_has_room_for():
    result = "--- Result 1 ---\n" + FILLER * 30 + "\nid: 9f3a61c2/12"
    (text,) = within(150, [result], write=lambda each, before: each, name=str)
    assert text.startswith("--- Result 1 ---\nThe weather") and text.endswith("…\nid: 9f3a61c2/12")
    assert 80 < tokens_of(text) <= 150
