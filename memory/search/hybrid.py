"""The hybrid ranking, for any corpora: one statement for the terms, one for the vectors, then the arithmetic of
`memory.search.fusion`.

`search_chat_history` and `search_history` both use it, each in transactions of its own.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from core.errors import Unavailable
from core.text import gettext_noop as _
from intake.models import User
from memory.backends.embedders import UNCALIBRATED, Calibration, EmbedderError, EmbedderLeftAlone, get_embedder
from memory.index import scoring, vectors
from memory.index.vectors import Meaning
from memory.models.documents import Hit, Scope
from memory.search.echoes import answers_alone, discounted, find_echoes, with_question
from memory.search.fusion import fuse
from memory.search.literal import (
    NO_CHAT_HAS,
    NO_TEXT_HAS,
    NO_TEXT_HAS_WORDS,
    THESE_ARE_NEAREST,
    LiteralHits,
    Narrowing,
    narrow,
)
from memory.search.query import Query
from memory.search.time_windows import NO_TIMES, PreferredTimes, moments_of

# Results below this relevance are only the nearest. Of the questions with an answer, at most three in a hundred have
# all their results below it (`run_evals --surface`, `refused`).
RELATED = 0.003
# The candidates in a narrowed search, most of which may not fit.
TEXTS_OF_NARROWED, PASSAGES_OF_NARROWED = 500, 300
# A model without tuned numbers is measured on a user's vectors if this many of their texts have one.
MEASURED_TEXTS = 50

MODEL_AWAY = _("Search by meaning is not available right now. Try again shortly.")


class Found(NamedTuple):
    """What both retrievers found. `pending`: how many of the scope's corpora have a passage without a vector.
    `has_files`: whether the user has any file, in the scope or not. `is_cut`: others may share its terms.

    `calibration` is the one for the hits' distances; `ideal` and `unrelated` are as in `fuse`. `lacks_quotation`: no
    text has the query's quotations, and these are others. `lacks_title`: no chat has the title. `absent` is as in
    `Scored`.
    """

    hits: list[Hit]
    pending: int
    calibration: Calibration
    ideal: float
    unrelated: float
    lacks_quotation: bool = False
    lacks_title: bool = False
    has_files: bool = False
    is_cut: bool = False
    absent: tuple[str, ...] = ()


# Of retrievers whose time was up.
NOT_KNOWN = Found([], 0, UNCALIBRATED, 0.0, 0.0, has_files=True, is_cut=True)


def embedded(query: str, *, needs_vector: bool = False) -> Meaning:
    """By the active model; without a vector while its endpoint is left alone, unless one is needed.

    It may ask an endpoint, so it must not run in a transaction. Raises `Unavailable`.
    """
    try:
        embedder = get_embedder()
        return Meaning(embedder, embedder.embed_query(query))
    except EmbedderLeftAlone as error:
        if needs_vector:
            raise Unavailable(MODEL_AWAY) from error
        return Meaning(embedder, None)
    except EmbedderError as error:
        raise Unavailable(MODEL_AWAY) from error


def by_terms(scope: Scope, *, query: str, meaning: Meaning) -> Found:
    """The texts that share terms with the query, the best first by BM25F alone."""
    found = gather(scope, query=query, meaning=meaning, passages=0)
    return found._replace(hits=[hit._replace(relevance=hit.lexical) for hit in found.hits])


def by_terms_and_meaning(
    scope: Scope,
    *,
    query: str,
    meaning: Meaning,
    times: PreferredTimes = NO_TIMES,
    narrowing: Narrowing | None = None,
) -> Found:
    """The texts that either retriever found, the most relevant first, those of the preferred times more so; with
    `narrowing` only those that fit.
    """
    if narrowing is None:
        found = gather(scope, query=query, meaning=meaning)
    else:
        found = gather(
            scope,
            query=query,
            meaning=meaning,
            texts=TEXTS_OF_NARROWED,
            passages=PASSAGES_OF_NARROWED,
            also=narrowing.candidates,
        )
        found = found._replace(hits=narrowing.fitting(found.hits))
    for days in times.windows if narrowing is None else ():
        # Of all time, the best by a few words are seldom of these days.
        since, until = moments_of(*days, scope.user.zone)
        inside = gather(replace(scope, since=since, until=until), query=query, meaning=meaning)
        known = {hit.key for hit in found.hits}
        found = found._replace(hits=found.hits + [hit for hit in inside.hits if hit.key not in known])
    ranked = partial(
        fuse,
        ideal=found.ideal,
        unrelated=found.unrelated,
        calibration=found.calibration,
        times=matcher_of(times, scope.user),
    )
    fused = ranked(found.hits)
    echoes, searched = find_echoes(scope.user, query, fused)
    if echoes:
        whole = {hit.key: hit for hit in fused}
        alone = ranked(answers_alone(fused, echoes, unrelated=found.unrelated))
        fused = [with_question(hit, whole[hit.key]) for hit in alone]
    return found._replace(hits=discounted(fused, echoes, searched))


def find_related(scope: Scope, *, query: Query, meaning: Meaning, literal: LiteralHits) -> Found:
    """The same for a query with its operators. If no text has its quotations, the nearest that fulfil the others."""
    is_narrowed = query.narrows or query.is_listing
    narrowing = narrow(scope, query, literal) if is_narrowed else None
    found = by_terms_and_meaning(scope, query=query.text, meaning=meaning, times=query.times, narrowing=narrowing)
    if query.quotations and not (found.hits or literal.as_sent):
        nearest = find_related(scope, query=replace(query, quotations=()), meaning=meaning, literal=literal)
        return nearest._replace(lacks_quotation=True)
    return found._replace(lacks_title=narrowing is not None and narrowing.lacks_title)


def gather(
    scope: Scope,
    *,
    query: str,
    meaning: Meaning,
    # The candidates of each retriever: several times the largest limit, so that it includes a text that is good only in
    # both.
    texts: int = 100,
    passages: int = 100,
    also: Iterable[Hit] = (),
) -> Found:
    """The best texts by terms and those of the nearest passages, and others to be measured, before ranking."""
    best, ideal, absent = scoring.score(scope, query=query, limit=texts)
    known = {hit.key for hit in best}
    hits, unrelated, pending, has_files = vectors.distances(
        scope, meaning, passages=passages, hits=best + [hit for hit in also if hit.key not in known]
    )
    calibration = meaning.embedder.calibration
    if calibration is None:
        is_measurable = sum(hit.distance is not None for hit in hits) >= MEASURED_TEXTS
        calibration = UNCALIBRATED if unrelated is None or not is_measurable else Calibration.measured(unrelated)
    is_cut = len(best) >= texts
    return Found(hits, pending, calibration, ideal, unrelated or 0.0, has_files=has_files, is_cut=is_cut, absent=absent)


def is_nearest_only(hits: Sequence[Hit], calibration: Calibration) -> bool:
    """Whether none of them is likely to be relevant, nor near in meaning.

    The second condition is for small histories: no term is rare there, so shared terms mean little.
    """
    return not any(hit.relevance >= RELATED or is_near(hit, calibration) for hit in hits)


def is_near(hit: Hit, calibration: Calibration) -> bool:
    return hit.distance is not None and hit.distance <= calibration.far and not hit.is_echo


def lacking(query: Query, found: "Found") -> list[str]:
    """Sentences about operators that no text fulfils, and words that none has."""
    quoted = ", ".join(f'"{words}"' for words in query.quotations)
    return [
        *([NO_TEXT_HAS.format(quoted) + THESE_ARE_NEAREST * bool(found.hits)] if found.lacks_quotation else []),
        *([NO_CHAT_HAS.format(", ".join(f'"{title}"' for title in query.titles))] if found.lacks_title else []),
        *(
            [NO_TEXT_HAS_WORDS.format(", ".join(found.absent))]
            if found.hits and found.absent and not found.lacks_quotation
            else []
        ),
    ]


def matcher_of(times: PreferredTimes, user: User) -> Callable[[datetime], tuple[float, float]] | None:
    """Whether a moment is of the preferred times, in the user's time zone; None if there are none."""
    return (lambda at: times.match(user.local_time(at).date())) if times else None
