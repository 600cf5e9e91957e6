"""Reads the map: the clusters with their words, all points, and single texts."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import AwareDatetime, Field

from core.ids import required
from core.isolation.acting import acting_as
from core.text import shortened
from core.validation import Shape
from intake.models import User
from memory.index.sources import key_of, load
from memory.index.terms import fetch
from memory.models import Corpus, IndexedText, MapPoint, MemoryMap, TellingWord
from memory.models.embeddings import SIDE
from memory.overview import reading
from memory.search.history import HistoryRequest, search_history
from memory.search.sources import Kind, Reference

# The number of words that name a cluster.
NAMING = 3
ON_MAP = Annotated[int, Field(ge=0, le=SIDE)]


_CHATS = """
SELECT point.text_id, title
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
  JOIN intake_conversations AS chat ON chat.user_id = point.user_id AND chat.id = source_id
 WHERE point.user_id = %(user_id)s AND corpus = 'chat'
"""


# One column per field of a point, because there are tens of thousands.
_POINTS = """
SELECT point.text_id, x, y, cluster, array_position(%(corpora)s::text[], corpus::text) - 1,
       floor(date_part('epoch', said_at) / 86400)::int
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
 WHERE point.user_id = %(user_id)s AND {within}
 ORDER BY said_at, point.text_id
"""


_NEWEST = """
SELECT text_id, cluster
  FROM (SELECT point.text_id, cluster,
               row_number() OVER (PARTITION BY cluster ORDER BY said_at DESC, text_id DESC) AS place
          FROM map_points AS point
          JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
         WHERE point.user_id = %(user_id)s AND {within}) AS ranked
 WHERE place <= %(newest)s
 ORDER BY cluster, place
"""


_CENTRES = """
SELECT cluster, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY x), percentile_disc(0.5) WITHIN GROUP (ORDER BY y)
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
 WHERE point.user_id = %(user_id)s AND {within}
 GROUP BY cluster
 ORDER BY count(*) DESC, cluster
"""


_PLACED = """
SELECT count(*), count(point.text_id)
  FROM indexed_texts AS text LEFT JOIN map_points AS point ON point.user_id = text.user_id AND point.text_id = text.id
 WHERE text.user_id = %(user_id)s AND corpus <> 'attachment' AND {within}
"""


class MapState(StrEnum):
    """`EMPTY`: there is nothing to draw. `DRAWING`: a worker has not drawn it yet. `READY`: it can be shown."""

    EMPTY = "empty"
    DRAWING = "drawing"
    READY = "ready"


class MapTextOutput(Shape):
    """A text on the map; `snippet` is how it begins."""

    id: int
    corpus: reading.SourceCorpus
    title: str
    said_at: AwareDatetime
    snippet: str
    reference: reading.ReadAt


class ClusterOutput(Shape):
    """Texts that are alike. `x` and `y`: its middle; `words` tell it from the others, the most telling first."""

    number: Annotated[int, Field(serialization_alias="cluster")]
    name: str
    texts: int
    x: ON_MAP
    y: ON_MAP
    words: list[str]
    newest: list[MapTextOutput]


class MapOutput(Shape):
    """The clusters, the largest first. `texts` counts all that there are, `placed` those that are on the map."""

    state: MapState
    texts: int
    placed: int
    drawn_at: AwareDatetime | None
    side: Annotated[int, Field(description="Coordinates are whole numbers from 0 to this, `y` downwards.")] = SIDE
    clusters: list[ClusterOutput]


class PointsOutput(Shape):
    """Every point, the oldest first, a list for each thing: point k is `id[k]`, `x[k]`, `y[k]` and so on."""

    id: list[int]
    x: list[ON_MAP]
    y: list[ON_MAP]
    cluster: list[int]
    source: Annotated[list[int], Field(description="A place in `sources`.")]
    day: Annotated[list[int], Field(description="Days since 1970-01-01, in UTC.")]
    sources: list[Corpus]
    title: Annotated[list[int], Field(description="A place in `titles`, of a chat; -1 for other texts.")]
    titles: list[str]


def texts_of(user: User, ids: Iterable[int]) -> list[MapTextOutput]:
    """The user's own ones among these, in this order, without deleted ones."""
    ids = list(ids)
    rows = IndexedText.objects.for_user(user).defer("signature").in_bulk(ids)
    loaded = {text.key: text for text in load(map(key_of, rows.values()))}
    references = reading.references_of(user, {(row.corpus, row.source_id): row.said_at for row in rows.values()})
    shown = []
    for text_id in ids:
        if (row := rows.get(text_id)) is None:
            continue
        text, reference = loaded.get(key_of(row)), references.get((row.corpus, row.source_id))
        if text is None or reference is None:
            continue
        corpus, title, place = reference
        if corpus == Corpus.CHAT:
            place = Reference(
                kind=Kind.MESSAGE,
                day=user.local_time(row.said_at).date(),
                conversation_id=row.source_id,
                turn_number=row.chunk_index,
                session=title,
            )
        shown.append(
            MapTextOutput(
                id=text_id,
                corpus=corpus,
                title=title,
                said_at=row.said_at,
                snippet=shortened(
                    " ".join((text.said or text.answered)[: reading.SNIPPET * 4].split()), reading.SNIPPET
                ),
                reference=place,
            )
        )
    return shown


def read_atlas(*, user: User, now: datetime, project: str = "") -> MapOutput:
    """`project`: as for the timeline."""
    reading.look(user, now=now)
    ((texts, placed),) = reading.rows_within(_PLACED, user, project)
    drawn_at = MemoryMap.objects.filter(user=user).values_list("drawn_at", flat=True).first()
    state = MapState.READY if placed else MapState.DRAWING if texts else MapState.EMPTY
    clusters = _clusters(user, project) if placed else []
    return MapOutput(state=state, texts=texts, placed=placed, drawn_at=drawn_at, clusters=clusters)


def read_points(*, user: User, project: str = "") -> PointsOutput:
    """`project`: as for the timeline."""
    corpora = list(Corpus)
    rows = reading.rows_within(_POINTS, user, project, corpora=corpora)
    places, xs, ys, clusters, sources, days = ([row[place] for row in rows] for place in range(6))
    shown = set(places)
    of_chats = {text_id: title for text_id, title in fetch(_CHATS, {"user_id": user.pk}) if text_id in shown}
    titles = {title: number for number, title in enumerate(dict.fromkeys(of_chats.values()))}
    # Unvalidated: validating hundreds of thousands of our own numbers would take longer than reading them.
    return PointsOutput.model_construct(
        id=places,
        x=xs,
        y=ys,
        cluster=clusters,
        source=sources,
        day=days,
        sources=corpora,
        title=[titles[of_chats[text_id]] if text_id in of_chats else -1 for text_id in places],
        titles=list(titles),
    )


def find_texts(*, user: User, query: str, now: datetime, project: str = "") -> list[int]:
    """The ids of the texts that a search finds, the best first. Raises what `search_history` raises.

    Must not run in a transaction: the search asks the models' endpoints.
    """
    # The number of texts that a search marks on the map.
    found = search_history(HistoryRequest(query=query, max_results=50, project=project), user=user, now=now)
    places: dict[tuple[UUID | None, int | None], int] = {}
    for rank, place in enumerate(one.reference for one in found.results):
        # A turn of a chat; or a chat, document or record as a whole.
        source = place.conversation_id or place.document_id or place.record_id
        places[source, place.turn_number if place.conversation_id else None] = rank
    sources = {source for source, _ in places if source is not None}

    with acting_as(user):
        texts = IndexedText.objects.for_user(user).filter(source_id__in=sources)
        ranks: dict[int, int] = {}
        for pk, source, number in texts.values_list("pk", "source_id", "chunk_index"):
            at = places.get((source, number), places.get((source, None)))
            if at is not None:
                ranks[pk] = at
        return sorted(ranks, key=lambda pk: (ranks[pk], pk))


def read_text(*, user: User, text_id: int) -> MapTextOutput:
    """Raises `NotFound` if it is not the user's own, or not on the map."""
    on_it = MapPoint.objects.filter(user=user, pk=text_id).values_list("pk", flat=True)
    return required(next(iter(texts_of(user, on_it)), None))


def _clusters(user: User, project: str) -> list[ClusterOutput]:
    # A group is called by the same words wherever it is shown, but never by those of a closed project.
    words = reading.words_by_bucket(user, TellingWord.CLUSTER)
    newest = reading.rows_within(_NEWEST, user, project, newest=3)
    texts = {text.id: text for text in texts_of(user, [text_id for text_id, _ in newest])}
    by_cluster: dict[int, list[MapTextOutput]] = defaultdict(list)
    for text_id, cluster in newest:
        if text_id in texts:
            by_cluster[cluster].append(texts[text_id])
    clusters = []
    named: set[str] = set()
    for number, count, x, y in reading.rows_within(_CENTRES, user, project):
        # Words of a larger cluster are used last, so that two similar clusters have different names.
        telling = sorted((word.word for word in words[number]), key=named.__contains__)
        named.update(telling[:NAMING])
        name = ", ".join(telling[:NAMING]) or f"Group {number + 1}"
        newest_here = by_cluster[number]
        clusters.append(
            ClusterOutput(number=number, name=name, texts=count, x=x, y=y, words=telling, newest=newest_here)
        )
    return clusters
