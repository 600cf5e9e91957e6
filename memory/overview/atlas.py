"""Reads the map: the clusters with their words, all points, and single texts.

Reading also requests a drawing: `look` records the time in the map's row, which is a worker's job until the map is up
to date.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.db import connection, transaction

from core.errors import NotFound
from intake.models import User
from memory import wake
from memory.models import Corpus, IndexedText, MapPoint, MemoryMap, TellingWord
from memory.overview.sources import MapText, texts_of

# The task's name as a string: the tasks import the module that wakes their workers.
TASK = "memory.draw_maps"
# The time of a visit is rounded to the hour, so that the next one writes nothing.
NOTED = timedelta(hours=1)
NEWEST = 3
# The number of words that name a cluster.
NAMING = 3

wake_drawer = wake.Waker(TASK).wake_worker

# One column per field of a point, because there are tens of thousands.
_POINTS = """
SELECT point.text_id, x, y, cluster, array_position(%(corpora)s::text[], corpus::text) - 1,
       floor(date_part('epoch', said_at) / 86400)::int
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
 WHERE point.user_id = %(user_id)s
 ORDER BY said_at, point.text_id
"""
_NEWEST = """
SELECT text_id, cluster
  FROM (SELECT point.text_id, cluster,
               row_number() OVER (PARTITION BY cluster ORDER BY said_at DESC, text_id DESC) AS place
          FROM map_points AS point
          JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
         WHERE point.user_id = %(user_id)s) AS ranked
 WHERE place <= %(newest)s
 ORDER BY cluster, place
"""
_CENTRES = """
SELECT cluster, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY x), percentile_disc(0.5) WITHIN GROUP (ORDER BY y)
  FROM map_points
 WHERE user_id = %(user_id)s
 GROUP BY cluster
 ORDER BY count(*) DESC, cluster
"""


class MapState(StrEnum):
    """`EMPTY`: there is nothing to draw. `DRAWING`: a worker has not drawn it yet. `READY`: it can be shown."""

    EMPTY = "empty"
    DRAWING = "drawing"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A group of similar texts. `x` and `y`: its centre; `words`: its most typical words, the best first."""

    number: int
    texts: int
    x: int
    y: int
    words: list[str]
    newest: list[MapText]

    @property
    def name(self) -> str:
        return ", ".join(self.words[:NAMING]) or f"Group {self.number + 1}"


@dataclass(frozen=True, slots=True)
class Atlas:
    """The clusters, the largest first. `texts` counts all texts, `placed` those on the map."""

    state: MapState
    texts: int
    placed: int
    drawn_at: datetime | None
    clusters: list[Cluster]


@dataclass(frozen=True, slots=True)
class PointColumns:
    """All points, the oldest first, one column per field; `day` counts from 1970-01-01."""

    id: list[int]
    x: list[int]
    y: list[int]
    cluster: list[int]
    source: list[int]
    day: list[int]
    sources: list[str]


def look(user: User, *, now: datetime) -> None:
    """Record the visit of the user and have the map drawn."""
    with transaction.atomic():
        present, is_new = MemoryMap.objects.get_or_create(user=user, defaults={"asked_at": now, "due_at": now})
        if not is_new and present.asked_at < now - NOTED:
            MemoryMap.objects.filter(pk=user.pk).update(asked_at=now)
    transaction.on_commit(wake_drawer, robust=True)


def read_atlas(*, user: User, now: datetime) -> Atlas:
    look(user, now=now)
    texts = IndexedText.objects.for_user(user).count()
    placed = MapPoint.objects.filter(user=user).count()
    drawn_at = MemoryMap.objects.filter(user=user).values_list("drawn_at", flat=True).first()
    state = MapState.READY if placed else MapState.DRAWING if texts else MapState.EMPTY
    return Atlas(state, texts, placed, drawn_at, _clusters(user) if placed else [])


def words_by_bucket(user: User, kind: TellingWord.Kind) -> dict[int, list[TellingWord]]:
    words: dict[int, list[TellingWord]] = defaultdict(list)
    for word in TellingWord.objects.filter(user=user, kind=kind).order_by("bucket", "rank"):
        words[word.bucket].append(word)
    return words


def read_points(*, user: User) -> PointColumns:
    corpora = [corpus.value for corpus in Corpus]
    rows = _fetch(_POINTS, {"user_id": user.pk, "corpora": corpora})
    ids, xs, ys, clusters, sources, days = ([row[place] for row in rows] for place in range(6))
    return PointColumns(ids, xs, ys, clusters, sources, days, corpora)


def read_text(*, user: User, text_id: int) -> MapText:
    """Raises `NotFound` if it is not the user's own, or not on the map."""
    if not MapPoint.objects.filter(user=user, pk=text_id).exists():
        raise NotFound
    for text in texts_of(user, [text_id]):
        return text
    raise NotFound


def _clusters(user: User) -> list[Cluster]:
    words = words_by_bucket(user, TellingWord.Kind.CLUSTER)
    newest = _fetch(_NEWEST, {"user_id": user.pk, "newest": NEWEST})
    texts = {text.id: text for text in texts_of(user, [text_id for text_id, _ in newest])}
    by_cluster: dict[int, list[MapText]] = defaultdict(list)
    for text_id, cluster in newest:
        if text_id in texts:
            by_cluster[cluster].append(texts[text_id])
    clusters = []
    named: set[str] = set()
    for number, count, x, y in _fetch(_CENTRES, {"user_id": user.pk}):
        # Words of a larger cluster are used last, so that two similar clusters have different names.
        telling = sorted((word.word for word in words[number]), key=named.__contains__)
        named.update(telling[:NAMING])
        clusters.append(Cluster(number, count, x, y, telling, by_cluster[number]))
    return clusters


def _fetch(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows
