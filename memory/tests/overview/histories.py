"""A history of years for the map and the timeline, inserted in bulk: texts of a few topics, with made-up vectors."""

from datetime import UTC, datetime, timedelta

import numpy as np
from django.db import connection

from core.ids import uuid7
from core.isolation.inserting import insert_many
from intake.models import Conversation, Turn, User
from memory.backends.embedders import get_embedder
from memory.models import Corpus, EmbeddingModel, IndexedText, PendingTerms
from memory.tests.vectors import directions

TOPICS = (
    "garden tomatoes watering seedlings compost greenhouse beans harvest soil",
    "cello concert rehearsal strings rosin Bach orchestra quartet bow",
    "Lisbon tram harbour flight apartment Alfama ferry tiles azulejos",
    "Python database migration query index transaction PostgreSQL worker deadlock",
    "sourdough starter flour oven crust proofing baker rye hydration",
    "marathon running intervals knee shoes heartrate training splits stretching",
    "mortgage budget savings interest pension taxes invoice account broker",
    "daughter school homework teacher birthday cousin grandmother swimming bicycle",
    "novel chapter narrator manuscript editor plot dialogue publisher draft",
    "telescope nebula Jupiter eclipse galaxy lens orbit comet observatory",
    "chess opening endgame bishop gambit tournament pawn castling clock",
    "sleep dream insomnia anxiety therapist breathing meditation journal mood",
)
TURNS_OF_A_CHAT = 20
NOISES = 500
_EMBED = """
WITH made AS MATERIALIZED (
    SELECT centre, noise, l2_normalize(c::halfvec + n::halfvec) AS vector
      FROM unnest(%(centres)s::text[]) WITH ORDINALITY AS centres(c, centre),
           unnest(%(noises)s::text[]) WITH ORDINALITY AS noises(n, noise)
)
INSERT INTO embeddings
       (user_id, corpus, source_id, chunk_index, part, side, start, is_further, cutting_rules, model_id, visibility,
        vector, length, content_hash, said_at, created_at, embedded_at, attempts, last_error, next_attempt_at)
SELECT user_id, corpus, source_id, chunk_index, 0, 0, 0, false, 1, %(model)s, 'AUTHENTICATED',
       vector, 1, '\\x00', said_at, said_at, said_at, 1, '', said_at
  FROM unnest(%(texts)s::bigint[], %(of_centre)s::int[]) WITH ORDINALITY AS each(text_id, centre, number)
  JOIN indexed_texts AS text ON text.id = text_id
  JOIN made ON made.centre = each.centre AND made.noise = 1 + number %% %(noise_count)s
"""
BEGIN = datetime(2016, 12, 3, 9, tzinfo=UTC)
END = datetime(2026, 11, 20, 9, tzinfo=UTC)


def a_history(user: User, count: int, *, begin: datetime = BEGIN, end: datetime = END, seed: int = 1) -> None:
    """So many turns between two times, oldest first; a topic is talked about for some months, and then comes again."""
    random = np.random.default_rng(seed)
    at = np.sort(random.beta(1.3, 1.0, size=count)) * (end - begin).total_seconds()
    times = [begin + timedelta(seconds=float(each)) for each in at]
    phase = np.arange(len(TOPICS)) / len(TOPICS)
    years = at / (365 * 86_400)
    liking = np.exp(1.8 * np.sin(2 * np.pi * (years[:, None] * (0.35 + 0.4 * phase) + phase * 3)))
    topics = (liking / liking.sum(axis=1, keepdims=True)).cumsum(axis=1) > random.random((count, 1))
    topic_of = topics.argmax(axis=1)
    texts = [" ".join(random.choice(TOPICS[topic].split(), size=5, replace=False)) for topic in topic_of]
    rows = _insert(user, texts, times)
    _embed(rows, [int(topic) * 3 + int(random.integers(3)) for topic in topic_of], seed=seed)


def _insert(user: User, texts: list[str], times: list[datetime]) -> list[IndexedText]:
    chats = [
        Conversation(id=uuid7(), user=user, title=text.capitalize(), turn_count=TURNS_OF_A_CHAT, last_active_at=at)
        for text, at in zip(texts[::TURNS_OF_A_CHAT], times[::TURNS_OF_A_CHAT], strict=True)
    ]
    Conversation.objects.bulk_create(chats)
    places = [(chats[number // TURNS_OF_A_CHAT].pk, number % TURNS_OF_A_CHAT + 1) for number in range(len(texts))]
    Turn.objects.bulk_create(
        [
            Turn(
                conversation_id=chat,
                user=user,
                turn_number=turn,
                parent_number=turn - 1 or None,
                status=Turn.Status.COMPLETE,
                said_at=at,
                user_message=f"What about the {text}?",
                assistant_message="Noted.",
            )
            for (chat, turn), text, at in zip(places, texts, times, strict=True)
        ],
        batch_size=2_000,
    )
    rows = [
        IndexedText(
            user=user,
            corpus=Corpus.CHAT,
            source_id=chat,
            chunk_index=turn,
            said_at=at,
            said_length=5,
            answered_length=0,
            configuration="english",
            content_hash=b"0" * 16,
            signature="x00",
        )
        for (chat, turn), at in zip(places, times, strict=True)
    ]
    insert_many(rows)
    stems = _stems()
    PendingTerms.objects.bulk_create(
        [
            PendingTerms(
                text_id=row.pk,
                user=user,
                corpus=row.corpus,
                said_length=5,
                answered_length=0,
                lexemes=[stems[word] for word in text.split()],
                said=[1] * 5,
                answered=[0] * 5,
            )
            for row, text in zip(rows, texts, strict=True)
        ],
        batch_size=2_000,
    )
    return rows


def _embed(rows: list[IndexedText], centres: list[int], *, seed: int) -> None:
    """A vector near its centre for each: added up in the database, since to send thousands takes long."""
    parameters = {
        "centres": [str([round(float(x), 4) for x in v]) for v in directions(len(TOPICS) * 3, seed=seed)],
        "noises": [str([round(float(x) * 0.85, 4) for x in v]) for v in directions(NOISES, seed=seed + 1)],
        "texts": [row.pk for row in rows],
        "of_centre": [centre + 1 for centre in centres],
        "model": EmbeddingModel.named(get_embedder().name, get_embedder().dimensions).pk,
        "noise_count": NOISES,
    }
    with connection.cursor() as cursor:
        cursor.execute(_EMBED, parameters)


def _stems() -> dict[str, str]:
    words = " ".join(TOPICS).split()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT word, (tsvector_to_array(to_tsvector('english', word)))[1] FROM unnest(%s::text[]) AS word", [words]
        )
        return dict(cursor.fetchall())
