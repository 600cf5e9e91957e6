from datetime import timedelta

import pytest

from intake.models import User
from memory.index import health
from memory.index.health import EmbeddingRate, Quantity, index_health
from memory.models import Corpus, Embedding
from memory.tests.rows import NOW, add_failed, add_quarantined, add_row, model_named

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return User.objects.create_user("alice@example.org")


def test_an_empty_index_is_healthy():
    found = index_health(now=NOW)

    assert (found.waiting, found.failed, found.quarantined) == (Quantity(0), Quantity(0), Quantity(0))
    assert found.due_since is None
    assert found.last_hour.per_minute == 0
    assert found.errors == ()


def test_each_state_is_counted_and_what_failed_before_still_waits(alice):
    add_row(alice, vector=[1, 0, 0])
    add_row(alice)
    add_row(alice)
    add_failed(alice)
    add_quarantined(alice)

    found = index_health(now=NOW)

    assert (found.waiting, found.failed, found.quarantined) == (Quantity(3), Quantity(1), Quantity(1))


def test_the_longest_wait_is_that_of_the_row_which_could_have_been_worked_on_first(alice):
    add_row(alice, next_attempt_at=NOW - timedelta(minutes=3))
    add_row(alice, next_attempt_at=NOW - timedelta(minutes=9))
    add_quarantined(alice, next_attempt_at=NOW - timedelta(days=9))

    assert index_health(now=NOW).due_since == NOW - timedelta(minutes=9)


def test_a_row_that_is_to_be_tried_later_is_not_overdue(alice):
    add_row(alice, next_attempt_at=NOW + timedelta(minutes=1))

    assert index_health(now=NOW).due_since is None


def test_the_rate_counts_what_was_embedded_within_the_window(alice):
    for seconds in (10, 20, 70, 3000, 4000):
        add_row(alice, vector=[1, 0, 0], embedded_at=NOW - timedelta(seconds=seconds))

    found = index_health(now=NOW)

    assert found.last_minute == EmbeddingRate(vectors=2, seconds=60)
    assert found.last_hour == EmbeddingRate(vectors=4, seconds=3600)
    assert found.last_minute.per_minute == 2


def test_a_rate_beyond_the_cap_is_taken_over_the_time_that_the_latest_vectors_took(alice, monkeypatch):
    monkeypatch.setattr(health, "CAP", 3)
    for seconds in (10, 20, 30, 40):
        add_row(alice, vector=[1, 0, 0], embedded_at=NOW - timedelta(seconds=seconds))

    assert index_health(now=NOW).last_hour == EmbeddingRate(vectors=3, seconds=30)


def test_figures_are_given_by_model_and_by_corpus(alice):
    add_row(alice, vector=[1, 0, 0], model=model_named("old"))
    add_row(alice, model=model_named("new"))
    add_quarantined(alice, model=model_named("new"))

    found = index_health(now=NOW)

    shares = {share.name: (str(share.embedded), str(share.waiting), str(share.quarantined)) for share in found.by_model}
    assert shares == {"old": ("1", "0", "0"), "new": ("0", "1", "1")}
    chat = next(share for share in found.by_corpus if share.name == "Chat")
    assert (str(chat.embedded), str(chat.waiting)) == ("1", "1")


def test_errors_are_grouped_the_commonest_first(alice):
    add_failed(alice, "The model is away.")
    add_failed(alice, "The model is away.")
    add_quarantined(alice, "ValueError")
    add_quarantined(alice, "")

    errors = [(error, rows.value) for error, rows in index_health(now=NOW).errors]

    assert errors[0] == ("The model is away.", 2)
    assert sorted(errors[1:]) == [("The worker died", 1), ("ValueError", 1)]


def test_counting_stops_at_the_cap_and_says_so(alice, monkeypatch):
    monkeypatch.setattr(health, "CAP", 2)
    for _ in range(4):
        add_failed(alice)

    found = index_health(now=NOW)

    assert found.waiting == Quantity(2, "at least")
    assert found.by_model[0].waiting == Quantity(2, "at least")
    assert found.errors[0][1].precision == "at least"


def test_a_large_number_is_estimated_without_reading_rows(alice, django_assert_num_queries):
    with django_assert_num_queries(1) as queries:
        estimate = health.estimated_count(Embedding.objects.all())

    assert estimate >= 1
    assert queries[0]["sql"].startswith("EXPLAIN")


@pytest.mark.parametrize(
    ("quantity", "words"),
    [
        (Quantity(7), "7"),
        (Quantity(1234), "1,234"),
        (Quantity(10_000, "at least"), "10,000+"),
        (Quantity(979_812, "about"), "about 980,000"),
    ],
)
def test_a_quantity_says_how_exactly_it_is_known(quantity, words):
    assert str(quantity) == words


def test_the_number_of_queries_grows_with_models_and_corpora_and_not_with_rows(alice, django_assert_max_num_queries):
    for _ in range(30):
        add_row(alice)

    with django_assert_max_num_queries(12 + 2 * len(Corpus)):
        index_health(now=NOW)
