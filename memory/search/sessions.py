"""The session source: conversations whose title, or the beginning of whose last message, matches the query.

Out of 3: 1 if the title contains the query, plus the share of its words in the title, plus half of both for the last
message. A title says what a conversation is about; its last message only where it ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Case, Count, F, OuterRef, Q, Subquery, When
from django.db.models.functions import Left

from intake.models import Conversation, Turn, local_time
from memory.models.corpora import Key
from memory.search.excerpts import ELLIPSIS, Segment
from memory.search.sources import FEW, UNTITLED, FoundText, HistoryQuestion, HistorySource, Hit, Kind, Reference
from memory.terms import configurations, searchable

# Limits for users with very many conversations, the newest first: the titles that are searched, the last messages (each
# of which needs a turn), and the candidates that are scored.
TITLES = 20_000
PREVIEWS = 1_000
WEIGHED = 1_000
BEST = 100
PREVIEW_LENGTH = 200
# With the query in the title and in the last message; and in the title alone.
HIGHEST, HAS_THE_QUERY = 3.0, 2.0
# No title and no preview is longer, and neither is any match in one.
LONGEST = 200

_PREVIEW = """
left(CASE WHEN is_recall OR assistant_message = '' THEN user_message ELSE assistant_message END, %(preview_length)s)
"""
_TURNS = """
intake_conversation_turns WHERE conversation_id = newest.id AND user_id = %(user_id)s AND status <> 'streaming'
"""
# A conversation is a candidate only if it contains the beginning of a word of the query, up to where inflection begins.
# Parsing is expensive, so only candidates are parsed. `strpos` has no special characters.
_FIND = """
WITH term AS MATERIALIZED (
    SELECT lexeme, left(lexeme, greatest(3, length(lexeme) - 1)) AS beginning
      FROM unnest(to_tsvector(%(configuration)s::regconfig, %(query)s))
), asked AS MATERIALIZED (
    SELECT lower(%(piece)s) AS piece, array(SELECT lexeme FROM term) AS lexemes,
           greatest(1, (SELECT count(*) FROM term))::float8 AS words
), mine AS MATERIALIZED (
    SELECT id, lower(title) AS title, last_active_at, turn_count
      FROM intake_conversations
     WHERE user_id = %(user_id)s AND expires_at IS NULL AND last_active_at >= %(since)s AND last_active_at < %(until)s
     ORDER BY last_active_at DESC, id DESC
     LIMIT %(titles)s
), previewed AS MATERIALIZED (
    -- The last message is the last turn's, by its number; only where that is gone or still streaming it is looked for.
    SELECT id, lower(coalesce((SELECT {preview} FROM {turns} AND turn_number = turn_count),
                              (SELECT {preview} FROM {turns} ORDER BY turn_number DESC LIMIT 1))) AS preview
      FROM (SELECT id, turn_count FROM mine ORDER BY last_active_at DESC, id DESC LIMIT %(previews)s) AS newest
), possible AS MATERIALIZED (
    SELECT id, last_active_at, title, coalesce(preview, '') AS preview
      FROM mine
      LEFT JOIN previewed USING (id)
     CROSS JOIN asked
     WHERE (piece <> '' AND (strpos(title, piece) > 0 OR strpos(preview, piece) > 0))
        OR EXISTS (SELECT FROM term WHERE strpos(title, beginning) > 0 OR strpos(preview, beginning) > 0)
     ORDER BY last_active_at DESC, id DESC
     LIMIT %(weighed)s
), weighed AS (
    SELECT id, last_active_at,
           (piece <> '' AND strpos(title, piece) > 0)::int
           + (piece <> '' AND strpos(preview, piece) > 0)::int / 2.0
           + (SELECT count(*) FROM unnest(to_tsvector(%(configuration)s::regconfig, title))
               WHERE lexeme = ANY(lexemes)) / words
           + (SELECT count(*) FROM unnest(to_tsvector(%(configuration)s::regconfig, preview))
               WHERE lexeme = ANY(lexemes)) / words / 2 AS raw
      FROM possible
     CROSS JOIN asked
)
SELECT id, raw, last_active_at
  FROM weighed
 WHERE raw > 0
 ORDER BY raw DESC, last_active_at DESC, id
 LIMIT %(best)s
"""


class Sessions(HistorySource):
    name = "sessions"

    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """See HistorySource."""
        piece = " ".join(asked.query.split())
        with connection.cursor() as cursor:
            cursor.execute(
                _FIND.format(preview=_PREVIEW, turns=_TURNS),
                {
                    "user_id": asked.user.pk,
                    "since": asked.period.since or "-infinity",
                    "until": asked.period.until or "infinity",
                    "configuration": configurations()[0],
                    "query": searchable(asked.query),
                    "piece": piece if len(piece) <= LONGEST else "",
                    "titles": TITLES,
                    "previews": PREVIEWS,
                    "preview_length": PREVIEW_LENGTH,
                    "weighed": WEIGHED,
                    "best": BEST,
                },
            )
            rows = cursor.fetchall()
        titled = [id_ for id_, raw, _ in rows if raw >= HAS_THE_QUERY]
        is_rare = len(titled) + len(asked.literal) <= FEW
        return [
            Hit(self.name, (id_, 0), _relevance(float(raw)), at, is_exact=id_ in titled and is_rare)
            for id_, raw, at in rows
        ]

    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """See HistorySource: a conversation without any answer is the one that asks."""
        rows = _rows([id_ for id_, _ in keys], asked)
        return {(row[0], 0): _found_text(asked, *row) for row in rows if row[-2] is not None or not row[-1]}


def _relevance(raw: float) -> float:
    """A few of the query's words count less than their share: one of five, in a last message, is chance."""
    return raw * min(1.0, raw) / HIGHEST


def _rows(ids: Sequence[UUID], asked: HistoryQuestion) -> Iterable[tuple[UUID, str, datetime, str | None, int | None]]:
    """For each its id, title and last time, its preview and its number of messages; None without a turn."""
    turns = Turn.objects.for_user(asked.user).filter(conversation=OuterRef("pk"))
    last = turns.exclude(status=Turn.Status.STREAMING).order_by("-turn_number")
    answered = ~Q(assistant_message="")
    message = Case(
        When(answered & Q(is_recall=False), then=F("assistant_message")),
        default=F("user_message"),
    )
    count = turns.order_by().values("conversation").annotate(n=Count("*") + Count("pk", filter=answered))
    told = Conversation.objects.for_user(asked.user).annotate(
        preview=Subquery(last.values(beginning=Left(message, PREVIEW_LENGTH))[:1]),
        messages=Subquery(count.values("n")),
    )
    return told.filter(pk__in=ids).values_list("pk", "title", "last_active_at", "preview", "messages")


def _found_text(
    asked: HistoryQuestion, id_: UUID, title: str, last_active_at: datetime, preview: str | None, messages: int | None
) -> FoundText:
    day = local_time(last_active_at, asked.zone).date()
    title = " ".join(title.split()) or UNTITLED
    count = f"{messages or 0} {'message' if messages == 1 else 'messages'}"
    return FoundText(
        reference=Reference(kind=Kind.SESSION, day=day, conversation_id=id_, session=title),
        segments=[
            Segment(title, before='Session: "', after=f'" ({count}, last active: {day})'),
            Segment(_whole_words(preview or ""), before="Preview: "),
        ],
    )


def _whole_words(preview: str) -> str:
    """One line; a word that was cut off in the middle is removed."""
    words = " ".join(preview.split())
    return words if len(preview) < PREVIEW_LENGTH else words.rpartition(" ")[0] + ELLIPSIS
