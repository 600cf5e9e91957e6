"""Fusing both retrievers: what each of the few rules is for, in numbers small enough to follow."""

import subprocess
import sys

import pytest

from intake.tests.factories import NOW
from memory.backends.embedders import TUNED
from memory.models import Corpus
from memory.models.documents import Hit
from memory.search.fusion import fuse

A, B = "a", "b"
REMARK, PAGE = 5, 1000
UNRELATED = 1.0


def scores(*hits, ideal=10.0):
    fused = fuse(hits, ideal=ideal, unrelated=UNRELATED, calibration=TUNED)
    return {hit.key: hit.relevance for hit in fused}


def ranking(*hits, ideal=10.0):
    return list(scores(*hits, ideal=ideal))


def candidate(place, *, source=A, length=PAGE, **figures):
    return Hit((source, place), Corpus.CHAT, NOW, length=length, **figures)


def test_nothing_fuses_to_nothing():
    assert scores() == {}


def test_what_is_best_in_both_retrievers_comes_first_and_is_likely_what_was_wanted():
    best = candidate(1, lexical=9.0, user_lexical=9.0, distance=0.2, user_distance=0.2)
    other = candidate(3, lexical=3.0, user_lexical=3.0, distance=0.6, user_distance=0.6)
    found = scores(other, best)
    assert list(found) == [best.key, other.key]
    assert found[best.key] > 0.9
    assert 0 < found[other.key] < 0.2


def test_terms_count_as_far_as_the_best_text_has_what_the_query_asks_for():
    """A question in other words than were used: a few common terms must not hide what is near in meaning."""
    incidental = candidate(1, lexical=4.0, user_lexical=4.0, distance=0.75)
    alike = candidate(3, lexical=2.0, user_lexical=2.0, distance=0.45)
    crowd = [candidate(place, lexical=3.9, user_lexical=3.9, distance=0.8) for place in range(5, 20, 2)]
    assert ranking(incidental, alike, *crowd, ideal=40.0)[0] == alike.key
    named = [candidate(place, lexical=1.0, distance=0.8) for place in range(5, 20, 2)]
    assert ranking(incidental._replace(lexical=9.0), alike, *named, ideal=10.0)[0] == incidental.key


def test_a_faint_likeness_in_terms_does_not_beat_the_nearest_however_far_it_leads():
    faint, nearest = candidate(1, lexical=0.6, distance=0.7), candidate(3, distance=0.5)
    others = [candidate(place, distance=0.85) for place in range(10, 20, 2)]
    assert ranking(faint, nearest, *others, ideal=30.0)[0] == nearest.key
    assert ranking(faint._replace(lexical=20.0), nearest, *others, ideal=30.0)[0] == faint.key


def test_a_candidate_that_is_good_in_both_legs_beats_one_that_is_best_in_either():
    by_words = candidate(1, lexical=10.0, user_lexical=10.0, distance=0.9)
    by_meaning = candidate(3, distance=0.2)
    both = candidate(5, lexical=8.0, user_lexical=8.0, distance=0.3)
    assert ranking(by_words, by_meaning, both)[0] == both.key


def test_how_much_better_matters_and_not_only_which_is_better():
    """Ranks would tie these: each is first in one leg and second in the other."""
    far_ahead = candidate(1, lexical=10.0, user_lexical=10.0, distance=0.41)
    barely_ahead = candidate(3, lexical=1.0, user_lexical=1.0, distance=0.40)
    assert ranking(far_ahead, barely_ahead) == [far_ahead.key, barely_ahead.key]


def test_without_any_words_the_order_is_that_of_the_distances():
    near, far = candidate(1, distance=0.3), candidate(3, distance=0.5)
    assert ranking(far, near) == [near.key, far.key]


def test_without_any_vector_the_order_is_that_of_the_words():
    many, few = candidate(1, lexical=4.0, user_lexical=4.0), candidate(3, lexical=2.0, user_lexical=2.0)
    assert ranking(few, many) == [many.key, few.key]


def test_waiting_for_a_vector_costs_a_turn_nothing():
    waiting = candidate(1, lexical=10.0, user_lexical=10.0)
    embedded = candidate(3, lexical=9.0, user_lexical=9.0, distance=0.5)
    unlike = candidate(5, lexical=1.0, user_lexical=1.0, distance=0.3)
    assert ranking(unlike, embedded, waiting).index(waiting.key) < 2


def test_being_farther_than_the_unrelated_is_no_worse_than_being_unrelated():
    near = candidate(1, distance=0.3)
    unrelated, opposite = candidate(3, distance=1.0), candidate(5, distance=1.6)
    assert scores(near, unrelated, opposite)[opposite.key] == scores(near, unrelated, opposite)[unrelated.key]


def test_beside_a_long_answer_the_persons_own_words_count_again():
    asked = candidate(1, lexical=5.0, user_lexical=5.0, distance=0.4, user_distance=0.4)
    answered = candidate(3, lexical=5.0, user_lexical=0.0, distance=0.4, user_distance=0.8)
    assert ranking(answered, asked) == [asked.key, answered.key]


def test_between_two_short_sides_it_does_not_matter_who_said_it():
    asked = candidate(1, length=REMARK, lexical=5.0, user_lexical=5.0, distance=0.4)
    answered = candidate(3, length=REMARK, lexical=5.0, user_lexical=0.0, distance=0.4)
    found = scores(answered, asked)
    assert found[asked.key] == pytest.approx(found[answered.key], rel=0.01)


def test_a_remark_is_not_hidden_by_pages_that_are_a_little_farther():
    remark = candidate(1, length=20, distance=0.60)
    pages = [candidate(place, length=300, distance=0.68, user_distance=0.8) for place in range(3, 20, 2)]
    assert ranking(*pages, remark)[0] == remark.key


def test_a_text_of_more_than_enough_terms_is_no_likelier_for_being_longer():
    page = candidate(1, lexical=3.0, user_lexical=3.0, distance=0.4)
    book = candidate(3, length=100 * PAGE, lexical=3.0, user_lexical=3.0, distance=0.4)
    found = scores(page, book)
    assert found[book.key] == pytest.approx(found[page.key], rel=0.02)
    word = candidate(5, length=1, lexical=3.0, user_lexical=3.0, distance=0.4)
    assert ranking(word, page)[0] == page.key


def test_a_remark_leans_on_the_turns_around_it():
    hit = candidate(4, lexical=5.0, user_lexical=5.0, distance=0.2)
    beside, elsewhere = candidate(5, length=REMARK, distance=0.6), candidate(9, length=REMARK, distance=0.6)
    assert ranking(elsewhere, beside, hit) == [hit.key, beside.key, elsewhere.key]


def test_a_page_leans_on_nothing():
    hit = candidate(4, lexical=5.0, user_lexical=5.0, distance=0.2)
    beside, elsewhere = candidate(5, distance=0.6), candidate(9, distance=0.6)
    found = scores(elsewhere, beside, hit)
    assert found[beside.key] == pytest.approx(found[elsewhere.key], abs=0.01)


def test_the_turns_of_another_conversation_are_no_neighbours():
    hit = candidate(4, source=B, lexical=5.0, user_lexical=5.0, distance=0.2)
    found = scores(hit, candidate(5, length=REMARK, distance=0.6), candidate(9, length=REMARK, distance=0.6))
    assert found[A, 5] == found[A, 9]


def test_equals_come_in_one_order_whatever_order_they_arrive_in():
    equal = [candidate(place, distance=0.4) for place in (7, 3, 5)]
    assert ranking(*equal) == ranking(*reversed(equal)) == [(A, 3), (A, 5), (A, 7)]


def test_the_arithmetic_needs_no_django():
    code = (
        "import sys, importlib.util as u; s = u.spec_from_file_location('f', 'memory/search/fusion.py'); "
        "m = sys.modules['f'] = u.module_from_spec(s); s.loader.exec_module(m); assert 'django' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
