"""The layout of a map: alike texts lie together, inside the square, and the same vectors always at the same places."""

import numpy as np
import pytest

from memory.models.embeddings import SIDE
from memory.overview.layout import Layout, on_the_map
from memory.tests.vectors import directions


def topics(count, *, of, seed=3):
    """So many vectors around each of some directions, and which direction each is of."""
    numbers = np.arange(count * of) % of
    vectors = directions(of, seed=seed)[numbers] + 0.6 * directions(count * of, seed=seed + 1)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), numbers


def places_by(vectors):
    layout = Layout.of(vectors)
    layout = layout.fitted(layout.place(layout.reduce(vectors)))
    return layout, on_the_map(layout.place(layout.reduce(vectors)))


def test_alike_texts_lie_together():
    vectors, numbers = topics(40, of=5)
    _, places = places_by(vectors)
    centres = np.array([places[numbers == topic].mean(axis=0) for topic in range(5)])
    nearest = np.linalg.norm(places[:, None] - centres[None], axis=2).argmin(axis=1)
    assert (nearest == numbers).mean() > 0.9


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_few_or_equal_texts_lie_inside_the_square(count):
    for vectors in (directions(count, seed=1), np.repeat(directions(1, seed=1), count, axis=0)):
        _, places = places_by(vectors)
        assert np.isfinite(places).all()
        assert places.min() >= 0 and places.max() <= SIDE


def test_the_same_vectors_lie_at_the_same_places_also_by_a_layout_that_was_stored():
    vectors, _ = topics(30, of=4)
    layout, places = places_by(vectors)
    assert (places_by(vectors)[1] == places).all()
    stored = Layout.parse(layout.write())
    assert (on_the_map(stored.place(stored.reduce(vectors))) == places).all()


def test_a_later_layout_of_nearly_the_same_texts_is_no_mirror_image():
    vectors, _ = topics(30, of=6)
    before, after = Layout.of(vectors[:-1]), Layout.of(np.concatenate([vectors, directions(2, seed=9)]))
    assert (np.einsum("ij,ij->i", before.axes[:2], after.axes[:2]) > 0.9).all()
