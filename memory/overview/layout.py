"""Computes the layout of a map: from vectors to positions in a square, with numpy only, also for later texts.

1. A singular value decomposition reduces the vectors to their first principal axes.
2. K-means finds clusters among them. Their centres are placed by the first two axes, and moved apart until none
   overlap and a name has room between them.
3. Each text is placed around its cluster's centre, by the two principal axes of that cluster.

A later text uses the same axes and its nearest cluster, so a layout is stable while it grows. Everything is
deterministic.

Source: D. Arthur and S. Vassilvitskii, k-means++ (2007), for the first centres.
"""

from dataclasses import dataclass, replace
from io import BytesIO
from typing import Self

import numpy as np
import numpy.typing as npt

from memory.backends.embedders import Matrix
from memory.models.embeddings import SIDE

WholeNumbers = npt.NDArray[np.int64]

# The maximum ratio of a cluster's length to its width.
LEAST_WIDTH = 0.62
# Half of a cluster's texts lie within this share of its radius.
REACH = 1.25
# Points at one place, or without any spread.
NOTHING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Axes (R, D) around `mean` (D), and K clusters: where each is among the axes (K, R), and on the map (K, 2).

    `frames` (K, 2, R) are each cluster's own two axes, in units of its spread.
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
        axes = axes[:32].astype(np.float32)
        # Either sign is right; with this one a later layout of nearly the same texts is not the mirror image.
        axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
        reduced = (vectors - mean) @ axes.T
        centroids, members = _clusters(reduced)
        sizes = np.bincount(members, minlength=len(centroids)).astype(np.float64)
        radii = np.sqrt(sizes / sizes.sum())
        # The first two axes tell the clusters apart the most.
        among = np.pad(centroids[:, :2].astype(np.float64), ((0, 0), (0, max(0, 2 - centroids.shape[1]))))
        centres = _apart(among / (np.abs(among).max() or 1.0) * 3, radii)
        frames = np.stack([_frame(reduced[members == k] - centroids[k]) for k in range(len(centroids))])
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

    def fitted(self, places: Matrix) -> Self:
        """The layout in units of the square that contains these positions (N, 2) and each cluster."""
        corners = [places, self.centres - self.radii[:, None], self.centres + self.radii[:, None]]
        low, high = np.vstack(corners).min(axis=0), np.vstack(corners).max(axis=0)
        scale = SIDE * (1 - 2 * 0.04) / max(float((high - low).max()), 1e-6)
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
    # Fewer texts do not make a cluster.
    # Clusters grow with the cube root of the texts: 3 of 10 texts, 13 of 1,000, 40 of 30,000.
    count = int(min(40, np.ceil(1.3 * len(points) ** (1 / 3)), max(1, len(points) // 3)))
    centroids = _first_centroids(points, count)
    for _ in range(25):
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
    random = np.random.default_rng(7)
    chosen = [int(random.integers(len(points)))]
    nearest = _squared(points, points[chosen])[:, 0].astype(np.float64)
    while len(chosen) < count and nearest.sum() > 0:
        chosen.append(int(random.choice(len(points), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, _squared(points, points[chosen[-1:]])[:, 0])
    return points[chosen].copy()


def _apart(centres: npt.NDArray[np.float64], radii: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The centres, moved as little as possible so that no disks overlap, and moved together where there is room."""
    # The gap between two clusters, as a share of their radii.
    needed = (radii[:, None] + radii[None]) * (1 + 0.3)
    np.fill_diagonal(needed, 0)
    for done in range(400):
        if done < 200:
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


def _frame(offsets: Matrix) -> npt.NDArray[np.float64]:
    """A cluster's two principal axes (2, R), in units of its spread."""
    dimensions = offsets.shape[1]
    _, sizes, axes = np.linalg.svd(offsets.T.astype(np.float64) @ offsets)
    axes = np.pad(axes[:2], ((0, max(0, 2 - dimensions)), (0, 0)))
    spreads = np.sqrt(np.pad(sizes[:2], (0, max(0, 2 - dimensions))) / len(offsets))
    if spreads[0] < NOTHING:
        spreads = np.ones(2)
    # A small spread along the second axis is not enlarged to the full width.
    spreads[1] = max(spreads[1], spreads[0] * LEAST_WIDTH / 4)
    width = np.clip(spreads[1] / spreads[0], LEAST_WIDTH, 1.0)
    return np.asarray(axes / spreads[:, None] * np.array([[1.0], [width]]))
