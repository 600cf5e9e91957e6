import re
from collections import Counter
from itertools import chain

import numpy as np

from evals import synthetic

TURNS = list(synthetic.turns(1000, seed=7))


def test_the_same_seed_says_the_same_and_another_something_else():
    assert list(synthetic.turns(1000, seed=7)) == TURNS
    assert list(synthetic.turns(1000, seed=8)) != TURNS


def test_there_are_as_many_as_were_asked_for():
    assert len(TURNS) == 1000
    assert len(list(synthetic.turns(3))) == 3
    assert list(synthetic.turns(0)) == []


def test_lengths_are_those_of_real_turns():
    messages = [len(turn.user_message) for turn in TURNS]
    answers = [len(turn.assistant_message) for turn in TURNS]

    assert 130 < np.median(messages) < 180
    assert 1_100 < np.median(answers) < 1_350
    assert 3_500 < np.percentile(answers, 95) < 6_000
    assert 7_000 < max(answers) < 8_200


def test_words_follow_zipfs_law():
    said = chain.from_iterable(re.findall(r"[a-z]+", turn.assistant_message.lower()) for turn in TURNS)
    counts = [count for _, count in Counter(said).most_common()]

    # Word 10 comes some 8 times as often as word 100, and most words come seldom.
    assert 5 < counts[9] / counts[99] < 12
    assert sum(count <= 3 for count in counts) > len(counts) / 4


def test_queries_are_short_and_differ():
    asked = synthetic.queries(50)

    assert len(set(asked)) == 50
    assert asked == synthetic.queries(50)
    assert all(len(query.split()) == 5 and query.endswith("?") for query in asked)
