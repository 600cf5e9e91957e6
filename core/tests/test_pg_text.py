"""What a model may send and PostgreSQL cannot keep."""

import json

import pytest

from core.text import cut, pg_value, shortened, with_whole_pairs
from intake.models import Turn
from intake.tests.factories import a_person, a_turn

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("a\ud83d b", "a\ufffd b"),
        ("\ude42🙂\ud83d", "\ufffd🙂\ufffd"),
        ("\\ud83d", "\\ud83d"),
        ("\\\ud83d\\", "\\\ufffd\\"),
        ("", ""),
    ],
)
def test_half_of_a_pair_in_json_is_replaced_and_nothing_else(text, read):
    assert json.loads(with_whole_pairs(json.dumps({text: [text]}).encode())) == {read: [read]}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a\0b", "ab"),
        ("\ud83d", "\ufffd"),
        ("🙂 é", "🙂 é"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1.5, 1.5),
        ({"a\0": ["\udfff", {"b": "\0"}]}, {"a": ["\ufffd", {"b": ""}]}),
        ([None, True, 7], [None, True, 7]),
    ],
)
def test_it_is_kept_as_near_as_can_be(value, kept):
    turn = a_turn(a_person(), "Hello")
    turn.tool_calls = [{"input": pg_value(value)}]
    turn.save()
    assert Turn.objects.get().tool_calls == [{"input": kept}]


FAMILY, FLAG, SCOTLAND = "👨‍👩‍👧‍👦", "🇪🇸", "🏴󠁧󠁢󠁳󠁣󠁴󠁿"
SIGNS = (
    FAMILY,
    FLAG,
    SCOTLAND,
    "e\u0301",
    "n\u0303\u0323",
    "👍🏽",
    "❤️",
    "1️⃣",
    "क्षि",
    "กำ",
    "\u1112\u1161\u11ab",
    "\r\n",
    "🧑🏾‍🚀",
)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("lead", range(0, 14))
def test_a_text_is_cut_between_signs_and_not_inside_them(sign, lead):
    text = "x" * lead + sign * 30
    for length in range(1, len(text)):
        kept = cut(text, length)
        assert len(kept) <= length
        assert (len(kept) - lead) % len(sign) == 0 or len(kept) < lead, (length, kept)
        assert len(kept) > length - len(sign)
    end = shortened(text, 40)
    assert len(end) <= 40 and end.endswith("…")
    assert (len(end.rstrip("…")) - lead) % len(sign) == 0 or sign == "\r\n"


def test_a_text_is_shortened_between_words_where_there_are_any():
    assert shortened("one two three", 13) == "one two three"
    assert shortened("one two three", 12) == "one two…"
    assert shortened("夕" * 30, 10) == "夕" * 9 + "…"
    assert shortened("A " + "夕" * 90, 80) == "A " + "夕" * 77 + "…"
    assert shortened("one, two", 7) == "one…"


def test_a_sign_of_a_thousand_accents_is_cut_all_the_same():
    assert len(cut("a" + "\u0301" * 1000, 100)) == 100
