"""The worker's side of the overviews: draws the maps that are due, and finds the typical words of clusters and months.

1. `claim` takes one map whose owner has looked recently and has new texts, or has deleted some.
2. The new texts are placed by the existing layout. When a fifth of the texts has been added or deleted since, or the
   embedding model has changed, the whole map is laid out again.
3. The typical words come from the postings, and everything is stored in one transaction.

Drawing twice changes nothing. A map without a visit for a month is deleted, and drawn again at the next visit.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from core.isolation.inserting import insert_many
from core.rounds import for_each
from intake.models import User, local_time
from memory.backends.embedders import get_embedder
from memory.index import vectors
from memory.models import Corpus, Embedding, EmbeddingModel, IndexedText, MapPoint, MemoryMap, TellingWord
from memory.overview.layout import Layout, WholeNumbers, on_the_map
from memory.overview.words import telling_words

logger = logging.getLogger(__name__)

# After this time another worker takes over from one that died.
LEASE = timedelta(minutes=15)
KEPT = timedelta(days=30)
BATCH_TEXTS = 5_000

# Checked for one map after the other, each by an index; only the points are counted.
_DUE = """
SELECT user_id
  FROM memory_maps AS map
 WHERE due_at <= %(now)s AND (claimed_until IS NULL OR claimed_until < %(now)s)
   AND (drawn_at IS NULL OR waiting > 0
        OR model_id IS DISTINCT FROM (SELECT id FROM embedding_models WHERE name = %(model)s)
        OR EXISTS (SELECT FROM indexed_texts AS text WHERE text.user_id = map.user_id AND text.id > through_text)
        OR placed <> (SELECT count(*) FROM map_points AS point WHERE point.user_id = map.user_id))
 ORDER BY due_at, user_id
 LIMIT 1
"""
# Of two workers that found the same map, one claims it. On a cluster the search itself could not lock the row.
_CLAIM = """
UPDATE memory_maps
   SET claimed_until = %(until)s
 WHERE user_id = %(user_id)s AND (claimed_until IS NULL OR claimed_until < %(now)s)
"""

# Before any row that a deletion of the user would cascade to: so the deletion waits here, and never while it holds a
# row that this transaction waits for. A text that is being deleted is skipped.
_HOLD_TEXTS = """
SELECT id FROM indexed_texts WHERE user_id = %(user_id)s AND id = ANY(%(ids)s) ORDER BY id FOR KEY SHARE SKIP LOCKED
"""
_MOVE_POINTS = """
UPDATE map_points AS point
   SET x = moved.x, y = moved.y, cluster = moved.cluster
  FROM unnest(%(ids)s::bigint[], %(xs)s::smallint[], %(ys)s::smallint[], %(clusters)s::smallint[])
       AS moved(text_id, x, y, cluster)
 WHERE point.user_id = %(user_id)s AND point.text_id = moved.text_id
"""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Texts by their ids, their positions (N, 2), and their clusters."""

    ids: list[int]
    places: WholeNumbers
    clusters: WholeNumbers

    def where(self, kept: Sequence[bool]) -> "Points":
        return Points(
            [each for each, keep in zip(self.ids, kept, strict=True) if keep], self.places[kept], self.clusters[kept]
        )


NO_POINTS = Points([], np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=np.int64))


def draw_due(*, until: datetime) -> int:
    """Draw the maps that are due, until none is left or the time is up; returns their number."""
    # A map that fails keeps its claim, and so waits while the others are drawn.
    done, *_ = for_each("memory.draw_maps, maps", _claimed(until), draw)
    return done


def _claimed(until: datetime) -> Iterator[int]:
    while timezone.now() < until and (owner := claim(now=timezone.now())) is not None:
        yield owner


def drop_unasked(*, now: datetime) -> None:
    """Delete the data of maps without visits; the map's row is deleted last."""
    for_each("memory.draw_maps, unasked", MemoryMap.objects.filter(asked_at__lt=now - KEPT), _drop)


def _drop(stale: MemoryMap) -> None:
    with transaction.atomic():
        MapPoint.objects.filter(user_id=stale.user_id).delete()
        TellingWord.objects.filter(user_id=stale.user_id).delete()
        stale.delete()


def claim(*, now: datetime) -> int | None:
    """Claim one map to draw, for a while. None if nothing is due."""
    with connection.cursor() as cursor:
        cursor.execute(_DUE, {"now": now, "model": get_embedder().name})
        for (user_id,) in cursor.fetchall():
            cursor.execute(_CLAIM, {"now": now, "until": now + LEASE, "user_id": user_id})
            if cursor.rowcount:
                return int(user_id)
    return None


def draw(user_id: int) -> None:
    """Draw a claimed map. If the user is deleted meanwhile, the data is deleted too."""
    began = time.monotonic()
    model = get_embedder().name
    present = MemoryMap.objects.filter(pk=user_id).select_related("model").first()
    if present is None:
        return
    latest = IndexedText.objects.filter(user_id=user_id).order_by("-pk").values_list("pk", flat=True).first() or 0
    texts = vectors.embedded_texts(user_id, model=model)
    rows = list(MapPoint.objects.filter(user_id=user_id).order_by("pk").values_list("pk", "x", "y", "cluster"))
    numbers = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    known = Points(numbers[:, 0].tolist(), numbers[:, 1:3], numbers[:, 3])
    points, layout = _drawing(present, texts, known, model=model)
    try:
        with transaction.atomic():
            # If the claim has expired, another worker may have drawn the map; this changes nothing.
            if not MemoryMap.objects.select_for_update(no_key=True, of=("self",)).filter(pk=user_id).exists():
                return
            _store(user_id, points, known)
            took = timedelta(seconds=time.monotonic() - began)
            _finish(present, points, layout, latest=latest, model=model, took=took)
    except IntegrityError:
        # A text of the drawing has just been deleted; the sweep repeats the drawing when the claim expires.
        logger.info("A map was not stored, for texts of it were deleted meanwhile")


def _drawing(present: MemoryMap, texts: list[int], known: Points, *, model: str) -> tuple[Points, Layout | None]:
    if not texts:
        return NO_POINTS, None
    of_another_kind = present.model is None or present.model.name != model or present.method != MemoryMap.SVD
    deleted = present.placed - len(known.ids)
    # The share of new and deleted texts after which the complete map is laid out again.
    changed = abs(len(texts) - present.laid_out) > 0.2 * present.laid_out
    # With so few texts, after every deletion: each text is a noticeable part of a mean of few vectors.
    if of_another_kind or changed or (deleted > 0 and len(texts) <= 2_000):
        return _laid_out(present.user_id, texts, model=model)
    layout = Layout.parse(bytes(present.layout))
    on_it = set(known.ids)
    new = [text_id for text_id in texts if text_id not in on_it]
    return _placed(present.user_id, layout, new, model=model), None


def _laid_out(user_id: int, texts: list[int], *, model: str) -> tuple[Points, Layout | None]:
    """A complete layout from a sample, and every text placed by it."""
    # A layout is made from this many texts, picked evenly; the others are placed like later ones.
    ids, sample = vectors.means(user_id, model=model, texts=texts[:: -(-len(texts) // 10_000)])
    if not ids:
        # Deleted since they were listed.
        return NO_POINTS, None
    layout = Layout.of(sample)
    layout = layout.fitted(layout.place(layout.reduce(sample)))
    return _placed(user_id, layout, texts, model=model), layout


def _placed(user_id: int, layout: Layout, texts: list[int], *, model: str) -> Points:
    ids, places, clusters = [*NO_POINTS.ids], [NO_POINTS.places], [NO_POINTS.clusters]
    for start in range(0, len(texts), BATCH_TEXTS):
        found, matrix = vectors.means(user_id, model=model, texts=texts[start : start + BATCH_TEXTS])
        if found:
            reduced = layout.reduce(matrix)
            ids += found
            places.append(on_the_map(layout.place(reduced)))
            clusters.append(layout.cluster(reduced))
    return Points(ids, np.concatenate(places), np.concatenate(clusters))


def _store(user_id: int, points: Points, known: Points) -> None:
    clusters = dict(zip(known.ids, known.clusters.tolist(), strict=True))
    clusters |= dict(zip(points.ids, points.clusters.tolist(), strict=True))
    by_month, by_cluster = telling_words(user_id, [_months_of(user_id), clusters])
    words = [
        TellingWord(
            user_id=user_id, kind=kind, bucket=bucket, rank=rank, word=one.word, texts=one.texts, text_id=one.text_id
        )
        for kind, by_bucket in ((TellingWord.MONTH, by_month), (TellingWord.CLUSTER, by_cluster))
        for bucket, ones in by_bucket.items()
        for rank, one in enumerate(ones)
    ]
    on_it = set(known.ids)
    new = {text_id for text_id in points.ids if text_id not in on_it}
    with connection.cursor() as cursor:
        cursor.execute(_HOLD_TEXTS, {"user_id": user_id, "ids": sorted(new | {word.text_id for word in words})})
        held = {text_id for (text_id,) in cursor.fetchall()}
        moved = points.where([text_id in on_it for text_id in points.ids])
        added = points.where([text_id in new and text_id in held for text_id in points.ids])
        places = {"xs": moved.places[:, 0].tolist(), "ys": moved.places[:, 1].tolist()}
        about = {"user_id": user_id, "ids": moved.ids, "clusters": moved.clusters.tolist()}
        cursor.execute(_MOVE_POINTS, {**about, **places})
        TellingWord.objects.filter(user_id=user_id).delete()
    rows = zip(added.ids, added.places.tolist(), added.clusters.tolist(), strict=True)
    insert_many(
        [MapPoint(text_id=pk, user_id=user_id, x=x, y=y, cluster=cluster) for pk, (x, y), cluster in rows],
        ignore_conflicts=True,
    )
    insert_many([word for word in words if word.text_id in held], ignore_conflicts=True)


def _months_of(user_id: int) -> dict[int, int]:
    """The month of each text, as 202603, in its owner's time zone."""
    zone = User.objects.only("pk", "time_zone").get(pk=user_id).zone
    texts = IndexedText.objects.filter(user_id=user_id).exclude(corpus=Corpus.ATTACHMENT)
    times = texts.values_list("pk", "said_at")
    local = ((pk, local_time(at, zone)) for pk, at in times.iterator(chunk_size=5_000))
    return {pk: at.year * 100 + at.month for pk, at in local}


def _finish(
    present: MemoryMap, points: Points, layout: Layout | None, *, latest: int, model: str, took: timedelta
) -> None:
    now = timezone.now()
    fields: dict[str, Any] = {}
    if layout is not None:
        fields = {"layout": layout.write(), "laid_out": len(points.ids), "method": MemoryMap.SVD}
    MemoryMap.objects.filter(pk=present.pk).update(
        **fields,
        model=EmbeddingModel.objects.filter(name=model).first(),
        drawn_at=now,
        # After a drawing there is a pause of at least 20 seconds, and of 20 times its duration.
        due_at=now + max(timedelta(seconds=20), took * 20),
        claimed_until=None,
        through_text=latest,
        placed=MapPoint.objects.filter(user_id=present.user_id).count(),
        waiting=Embedding.objects.of_model(model).waiting().filter(user_id=present.user_id, is_further=False).count(),
    )
