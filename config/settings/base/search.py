"""What is indexed with which model and as which words, and how `search_history` ranks what it finds."""

from pathlib import Path
from typing import Any

from config.settings.base.environment import VAR_DIR, env

# The built-in model unless EMBEDDING_BASE_URL names an OpenAI-compatible endpoint.
EMBEDDING_BASE_URL = env.str("EMBEDDING_BASE_URL", default="")
MODEL_CACHE_DIR = Path(env.str("MODEL_CACHE_DIR", default=str(VAR_DIR / "models")))
BUILT_IN = "built-in"
BUILT_IN_MODEL = {
    "BACKEND": "memory.embedders.minilm.MiniLMEmbedder",
    "OPTIONS": {
        "cache_dir": MODEL_CACHE_DIR,
        "threads": env.int("EMBEDDING_THREADS", default=2),
        # Where the installed package has the weights, unless they lie elsewhere.
        "model_dir": env.str("EMBEDDING_MODEL_DIR", default=""),
    },
}


def _at_an_endpoint(prefix: str) -> dict[str, Any]:
    """What is asked of the OpenAI-compatible endpoint that these variables name."""
    return {
        "BACKEND": "memory.embedders.openai_compatible.OpenAICompatibleEmbedder",
        "OPTIONS": {
            "base_url": env.str(f"{prefix}_BASE_URL"),
            "api_key": env.str(f"{prefix}_API_KEY", default=""),
            "model": env.str(f"{prefix}_MODEL"),
            "dimensions": env.int(f"{prefix}_DIMENSIONS"),
            "query_prefix": env.str(f"{prefix}_QUERY_PREFIX", default=""),
            "document_prefix": env.str(f"{prefix}_DOCUMENT_PREFIX", default=""),
        },
    }


EMBEDDER = _at_an_endpoint("EMBEDDING") if EMBEDDING_BASE_URL else BUILT_IN_MODEL
# The model that is to take its place by `manage.py switch_embedding_model`: an endpoint likewise, or "built-in".
EMBEDDING_NEXT_BASE_URL = env.str("EMBEDDING_NEXT_BASE_URL", default="")
EMBEDDER_NEXT: dict[str, Any] | None = None
if EMBEDDING_NEXT_BASE_URL == BUILT_IN:
    EMBEDDER_NEXT = BUILT_IN_MODEL
elif EMBEDDING_NEXT_BASE_URL:
    EMBEDDER_NEXT = _at_an_endpoint("EMBEDDING_NEXT")
EMBEDDING_BATCH_SIZE = env.int("EMBEDDING_BATCH_SIZE", default=32)
EMBEDDING_MAX_ATTEMPTS = env.int("EMBEDDING_MAX_ATTEMPTS", default=5)
# How long a worker may keep what it claimed before another may take it: longer than a batch can last, which for an
# endpoint is two requests of 30 seconds, and short enough that a dead worker's rows do not wait long.
IS_ALL_BUILT_IN = not EMBEDDING_BASE_URL and EMBEDDING_NEXT_BASE_URL in ("", BUILT_IN)
EMBEDDING_LEASE_SECONDS = env.int("EMBEDDING_LEASE_SECONDS", default=15 if IS_ALL_BUILT_IN else 75)
EMBEDDING_SWEEP_SECONDS = env.int("EMBEDDING_SWEEP_SECONDS", default=5)

# A text-search configuration of the database: it decides what a word is, which are stop words, and how they are
# stemmed. "english" suits English; "simple" takes every word of any language as it stands. After a change:
# `manage.py index_missing`.
TEXT_SEARCH_CONFIG = env.str("TEXT_SEARCH_CONFIG", default="english")

# How much a result counts by where it is from. What was written down on purpose says more than what was said in
# passing.
HISTORY_WEIGHTS = {
    "memory": env.float("HISTORY_WEIGHT_MEMORY", default=1.0),
    "messages": env.float("HISTORY_WEIGHT_MESSAGES", default=0.6),
    "sessions": env.float("HISTORY_WEIGHT_SESSIONS", default=0.5),
}
# How fast a result loses by its age, a day: at 0.01 it counts half after 69 days. 0 turns it off.
HISTORY_DECAY_RATE = env.float("HISTORY_DECAY_RATE", default=0.01)
# A text without a word of the query's and with a greater cosine distance than this is no result. It suits the built-in
# model; many others place everything nearer together.
HISTORY_UNRELATED_DISTANCE = env.float("HISTORY_UNRELATED_DISTANCE", default=0.75)
# After this, what the sources found that are done is the answer.
HISTORY_TIMEOUT_SECONDS = env.float("HISTORY_TIMEOUT_SECONDS", default=30.0)
