"""Signatures: whatever a text contains, its signature has the bits of; most of what it does not contain, it has not."""

import random

import pytest

from memory.index.trigrams import LENGTHS, fold, masks, trigram_filter

TEXT = "Set RETRY_LIMIT=42 in config.yaml, then run `make deploy`; 我们明天去北京, naïve Straße 🐈 100%."


def may_contain(text_signature, piece):
    bits = bytes.fromhex(text_signature[1:])
    mask = masks(fold(piece)).get(8 * len(bits))
    return mask is None or all(
        requested & has == requested for requested, has in zip(bytes.fromhex(mask[1:]), bits, strict=True)
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_piece_of_a_text_is_ever_missed(seed):
    pick = random.Random(seed)
    text = TEXT * pick.choice([1, 1, 20]) + "".join(
        chr(pick.randint(32, 0x2FFF)) for _ in range(pick.choice([0, 3000]))
    )
    made = trigram_filter(text)
    for _ in range(50):
        start = pick.randrange(len(text))
        piece = text[start : start + pick.randint(1, 40)]
        assert may_contain(made, piece.swapcase() if piece.isascii() else piece)


def test_both_sides_are_in_one_trigram_filter():
    made = trigram_filter("the question", "an answer")
    assert may_contain(made, "question")
    assert may_contain(made, "answer")


def test_most_texts_that_do_not_contain_a_piece_are_passed_over():
    pick = random.Random(7)
    words = ["".join(pick.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2_000)]
    made = [trigram_filter(" ".join(pick.choices(words, k=200))) for _ in range(200)]
    assert sum(may_contain(one, "zqxjkv") for one in made) < 10


def test_a_numbers_two_digits_and_a_chinese_word_tell_texts_apart():
    made = trigram_filter("nothing of the kind")
    assert not may_contain(made, "42")
    assert not may_contain(made, "北京")


def test_one_or_two_letters_tell_nothing():
    assert masks("") == masks("a") == masks("ab") == {}


def test_a_signature_is_as_long_as_its_text_is_varied():
    lengths = [
        4 * len(trigram_filter(text)[1:]) for text in ("", "short", TEXT * 100, "".join(map(chr, range(9000, 30000))))
    ]
    assert lengths[0] == lengths[1] == LENGTHS[0]
    assert lengths[0] <= lengths[2] < lengths[3] == LENGTHS[-1]


def test_case_and_the_width_of_space_do_not_matter():
    assert fold("STRASSE  nach\n\tKöln ") == fold("straße nach KÖLN")


def test_odd_characters_have_signatures_too():
    for text in ("\ud800", "\0\0\0", "a\u0301" * 50, "🐈"):
        assert may_contain(trigram_filter(text), text)
