import random
import re
import time
import tracemalloc
from itertools import pairwise

import pytest

from memory.chunking import (
    ANSWER_PASSAGES,
    MESSAGE_PASSAGES,
    OVERLAP_TOKENS,
    Side,
    text_spans,
    turn_passages,
    turn_spans,
    turn_text,
)

TOKEN = re.compile(r"\w+|[^\w\s]")
LONGEST_MESSAGE, LONG_ANSWER = 32_000, 500_000


def offsets(text, at_most=None):
    return [match.span() for match in TOKEN.finditer(text)][:at_most]


def characters(text, at_most=None):
    """Every character is a token, as a model reads Chinese."""
    return [(place, place + 1) for place in range(len(text))][:at_most]


def spans(user_message, assistant_message="", max_tokens=40, token_offsets=offsets):
    return list(turn_spans(user_message, assistant_message, token_offsets=token_offsets, max_tokens=max_tokens))


def passages(user_message, assistant_message="", max_tokens=40, token_offsets=offsets):
    model = {"token_offsets": token_offsets, "max_tokens": max_tokens}
    found = turn_spans(user_message, assistant_message, **model)
    return list(turn_passages(found, user_message, assistant_message, **model))


def prose(sentences, seed=1):
    pick = random.Random(seed)
    words = ["river", "stone", "window", "paper", "quiet", "number", "orange", "ladder", "Tuesday", "garden"]
    return " ".join(" ".join(pick.choices(words, k=pick.randint(3, 9))).capitalize() + "." for _ in range(sentences))


def test_a_short_turn_is_one_passage_in_the_documented_format():
    assert passages("Where is my passport?", "In the blue drawer.") == [
        "User: Where is my passport?\nAssistant: In the blue drawer."
    ]


def test_a_missing_answer_leaves_no_empty_label():
    assert passages("Remember: the code is 4711.") == ["User: Remember: the code is 4711."]
    assert passages("Remember.", " \n") == ["User: Remember."]


def test_a_missing_question_leaves_no_empty_label():
    assert passages("", "Good morning.") == ["Assistant: Good morning."]


def test_a_blank_turn_has_no_passages():
    assert passages(" \n", "\t") == []


def test_each_passage_of_a_long_answer_stands_behind_the_question():
    answer = prose(40)
    question, *of_answer = passages("How do I repot an orchid?", answer)

    assert question == "User: How do I repot an orchid?"
    assert of_answer[0].startswith("User: How do I repot an orchid?\nAssistant: " + answer[:40])
    assert all(passage.startswith("User: How do I repot an orchid?\nAssistant: ") for passage in of_answer)


def test_a_long_question_is_whole_in_its_own_passages_and_repeated_by_its_beginning():
    question = prose(20)
    found = passages(question, prose(20, seed=2))
    answers = [passage for passage in found if "\nAssistant: " in passage]
    messages = [passage.removeprefix("User: ") for passage in found if passage not in answers]

    assert answers
    assert all(passage.startswith("User: " + question[:20]) for passage in answers)
    assert set(question.split()) == set(" ".join(messages).split())
    assert messages[-1].endswith(question[-20:])


@pytest.mark.parametrize("window", [16, 40, 254])
def test_every_token_of_both_sides_is_in_a_passage(window):
    message = " ".join(f"w{number}" for number in range(900))
    answer = " ".join(f"a{number}" + ("." if number % 7 else ".\n") for number in range(5_000))
    found = spans(message, answer, window)

    for text, side in ((message, Side.USER), (answer, Side.ASSISTANT)):
        begins, ends = zip(*offsets(text), strict=True)
        of_side = [span for span in found if span.side is side]
        assert {span.start for span in of_side} <= set(begins)
        assert {span.end for span in of_side} <= set(ends)
        assert (of_side[0].start, of_side[-1].end) == (0, ends[-1])
        assert all(following.start < one.end for one, following in pairwise(of_side))


def test_consecutive_passages_have_their_last_words_in_common():
    answer = prose(200)
    of_answer = [span for span in spans("Why?", answer, 80) if span.side is Side.ASSISTANT]

    assert len(of_answer) > 10
    for one, following in pairwise(of_answer):
        assert 1 <= len(offsets(answer[following.start : one.end])) <= OVERLAP_TOKENS


def test_what_is_further_on_in_a_long_text_is_marked_so():
    found = spans(prose(300), prose(300, seed=2), 40)
    for side, first in ((Side.USER, MESSAGE_PASSAGES), (Side.ASSISTANT, ANSWER_PASSAGES)):
        marks = [span.is_further for span in found if span.side is side]
        assert marks == [False] * first + [True] * (len(marks) - first)
        assert any(marks)


def test_no_passage_of_a_text_with_one_author_is_further():
    assert not any(span.is_further for span in text_spans(prose(300), token_offsets=offsets, max_tokens=40))


@pytest.mark.parametrize("seed", range(20))
def test_no_passage_is_longer_than_the_window(seed):
    pick = random.Random(seed)
    window = pick.randint(16, 80)
    found = passages(prose(pick.randint(1, 30), seed), prose(pick.randint(0, 60), seed + 1), max_tokens=window)

    assert max(len(offsets(passage)) for passage in found) <= window


@pytest.mark.parametrize("sentence_length", [0, 9, 171, 230])
def test_nothing_of_the_longest_record_is_lost_when_every_character_is_a_token(sentence_length):
    record = "".join(
        "\u3002" if sentence_length and number % sentence_length == 0 else chr(0x4E00 + number % 20_000)
        for number in range(32_000)
    )
    end = 0
    for span in text_spans(record, token_offsets=characters, max_tokens=254):
        assert 0 <= span.start <= end < span.end
        end = span.end
    assert end == len(record)


def ends(text, window=48):
    """How each passage of the message but the last ends, and how the next line begins."""
    *found, _ = spans(text, "Yes.", window)
    of_message = [span for span in found if span.side is Side.USER and span.end < len(text)]
    assert len(of_message) > 2
    return [(text[: span.end].splitlines()[-1], text[span.end :].lstrip().splitlines()[0]) for span in of_message]


def test_passages_end_at_sentences_where_they_can():
    assert all(line.endswith(".") for line, _ in ends(prose(30)))


def test_the_end_of_a_line_is_preferred_to_that_of_a_sentence():
    lines = [f"Point {number}. It has words enough to fill a line of its own" for number in range(12)]
    assert all(line.endswith("of its own") for line, _ in ends("\n".join(lines)))


def test_the_next_item_of_a_list_is_preferred_to_the_next_line():
    items = [f"{mark} Item here\nand more of it\nand the rest" for mark in ("-", "*", "1.", "2)") * 8]
    assert all(following.startswith(("- ", "* ", "1. ", "2) ")) for _, following in ends("\n".join(items)))


def test_a_blank_line_is_preferred_to_the_next_item():
    paragraphs = [f"Number {number} begins\n- one thing\n- another thing" for number in range(20)]
    assert all(following.startswith("Number") for _, following in ends("\n\n".join(paragraphs)))


def test_a_heading_is_preferred_to_a_blank_line():
    sections = [f"## Part {number}\n\nShort words here\n\nand again there" for number in range(20)]
    assert all(following.startswith("## Part") for _, following in ends("\n\n".join(sections)))


def test_a_block_of_code_begins_a_passage():
    blocks = [f"Then run this one\n```python\nprint({number})\nmore()\n```" for number in range(20)]
    assert all(following.startswith("```python") for _, following in ends("\n".join(blocks), 60))


def test_chinese_breaks_after_its_own_full_stop():
    sentence = "\u6211\u4eec\u660e\u5929\u53bb\u5317\u4eac\u3002"
    *found, _ = passages(sentence * 30, "?", 80, characters)

    assert all(passage.endswith("\u3002") for passage in found)


UNBROKEN = {
    "one word": "x" * LONG_ANSWER,
    "base64": "".join(random.Random(1).choices("ABCDEFabcdef0123456789+/", k=LONG_ANSWER)),
    "Chinese": "".join(chr(0x4E00 + number % 20_000) for number in range(LONG_ANSWER)),
    "marks": "!" * LONG_ANSWER,
    "short words": "a " * (LONG_ANSWER // 2),
    "controls": "\x00" * LONG_ANSWER,
}


@pytest.mark.medium
@pytest.mark.parametrize("name", UNBROKEN)
def test_a_long_text_without_any_boundary_is_cut_too(name):
    text, end, found = UNBROKEN[name], 0, 0
    token_offsets = characters if name == "Chinese" else offsets
    for span in turn_spans(text[:LONGEST_MESSAGE], text, token_offsets=token_offsets, max_tokens=254):
        if span.side is Side.ASSISTANT:
            assert span.start <= end < span.end
            assert span.end - span.start < 254 * 10
            end, found = span.end, found + 1
    assert not text[end:].strip()
    assert found > 100


@pytest.mark.medium
def test_no_more_than_a_page_of_tokens_is_held():
    tracemalloc.start()
    for _ in turn_spans("?", UNBROKEN["Chinese"][:100_000], token_offsets=characters, max_tokens=254):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 5_000_000


def test_the_time_follows_the_length():
    text = prose(20_000)

    def seconds(length):
        begun = time.process_time()
        for _ in turn_spans("Why?", text[:length], token_offsets=offsets, max_tokens=254):
            pass
        return time.process_time() - begun

    short, long = min(seconds(50_000) for _ in range(3)), seconds(500_000)
    assert long < 40 * short


@pytest.mark.parametrize("seed", range(20))
def test_where_a_page_of_tokens_ends_changes_no_passage(seed, monkeypatch):
    pick = random.Random(seed)
    sides = prose(pick.randint(1, 90), seed), prose(pick.randint(0, 60), seed + 1)
    window = pick.randint(16, 80)
    whole = spans(*sides, max_tokens=window)
    monkeypatch.setattr("memory.chunking.PAGE", pick.randint(10, 300))

    assert spans(*sides, max_tokens=window) == whole


def test_the_passages_are_the_same_every_time():
    assert passages(prose(30), prose(50)) == passages(prose(30), prose(50))


def test_turn_text_is_the_specifications():
    assert turn_text("Hi", "Hello") == "User: Hi\nAssistant: Hello"
