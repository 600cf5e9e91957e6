"""Excerpts: at most 500 characters, cut around the match from word to word, with the matches marked."""

import random
import unicodedata

import pytest

from memory.search.excerpts import EXCERPT_LENGTH, Matcher, Segment, cut, matching, own_words, show, within_lines

LOREM = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore " * 40


def marked(excerpt):
    return [excerpt.text[start:end] for start, end in excerpt.highlights]


def excerpt_of(text, query, *, words=(), length=EXCERPT_LENGTH):
    return cut(text, Matcher.of(query).knowing(words), length=length)


def test_a_short_text_is_shown_whole():
    excerpt = excerpt_of("  We ate at Sakura Sushi.\n", "sushi")
    assert excerpt.text == "We ate at Sakura Sushi."
    assert marked(excerpt) == ["Sushi"]


def test_a_long_text_is_cut_around_the_match_with_ellipses_on_both_sides():
    excerpt = excerpt_of(f"{LOREM} Sakura Sushi {LOREM}", "sakura sushi")
    assert len(excerpt.text) <= 500
    assert excerpt.text.startswith("…") and excerpt.text.endswith("…")
    assert marked(excerpt) == ["Sakura Sushi"]
    assert 150 < excerpt.highlights[0][0] < 350


def test_a_match_at_the_beginning_or_at_the_end_wastes_no_room():
    first, last = excerpt_of(f"Sushi {LOREM}", "sushi"), excerpt_of(f"{LOREM} sushi", "sushi")
    assert first.text.startswith("Sushi lorem") and first.text.endswith("…")
    assert last.text.endswith("sushi") and last.text.startswith("…")
    assert min(len(first.text), len(last.text)) > 460


def test_it_is_cut_between_words():
    words = set(LOREM.split()) | {"sushi"}
    assert set(excerpt_of(f"{LOREM} sushi {LOREM}", "sushi").text.strip("…").split()) <= words


def test_without_a_match_it_is_the_beginning():
    excerpt = excerpt_of(LOREM, "nothing")
    assert excerpt.text.startswith("lorem ipsum") and excerpt.text.endswith("…")
    assert excerpt.highlights == []


def test_many_matches_are_preferred_to_few_and_the_very_letters_to_words():
    many = excerpt_of(f"sushi {LOREM} sushi and sushi and sushi {LOREM}", "sushi")
    assert len(many.highlights) == 3
    text = f"rolls rolls rolls {LOREM} sushi rolls {LOREM}"
    assert "sushi rolls" in marked(excerpt_of(text, "sushi rolls", words={"sushi", "rolls"}))


def test_a_short_passage_is_in_the_middle_unless_another_place_has_more_words():
    text = f"{LOREM}\n- the spare one is in the tin\n{LOREM}\n- keys of the shed and keys of the van\n{LOREM}"
    line = (text.index("the spare"), text.index("the spare") + 28)
    known = Matcher.of("xkeys").knowing({"spare", "keys", "van"})
    near = cut(text, known, length=EXCERPT_LENGTH, passage=line)
    assert 150 < near.text.index("the spare one") < 300
    more = cut(text, Matcher.of("keys van").knowing({"keys", "van"}), length=EXCERPT_LENGTH, passage=line)
    assert "keys of the van" in more.text and "spare" not in more.text


def test_words_are_marked_whole_only_when_they_are_known_to_match():
    excerpt = excerpt_of("They parsed parsley while parsing.", "parse it", words={"parsed", "parsing"})
    assert marked(excerpt) == ["parsed", "parsing"]


def test_the_query_itself_is_marked_in_any_case_even_inside_a_word():
    assert marked(excerpt_of("EDUCATION for cats", "cat")) == ["CAT", "cat"]


def test_a_query_of_several_words_is_found_across_a_line_break():
    assert marked(excerpt_of("We ate at Sakura\n Sushi.", "sakura sushi")) == ["Sakura\n Sushi"]


@pytest.mark.parametrize("query", ["100%", "a_b", "it's", '"quoted"', "\\d+", "(x", "[a-z]", "a.b", "🐈", "寿司", "$^"])
def test_every_character_of_a_query_is_plain(query):
    assert marked(excerpt_of(f"before {query} after, 100x aXb d a-b", query)) == [query]


def test_each_piece_of_a_script_without_spaces_is_marked():
    assert marked(excerpt_of("昨日は渋谷で寿司を食べた", "寿司 渋谷")) == ["渋谷", "寿司"]


def test_of_a_script_without_spaces_what_two_texts_share_is_marked_though_they_differ_between():
    assert marked(excerpt_of("来週は東京都美術館に行きます", "東京の美術館")) == ["東京", "美術館"]


@pytest.mark.parametrize("query", ['order "XK-20449-B"', "where is XK-20449-B?", "xk-20449-b"])
def test_a_number_with_marks_in_it_is_marked_whole(query):
    assert marked(excerpt_of("My order XK-20449-B arrived", query)) == ["XK-20449-B"]


def test_candidates_are_the_words_that_begin_like_the_querys():
    matcher = Matcher.of("Migrating cities")
    found = matcher.candidates(["The migration of a City; immigration, MIGRATE!"])
    assert found == {"migration", "city", "migrate"}
    assert matcher.candidates(["Citizens"]) == {"citizens"}


def test_a_query_longer_than_any_excerpt_is_marked_as_far_as_it_is_shown():
    query = LOREM.strip()
    excerpt = excerpt_of(f"{LOREM} {LOREM}", query)
    assert len(excerpt.text) <= 500
    assert excerpt.highlights


@pytest.mark.parametrize("cluster", ["e\u0301", "👩\u200d👩\u200d👧", "👍🏽", "🇯🇵", "ก\u0e49"])
@pytest.mark.parametrize("offset", range(7))
def test_no_character_is_parted_from_what_completes_it(cluster, offset):
    text = "x" * offset + cluster * 400
    shown = excerpt_of(text, "nothing").text.rstrip("…")
    assert len(shown) > 450
    assert (len(shown) - offset) % len(cluster) == 0
    around = excerpt_of("x" * offset + cluster * 400 + "sushi" + cluster * 400, "sushi").text
    left, right = around.strip("…").split("sushi")
    assert len(left) % len(cluster) == len(right) % len(cluster) == 0


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_text_the_excerpt_is_of_it_and_within_its_length(seed):
    dice = random.Random(seed)
    alphabet = ["sushi", "Sushi", "\n", " ", "e\u0301", "寿司", "🇯🇵", "word", ".", "\t", "x" * 40]
    text = "".join(dice.choice(alphabet) for _ in range(dice.randint(1, 400)))
    length = dice.randint(20, 500)
    excerpt = excerpt_of(text, "sushi", length=length)
    assert len(excerpt.text) <= length
    assert excerpt.text.strip("…").strip() in text
    assert all(part.lower() == "sushi" or set(part.lower()) <= set("sushi") for part in marked(excerpt))
    assert ("sushi" not in text.lower()) == (excerpt.highlights == [])
    flat = [place for span in excerpt.highlights for place in span]
    assert flat == sorted(flat)
    assert not excerpt.text or not unicodedata.combining(excerpt.text[0])


# -- Several parts ----------------------------------------------------------------------------------------------------


def test_only_the_sides_of_a_turn_that_match_are_shown():
    matcher = Matcher.of("sushi")
    parts = [Segment("I love sushi", before="User: "), Segment("Noted.", before="Assistant: ")]
    shown, pieces = show(matching(parts, matcher), matcher)
    assert shown.text == "User: I love sushi"
    assert marked(shown) == ["sushi"]
    assert own_words(pieces) == "I love sushi"


def test_both_sides_that_match_share_the_room():
    matcher = Matcher.of("sushi")
    parts = [Segment(f"sushi {LOREM}", before="User: "), Segment(f"{LOREM} sushi", before="Assistant: ")]
    shown, _ = show(matching(parts, matcher), matcher)
    assert 450 < len(shown.text) <= 500
    user, assistant = shown.text.split("\n")
    assert user.startswith("User: sushi lorem")
    assert assistant.startswith("Assistant: …") and assistant.endswith("sushi")
    assert marked(shown) == ["sushi", "sushi"]


def test_a_short_side_leaves_its_room_to_the_other():
    matcher = Matcher.of("sushi")
    shown, _ = show([Segment("sushi?", before="User: "), Segment(f"sushi {LOREM}", before="Assistant: ")], matcher)
    assert 470 < len(shown.text) <= 500


def test_when_neither_side_matches_both_are_shown_but_none_that_is_blank():
    matcher = Matcher.of("sushi")
    assert len(matching([Segment("raw fish"), Segment("Noted.")], matcher)) == 2
    assert matching([Segment("raw fish"), Segment("  ")], matcher) == [Segment("raw fish")]


def test_nothing_is_marked_in_words_of_ours():
    matcher = Matcher.of("user")
    shown, _ = show([Segment("A user of it", before="User: ", after=" (user)")], matcher)
    assert shown.text == "User: A user of it (user)"
    assert shown.highlights == [(8, 12)]


def lines_of(*places, count=20):
    """An excerpt of numbered lines, in which the words at these places match."""
    text = "\n".join(f"line {'sushi' if place in places else 'bread'} {place}" for place in range(count))
    return excerpt_of(text, "sushi")


@pytest.mark.parametrize(
    ("places", "first", "last"),
    [
        ((), 0, 7),
        ((3,), 0, 7),
        (range(20), 0, 7),
        ((12,), 9, 16),
        ((19,), 12, 19),
        ((10, 13), 8, 15),
        ((0, 12, 13), 9, 16),
    ],
)
def test_of_many_short_lines_those_with_the_matches_are_shown(places, first, last):
    whole = lines_of(*places)
    shown = within_lines(whole, 8)
    before, after = "…" if first else "", "…" if last < 19 else ""
    assert shown.text == before + "\n".join(whole.text.split("\n")[first : last + 1]) + after
    assert set(marked(shown)) == ({"sushi"} if set(places) & set(range(first, last + 1)) else set())


def test_blank_lines_are_not_counted_and_none_is_the_last():
    whole = excerpt_of("a\n\n \nb\n\nc\nd", "x")
    assert within_lines(whole, 4) is whole
    assert [within_lines(whole, most).text for most in (1, 2, 3)] == ["a…", "a\n\n \nb…", "a\n\n \nb\n\nc…"]


def test_few_lines_are_shown_as_they_are_and_a_match_over_a_break_as_far_as_it_is_shown():
    few = lines_of(2, count=8)
    assert within_lines(few, 8) is few
    over_a_break = excerpt_of("a\n" * 8 + "rye\nbread\n" + "b\n" * 8, "rye bread")
    assert marked(within_lines(over_a_break, 1)) in (["rye"], ["bread"])
