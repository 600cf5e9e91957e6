"""Computes the layout of a map: from vectors to positions in a square, with numpy only, also for later texts.

1. A singular value decomposition reduces the vectors to their first principal axes.
2. K-means finds clusters among them. Their centres are placed by stress majorisation, so that distant means different,
   and moved apart until none overlap.
3. Each text is placed around its cluster's centre, by the two principal axes of that cluster, turned so that its sides
   face similar clusters.

A later text uses the same axes and its nearest cluster, so a layout is stable while it grows. Everything is
deterministic.

Sources: J. de Leeuw, Applications of Convex Analysis to Multidimensional Scaling (1977), for the stress majorisation;
D. Arthur and S. Vassilvitskii, k-means++ (2007), for the first centres.
"""

from dataclasses import dataclass, replace
from io import BytesIO
from typing import Self

import numpy as np
import numpy.typing as npt

from memory.backends.embedders import Matrix
from memory.models.embeddings import SIDE

WholeNumbers = npt.NDArray[np.int64]

MAX_AXES = 32
MAX_CLUSTERS = 40
# Clusters grow with the cube root of the texts: 3 of 10 texts, 13 of 1,000, 40 of 30,000.
CLUSTERS_PER_ROOT = 1.3
# Fewer texts do not make a cluster.
LEAST_TEXTS = 3
ITERATIONS = 25
SCALING_ITERATIONS = 120
PACKING_ITERATIONS = 400
# The gap between two clusters, as a share of their radii.
GAP = 0.08
# The maximum ratio of a cluster's length to its width.
LEAST_WIDTH = 0.62
# Half of a cluster's texts lie within this share of its radius.
REACH = 1.25
MARGIN = 0.04
SEED = 7
# Points at one place, or without any spread.
NOTHING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Axes (R, D) around `mean` (D), and K clusters: where each is among the axes (K, R), and on the map (K, 2).

    `frames` (K, 2, R) are each cluster's own two axes, in units of its spread and turned as on the map.
    """

    mean: Matrix
    axes: Matrix
    centroids: Matrix
    centres: Matrix
    radii: Matrix
    frames: Matrix

    @classmethod
    def of(cls, vectors: Matrix) -> Self:
        """The layout of at least one vector (N, D) of length 1."""
        mean = vectors.mean(axis=0)
        centred = vectors - mean
        # Of many vectors the right singular vectors are those of the covariance, which is small.
        is_many = len(vectors) > vectors.shape[1]
        _, _, axes = np.linalg.svd(centred.T @ centred if is_many else centred, full_matrices=False)
        axes = axes[:MAX_AXES].astype(np.float32)
        reduced = (vectors - mean) @ axes.T
        centroids, members = _clusters(reduced)
        sizes = np.bincount(members, minlength=len(centroids)).astype(np.float64)
        radii = np.sqrt(sizes / sizes.sum())
        centres = _apart(_scaled(centroids.astype(np.float64)), radii)
        frames = np.stack(
            [_frame(reduced[members == k] - centroids[k], centroids, centres, k) for k in range(len(centroids))]
        )
        floats = (each.astype(np.float32) for each in (centres, radii, frames))
        return cls(mean, axes, centroids, *floats)

    @classmethod
    def parse(cls, written: bytes) -> Self:
        with np.load(BytesIO(written), allow_pickle=False) as arrays:
            return cls(*(arrays[name].astype(np.float32) for name in cls.__slots__))

    def write(self) -> bytes:
        file = BytesIO()
        np.savez(file, **{name: getattr(self, name) for name in self.__slots__})
        return file.getvalue()

    def reduce(self, vectors: Matrix) -> Matrix:
        """(N, D) to (N, R)."""
        return np.asarray((vectors - self.mean) @ self.axes.T)

    def cluster(self, reduced: Matrix) -> WholeNumbers:
        """The number of the nearest cluster of each (N)."""
        return np.asarray(_squared(reduced, self.centroids).argmin(axis=1))

    def place(self, reduced: Matrix) -> Matrix:
        """The positions on the map (N, 2), in the layout's own units."""
        clusters = self.cluster(reduced)
        local = np.einsum("nij,nj->ni", self.frames[clusters], reduced - self.centroids[clusters])
        distance = np.linalg.norm(local, axis=1, keepdims=True)
        # Dense in the middle, and never outside the radius: an outlier stays with its cluster.
        pulled = REACH * (1 - np.exp(-distance / REACH)) / np.where(distance == 0, 1, distance)
        places = self.centres[clusters] + self.radii[clusters, None] * local * pulled
        return np.asarray(places, dtype=np.float32)

    def turned_towards(self, mine: Matrix, theirs: Matrix) -> Self:
        """The layout turned and mirrored so that the texts at `mine` come as near as possible to their old positions
        (N, 2).
        """
        first, _, second = np.linalg.svd((mine - mine.mean(axis=0)).T @ (theirs - theirs.mean(axis=0)))
        turn = (first @ second).T.astype(np.float32)
        return replace(self, centres=self.centres @ turn.T, frames=np.einsum("ij,kjr->kir", turn, self.frames))

    def fitted(self, places: Matrix) -> Self:
        """The layout in units of the square that contains these positions (N, 2) and each cluster."""
        corners = [places, self.centres - self.radii[:, None], self.centres + self.radii[:, None]]
        low, high = np.vstack(corners).min(axis=0), np.vstack(corners).max(axis=0)
        scale = SIDE * (1 - 2 * MARGIN) / max(float((high - low).max()), 1e-6)
        centres = (self.centres - (low + high) / 2) * scale + SIDE / 2
        return replace(self, centres=centres.astype(np.float32), radii=(self.radii * scale).astype(np.float32))


def on_the_map(places: Matrix) -> WholeNumbers:
    """Positions as they are stored: whole units, within the square."""
    return np.clip(np.rint(places), 0, SIDE).astype(np.int64)


def _squared(points: Matrix, centres: Matrix) -> Matrix:
    """Squared distances (N, K)."""
    squares: Matrix = (points**2).sum(axis=1)[:, None] - 2 * points @ centres.T + (centres**2).sum(axis=1)[None]
    return np.maximum(squares, 0)


def _clusters(points: Matrix) -> tuple[Matrix, WholeNumbers]:
    """K-means: the centroids (K, R), the largest first, and the number of each point's."""
    count = int(
        min(MAX_CLUSTERS, np.ceil(CLUSTERS_PER_ROOT * len(points) ** (1 / 3)), max(1, len(points) // LEAST_TEXTS))
    )
    centroids = _first_centroids(points, count)
    for _ in range(ITERATIONS):
        members = _squared(points, centroids).argmin(axis=1)
        sizes = np.bincount(members, minlength=len(centroids))
        kept = sizes > 0
        starts = np.cumsum(sizes) - sizes
        sums = np.add.reduceat(points[np.argsort(members, kind="stable")], starts[kept])
        centroids = (sums / sizes[kept, None]).astype(np.float32)
    members = _squared(points, centroids).argmin(axis=1)
    order = np.argsort(-np.bincount(members, minlength=len(centroids)), kind="stable")
    return centroids[order], np.argsort(order)[members]


def _first_centroids(points: Matrix, count: int) -> Matrix:
    """Each far from the earlier ones, chosen at random in proportion to the squared distance."""
    random = np.random.default_rng(SEED)
    chosen = [int(random.integers(len(points)))]
    nearest = _squared(points, points[chosen])[:, 0].astype(np.float64)
    while len(chosen) < count and nearest.sum() > 0:
        chosen.append(int(random.choice(len(points), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, _squared(points, points[chosen[-1:]])[:, 0])
    return points[chosen].copy()


def _scaled(centroids: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Positions (K, 2) whose distances are as near as possible to those of the centroids."""
    requested = np.sqrt(_squared(centroids, centroids))  # type: ignore[arg-type]  # in double precision here
    # The first two principal components: a good starting point.
    places = np.pad(centroids[:, :2], ((0, 0), (0, max(0, 2 - centroids.shape[1]))))
    for _ in range(SCALING_ITERATIONS):
        present = np.linalg.norm(places[:, None] - places[None], axis=2)
        ratio = np.divide(requested, present, out=np.zeros_like(present), where=present > NOTHING)
        guttman = -ratio
        np.fill_diagonal(guttman, ratio.sum(axis=1))
        places = guttman @ places / len(places)
    spread = np.abs(places).max() or 1.0
    return np.asarray(places / spread * 3)


def _apart(centres: npt.NDArray[np.float64], radii: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The centres, moved as little as possible so that no disks overlap, and moved together where there is room."""
    needed = (radii[:, None] + radii[None]) * (1 + GAP)
    np.fill_diagonal(needed, 0)
    for done in range(PACKING_ITERATIONS):
        if done < PACKING_ITERATIONS // 2:
            centres = centres * 0.985
        between = centres[:, None] - centres[None]
        distance = np.linalg.norm(between, axis=2)
        lacking = np.maximum(needed - distance, 0)
        # Two at one place are moved apart in a direction of their own.
        angles = np.arange(len(centres))[:, None] * 2.4 + np.arange(len(centres))[None]
        aside = np.stack([np.cos(angles), np.sin(angles)], axis=2)
        aside = aside - aside.transpose(1, 0, 2)
        at_one_place = distance < NOTHING
        direction = np.where(at_one_place[..., None], aside, between / np.where(at_one_place, 1, distance)[..., None])
        centres = centres + 0.5 * (direction * lacking[..., None]).sum(axis=1)
    return centres


def _frame(
    offsets: Matrix, centroids: Matrix, centres: npt.NDArray[np.float64], number: int
) -> npt.NDArray[np.float64]:
    """A cluster's two principal axes (2, R), in units of its spread, and turned as its neighbours lie."""
    dimensions = offsets.shape[1]
    _, sizes, axes = np.linalg.svd(offsets.T.astype(np.float64) @ offsets)
    axes = np.pad(axes[:2], ((0, max(0, 2 - dimensions)), (0, 0)))
    spreads = np.sqrt(np.pad(sizes[:2], (0, max(0, 2 - dimensions))) / len(offsets))
    if spreads[0] < NOTHING:
        spreads = np.ones(2)
    # A small spread along the second axis is not enlarged to the full width.
    spreads[1] = max(spreads[1], spreads[0] * LEAST_WIDTH / 4)
    width = np.clip(spreads[1] / spreads[0], LEAST_WIDTH, 1.0)
    scaled = axes / spreads[:, None] * np.array([[1.0], [width]])
    others = np.arange(len(centroids)) != number
    if not others.any():
        return np.asarray(scaled)
    towards = (centroids[others] - centroids[number]) @ axes.T
    lying = centres[others] - centres[number]
    near = 1 / np.maximum((lying**2).sum(axis=1, keepdims=True), 1e-9)
    first, _, second = np.linalg.svd((towards * near).T @ lying)
    return np.asarray((first @ second).T @ scaled)
