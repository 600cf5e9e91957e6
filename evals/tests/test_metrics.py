import math

import pytest

from evals import metrics

RANKED = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]


def test_recall_is_the_share_of_gold_among_the_first_k():
    gold = ["b", "f", "z", "y"]

    assert metrics.recall(RANKED, gold, k=1) == 0
    assert metrics.recall(RANKED, gold, k=5) == 0.25
    assert metrics.recall(RANKED, gold, k=10) == 0.5


def test_recall_counts_the_kth_and_not_the_one_after_it():
    assert metrics.recall(RANKED, ["e"], k=5) == 1
    assert metrics.recall(RANKED, ["f"], k=5) == 0


def test_gold_named_twice_counts_once():
    assert metrics.recall(RANKED, ["a", "a", "z"], k=5) == 0.5


def test_all_asks_for_every_gold_item():
    assert metrics.has_all(RANKED, ["a", "e"], k=5) == 1
    assert metrics.has_all(RANKED, ["a", "f"], k=5) == 0
    assert metrics.has_all(RANKED, ["a", "f"], k=10) == 1


def test_reciprocal_rank_is_that_of_the_first_hit():
    assert metrics.reciprocal_rank(RANKED, ["d", "b"]) == 1 / 2
    assert metrics.reciprocal_rank(RANKED, ["z"]) == 0
    assert metrics.reciprocal_rank([], ["z"]) == 0


def test_ndcg_by_hand():
    # Hits at ranks 2 and 4 of three: (1/log2(3) + 1/log2(5)) / (1 + 1/log2(3) + 1/2) = 1.0616 / 2.1309.
    assert metrics.ndcg(RANKED, ["b", "d", "z"], k=10) == pytest.approx(0.498189, abs=1e-6)


def test_ndcg_is_one_for_the_best_order_even_with_more_gold_than_places():
    assert metrics.ndcg(RANKED, RANKED, k=10) == pytest.approx(1)
    assert metrics.ndcg(RANKED, ["a", "b"], k=10) == pytest.approx(1)


def test_ndcg_leaves_out_what_stands_beyond_its_cutoff():
    assert metrics.ndcg(RANKED, ["k"], k=10) == 0


def test_a_query_has_every_metric_of_the_contract():
    assert metrics.score(RANKED, ["b", "z"]) == {
        "recall@1": 0.0,
        "recall@5": 0.5,
        "recall@10": 0.5,
        "recall@25": 0.5,
        "all@5": 0.0,
        "all@10": 0.0,
        "mrr": 0.5,
        "ndcg@10": pytest.approx((1 / math.log2(3)) / (1 + 1 / math.log2(3))),
    }


def test_the_mean_is_over_queries():
    found, missed = metrics.score(["a"], ["a"]), metrics.score(["b"], ["a"])

    assert metrics.mean([found, found, found, missed])["mrr"] == 0.75
    assert metrics.mean([]) == {}


def test_one_persons_interval_is_a_point():
    mixed = [metrics.score(["a"], ["a"]), metrics.score(["b"], ["a"])]

    assert metrics.confidence_intervals({"alice": mixed})["recall@1"] == (0.5, 0.5)


def test_an_interval_holds_the_mean_and_is_the_same_every_time():
    by_person = {
        f"person {n}": [metrics.score(["a"] if query < n else ["b"], ["a"]) for query in range(10)] for n in range(10)
    }

    low, high = metrics.confidence_intervals(by_person)["recall@1"]

    assert 0.2 < low < 0.45 < high < 0.7
    assert metrics.confidence_intervals(by_person)["recall@1"] == (low, high)


def test_people_are_drawn_with_all_of_their_queries():
    # One person with 99 hits and one with a single miss: whoever is drawn twice decides.
    by_person = {"alice": [metrics.score(["a"], ["a"])] * 99, "bob": [metrics.score(["b"], ["a"])]}

    assert metrics.confidence_intervals(by_person)["mrr"] == (0.0, 1.0)
