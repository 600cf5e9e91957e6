"""The ranking of `search_history`: each source by its best, weighted, decayed, sorted; and what repeats a better one."""

import random
from datetime import UTC, datetime, timedelta
from math import exp, log

import pytest

from core.ids import uuid7
from intake.tests.factories import a_person, a_turn
from memory import records
from memory.models import Corpus
from memory.models.documents import Hit
from memory.search.echoes import discounted
from memory.search.fusion import SHARPNESS, Fingerprint, decay, rank
from memory.search.history import HistoryRequest, search_history
from memory.search.sources import HistoryScope, Kind

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WEIGHTS = {"memory": 1.0, "messages": 0.6, "sessions": 0.5}


def a_hit(source, relevance, at=NOW, **figures):
    return Hit((uuid7(), 1), Corpus.CHAT, at, source=source, relevance=relevance, **figures)


def scores(*hits, rate=0.0, weights=WEIGHTS):
    """By hit as it was put in."""
    by_key = {hit.key: hit for hit in hits}
    return {by_key[hit.key]: hit.score for hit in rank(hits, weights=weights, rate=rate, now=NOW)}


def test_source_weights_are_applied_memory_1_messages_0_6_sessions_0_5():
    memory, message, session = a_hit("memory", 0.7), a_hit("messages", 0.4), a_hit("sessions", 0.5)
    assert scores(message, session, memory) == {memory: 1.0, message: 0.6, session: 0.5}


def test_the_relevances_of_a_source_are_divided_by_its_best():
    best, other = a_hit("messages", 0.8), a_hit("messages", 0.2)
    assert scores(best, other) == {best: 0.6, other: pytest.approx(0.6 * 0.25**SHARPNESS)}


def test_the_printed_score_is_relevance_by_best_times_weight_times_decay():
    best, other, exact = (
        a_hit("messages", 0.8),
        a_hit("messages", 0.7, NOW - timedelta(days=10)),
        a_hit("sessions", 0.8),
    )
    ranked = rank([best, other, exact._replace(is_exact=True)], weights=WEIGHTS, rate=0.01, now=NOW)
    printed = {hit.key: hit.printed for hit in ranked}
    assert printed == {best.key: 0.6, other.key: pytest.approx(0.7 / 0.8 * 0.6 * exp(-0.1)), exact.key: 0.5}


def test_a_source_that_has_nothing_relevant_gets_no_1():
    message, note = a_hit("messages", 0.8), a_hit("memory", 0.1)
    assert scores(message, note) == {message: 0.6, note: pytest.approx(0.25**SHARPNESS)}


def test_a_source_whose_relevances_are_all_0_divides_by_nothing():
    hit = a_hit("messages", 0.0)
    assert scores(hit) == {hit: 0.0}


def test_an_exact_match_is_above_all_that_are_not_however_old_it_is_and_whatever_its_source():
    old = a_hit("sessions", 0.1, NOW - timedelta(days=900), is_exact=True)
    new = [a_hit("memory", 0.9), a_hit("messages", 0.9)]
    ranked = rank([*new, old], weights=WEIGHTS, rate=0.01, now=NOW)
    assert ranked[0].key == old.key
    assert all(0 <= each.score <= 1 for each in ranked)


def test_exact_matches_are_weighted_and_aged_among_themselves():
    old, new = (a_hit("messages", 0.5, NOW - timedelta(days=days), is_exact=True) for days in (70, 0))
    assert scores(old, new, rate=0.01) == {new: 0.6, old: pytest.approx(0.6 * exp(-0.7))}


def test_what_alone_has_one_of_the_querys_terms_does_not_age_among_what_has_not():
    old, new = a_hit("messages", 0.5, NOW - timedelta(days=300), has_only=True), a_hit("messages", 0.4)
    assert list(scores(new, old, rate=0.01)) == [old, new]
    assert scores(old, rate=0.01)[old] < 0.6


def test_age_alone_puts_nothing_below_what_is_half_as_relevant():
    old, half, new = a_hit("messages", 0.8, NOW - timedelta(days=900)), a_hit("messages", 0.39), a_hit("messages", 0.5)
    assert list(scores(old, half, new, rate=0.01)) == [new, old, half]


def test_results_are_sorted_by_score_descending_and_of_equals_the_first_stays_first():
    hits = [a_hit("memory", 1.0, NOW - timedelta(days=days)) for days in (5, 1, 3)]
    twins = [a_hit("messages", 1.0), a_hit("messages", 1.0)]
    ranked = rank([*hits, *twins], weights=WEIGHTS, rate=0.01, now=NOW)
    assert [each.score for each in ranked] == sorted((each.score for each in ranked), reverse=True)
    assert [hit.key for hit in ranked if hit.source == "messages"] == [twin.key for twin in twins]


def test_a_result_counts_half_after_69_days():
    assert decay(NOW - timedelta(days=log(2) / 0.01), now=NOW, rate=0.01) == pytest.approx(0.5)
    assert decay(NOW - timedelta(days=10), now=NOW, rate=0.01) == pytest.approx(exp(-0.1))


def test_a_rate_of_0_turns_the_decay_off():
    assert decay(NOW - timedelta(days=9000), now=NOW, rate=0.0) == 1.0


def test_what_is_dated_ahead_of_now_is_not_younger_than_now():
    assert decay(NOW + timedelta(days=30), now=NOW, rate=0.01) == 1.0


def test_an_age_is_counted_across_time_zones():
    from zoneinfo import ZoneInfo

    tokyo = (NOW - timedelta(days=1)).astimezone(ZoneInfo("Asia/Tokyo"))
    assert decay(tokyo, now=NOW, rate=0.01) == pytest.approx(exp(-0.01))


@pytest.mark.parametrize("seed", range(20))
def test_every_hit_comes_once_with_a_score_from_0_to_the_weight_of_its_source(seed):
    dice = random.Random(seed)
    hits = [
        a_hit(dice.choice(list(WEIGHTS)), dice.random(), NOW - timedelta(days=dice.random() * 400)) for _ in range(40)
    ]
    ranked = rank(hits, weights=WEIGHTS, rate=0.01, now=NOW)
    assert all(0 <= hit.score <= WEIGHTS[hit.source] for hit in ranked)
    assert sorted(hits) == sorted(hit._replace(score=0.0, printed=0.0) for hit in ranked)


# -- Overlap ----------------------------------------------------------------------------------------------------------


def overlap(worse, better):
    return Fingerprint.of(worse).share_in(Fingerprint.of(better))


TEN_WORDS = "we had dinner at sakura sushi in shibuya last tuesday"


def test_a_text_overlaps_itself_whole():
    assert overlap(TEN_WORDS, TEN_WORDS) == 1.0


def test_case_punctuation_width_and_line_breaks_make_no_difference():
    assert (
        overlap("We had dinner,\nat \uff33\uff21\uff2b\uff35\uff32\uff21 Sushi!", "we had dinner at sakura sushi")
        == 1.0
    )


def test_a_changed_word_costs_itself_and_no_more():
    assert overlap(TEN_WORDS, TEN_WORDS.replace("dinner", "supper")) == pytest.approx(0.7)
    assert overlap(TEN_WORDS, TEN_WORDS.replace("tuesday", "friday")) == 0.9


def test_a_passage_copied_into_a_longer_text_is_in_it_and_the_longer_text_is_not_in_the_passage():
    longer = f"Notes of the week. {TEN_WORDS}. The bill was high, and the train home was late again."
    assert overlap(TEN_WORDS, longer) == 1.0
    assert overlap(longer, TEN_WORDS) < 0.5


def test_common_words_in_another_order_are_no_overlap():
    assert overlap("is it the one that we had", "that one had it we is the") == 0.0


def test_a_text_of_two_words_overlaps_with_its_equal_alone():
    assert overlap("Sakura Sushi", "sakura sushi!") == 1.0
    assert overlap("Sakura Sushi", "we ate at sakura sushi") == 0.0


def test_another_number_is_another_fact():
    assert overlap("the flight to lisbon leaves at gate 14", "the flight to lisbon leaves at gate 15") == 0.0
    assert overlap("the flight to lisbon leaves soon", "at 12:03 the flight to lisbon leaves soon") == 1.0


def test_scripts_without_spaces_are_compared_by_the_character():
    assert overlap("我昨天在涉谷吃了寿司", "我昨天在涉谷吃了寿司和拉面") == 1.0
    assert overlap("我昨天在涉谷吃了寿司", "明天我们去看电影吧好不好呢") == 0.0
    assert overlap("昨日は渋谷で寿司を食べた", "昨日は渋谷で寿司を食べました") > 0.8


@pytest.mark.parametrize("text", ["", "   ", "🐈", "!!!"])
def test_texts_without_words_are_compared_by_what_they_have(text):
    assert overlap(text, text) == 1.0
    assert overlap(text, "we had dinner") == 0.0
    assert overlap("we had dinner", text) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_an_overlap_is_a_share_and_grows_with_what_is_copied(seed):
    dice = random.Random(seed)
    words = [dice.choice("abcdefghijklmnop") * dice.randint(1, 3) for _ in range(60)]
    other = [f"x{number}" for number in range(60)]
    shares = [
        overlap(" ".join(words), " ".join(words[:kept] + ["y"] + words[kept:kept] + ["z"] * 20))
        for kept in range(0, 61, 10)
    ]
    assert all(0 <= share <= 1 for share in shares)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert overlap(" ".join(words), " ".join(other)) == 0.0


def test_a_text_that_is_a_fifth_more_relevant_outweighs_two_months_of_age_and_one_as_relevant_does_not():
    old, new = a_hit("messages", 0.72, NOW - timedelta(days=60)), a_hit("messages", 0.7)
    unlike = a_hit("messages", 0.6)
    by_score = sorted(scores(old, new, unlike, rate=0.01).items(), key=lambda pair: -pair[1])
    assert [hit for hit, _ in by_score] == [new, old, unlike]


# -- Of two that say the same the newer -------------------------------------------------------------------------------

KEPT = "We take the oak worktop for the kitchen, 40 mm thick, from the sawmill in Baarn."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("newer", "are_shown"),
    [(KEPT.upper(), [KEPT.upper()]), ("We take the oak worktop, 40 mm thick.", ["We take the oak worktop, 40 mm thick.", KEPT])],
)  # fmt: skip
@pytest.mark.parametrize("is_record", [True, False])
def test_of_two_that_say_the_same_the_newer_is_shown_and_the_other_if_it_says_more(newer, are_shown, is_record):
    person = a_person()
    for days, text in ((30, KEPT), (1, newer)):
        at = NOW - timedelta(days=days)
        if is_record:
            records.create(user=person, content=text, now=at)
        else:
            a_turn(person, text, said_at=at)
    scope = HistoryScope.MEMORY if is_record else HistoryScope.ALL
    request = HistoryRequest(query="oak worktop kitchen sawmill Baarn", scope=scope)
    results = search_history(request, user=person, now=NOW).results
    shown = [each for each in results if each.reference.kind in (Kind.MEMORY, Kind.MESSAGE)]
    assert [each.excerpt.text.removeprefix("User: ") for each in shown] == are_shown
    assert [each.score for each in results] == sorted((each.score for each in results), reverse=True)


def test_a_line_that_only_names_something_counts_less_beside_one_that_says_more():
    ticked, told = (Hit((uuid7(), 1), Corpus.MEMORY, NOW, length=length, relevance=0.5) for length in (2, 3))
    said = Hit((uuid7(), 1), Corpus.CHAT, NOW, length=2, relevance=0.5)
    assert [hit.relevance for hit in discounted([ticked, told, said], {}, set())] == [0.5, 0.5, 0.5]
    told = told._replace(shares_terms=True)
    assert [hit.relevance for hit in discounted([ticked, told, said], {}, set())] == [0.5, 0.5, 0.1]


def test_relevance_decides_the_set_of_five_and_age_and_weight_the_order_in_it():
    long_ago = NOW - timedelta(days=200)
    turns = [a_hit("messages", 0.9 - number / 100, at=long_ago if number == 0 else NOW) for number in range(9)]
    notes = [a_hit("memory", 0.9), a_hit("memory", 0.85)]
    ranked = rank([*turns, *notes], weights=WEIGHTS, rate=0.01, now=NOW)
    assert {hit.key for hit in ranked[:5]} == {hit.key for hit in [notes[0], *turns[:4]]}
    assert {hit.key for hit in ranked[5:10]} == {hit.key for hit in [notes[1], *turns[4:8]]}
    # The oldest is the likeliest and stays in the first set.
    assert ranked[4].key == turns[0].key
    assert len(ranked) == 11


def test_a_note_or_title_is_in_a_set_only_if_it_is_more_relevant_than_the_turn_in_its_place():
    turns = [a_hit("messages", 0.9 - number / 100) for number in range(6)]
    titles = [a_hit("sessions", 0.95), a_hit("sessions", 0.94)]
    note = a_hit("memory", 0.5)
    ranked = rank([*turns, *titles, note], weights=WEIGHTS, rate=0.01, now=NOW)
    assert {hit.key for hit in ranked[:5]} == {hit.key for hit in [titles[0], *turns[:4]]}
    assert {hit.key for hit in ranked[5:]} == {hit.key for hit in [titles[1], *turns[4:], note]}
