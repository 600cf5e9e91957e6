import random
import re

import pytest

from memory.chunking import MAX_PARTS, text_parts, turn_parts, turn_text

TOKEN = re.compile(r"\w+|[^\w\s]")


def offsets(text, at_most=None):
    return [match.span() for match in TOKEN.finditer(text)][:at_most]


def parts(user_message, assistant_message="", max_tokens=40):
    return turn_parts(user_message, assistant_message, token_offsets=offsets, max_tokens=max_tokens)


def prose(sentences, seed=1):
    pick = random.Random(seed)
    words = ["river", "stone", "window", "paper", "quiet", "number", "orange", "ladder", "Tuesday", "garden"]
    return " ".join(" ".join(pick.choices(words, k=pick.randint(3, 9))).capitalize() + "." for _ in range(sentences))


def test_short_turn_is_one_part_in_the_documented_format():
    assert parts("Where is my passport?", "In the blue drawer.") == [
        "User: Where is my passport?\nAssistant: In the blue drawer."
    ]


def test_missing_answer_leaves_no_empty_label():
    assert parts("Remember: the code is 4711.") == ["User: Remember: the code is 4711."]
    assert parts("Remember.", " \n") == ["User: Remember."]


def test_missing_question_leaves_no_empty_label():
    assert parts("", "Good morning.") == ["Assistant: Good morning."]


def test_blank_turn_has_no_parts():
    assert parts(" \n", "\t") == []


def test_long_answer_is_its_beginning_behind_the_question():
    answer = prose(40)
    question, beginning = parts("How do I repot an orchid?", answer)

    assert question == "User: How do I repot an orchid?"
    assert beginning.startswith("User: How do I repot an orchid?\nAssistant: " + answer[:40])


def test_long_question_is_whole_in_its_own_parts_and_repeated_by_its_beginning():
    question = prose(20)
    found = parts(question, prose(20, seed=2))
    answers = [part for part in found if "\nAssistant: " in part]
    messages = [part.removeprefix("User: ") for part in found if part not in answers]

    assert answers
    assert all(part.startswith("User: " + question[:20]) for part in answers)
    assert set(question.split()) == set(" ".join(messages).split())
    assert messages[-1].endswith(question[-20:])


def test_nothing_of_a_long_message_is_lost():
    message = " ".join(f"w{number}" for number in range(120))
    together = " ".join(parts(message, "Because."))

    assert all(re.search(rf"\bw{number}\b", together) for number in range(120))


@pytest.mark.parametrize("seed", range(20))
def test_no_part_is_longer_than_the_window(seed):
    pick = random.Random(seed)
    window = pick.randint(16, 80)
    found = parts(prose(pick.randint(1, 30), seed), prose(pick.randint(0, 60), seed + 1), max_tokens=window)

    assert max(len(offsets(part)) for part in found) <= window


@pytest.mark.parametrize("sentence_length", [0, 9, 171, 230])
def test_nothing_of_the_longest_record_is_lost_when_every_character_is_a_token(sentence_length):
    record = "".join(
        "\u3002" if sentence_length and number % sentence_length == 0 else chr(0x4E00 + number % 20_000)
        for number in range(32_000)
    )
    found = text_parts(
        record,
        token_offsets=lambda text, at_most=None: [(i, i + 1) for i in range(len(text))][:at_most],
        max_tokens=254,
    )

    end = 0
    for part in found:
        start = record.find(part, max(0, end - 254))
        assert 0 <= start <= end
        end = start + len(part)
    assert end == len(record)


def test_parts_end_at_sentences_where_they_can():
    *found, _ = parts(prose(30), "Yes.")

    assert len(found) > 2
    assert all(part.endswith(".") for part in found)


def test_parts_prefer_the_end_of_a_line_to_that_of_a_sentence():
    lines = [f"Point {number}. It has words enough to fill a line of its own" for number in range(12)]
    *found, _ = parts("\n".join(lines), "Yes.", max_tokens=48)

    assert len(found) > 2
    assert all(part.endswith("of its own") for part in found)


def test_chinese_breaks_after_its_own_full_stop():
    sentence = "\u6211\u4eec\u660e\u5929\u53bb\u5317\u4eac\u3002"
    *found, _ = turn_parts(
        sentence * 30,
        "?",
        token_offsets=lambda text, at_most=None: [(i, i + 1) for i in range(len(text))],
        max_tokens=80,
    )

    assert all(part.endswith("\u3002") for part in found)


@pytest.mark.parametrize(
    "text", ["x" * 32_000, "\x00" * 32_000, "😀" * 32_000, "漢" * 32_000, "a " * 16_000, "!" * 32_000]
)
def test_longest_message_makes_a_bounded_number_of_parts(text):
    found = parts(text, text)

    assert 1 <= len(found) <= MAX_PARTS


@pytest.mark.parametrize("seed", range(20))
def test_tokens_that_are_left_out_change_no_part(seed):
    pick = random.Random(seed)
    sides = prose(pick.randint(1, 90), seed), prose(pick.randint(0, 60), seed + 1)
    window = pick.randint(16, 80)
    whole = turn_parts(*sides, token_offsets=lambda text, at_most: offsets(text), max_tokens=window)

    assert parts(*sides, max_tokens=window) == whole


def test_parts_are_the_same_every_time():
    assert parts(prose(30), prose(50)) == parts(prose(30), prose(50))


def test_turn_text_is_the_specifications():
    assert turn_text("Hi", "Hello") == "User: Hi\nAssistant: Hello"
