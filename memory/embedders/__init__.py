"""The embedding model that `settings.EMBEDDER` names, shared by a process's threads."""

import os
import threading
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from memory.embedders.base import (
    Embedder,
    EmbedderError,
    EmbedderMisconfigured,
    EmbedderRefused,
    EmbedderUnavailable,
)

__all__ = [
    "Embedder",
    "EmbedderError",
    "EmbedderMisconfigured",
    "EmbedderRefused",
    "EmbedderUnavailable",
    "get_embedder",
]

_lock = threading.Lock()
_embedder: Embedder | None = None


def get_embedder() -> Embedder:
    """Return this process's embedder. Raise EmbedderMisconfigured when the setting cannot be followed."""
    global _embedder  # noqa: PLW0603
    if _embedder is None:
        with _lock:
            if _embedder is None:
                _embedder = _build(settings.EMBEDDER)
    return _embedder


def _build(setting: dict[str, Any]) -> Embedder:
    try:
        backend = import_string(setting["BACKEND"])
        embedder = backend(**setting.get("OPTIONS", {}))
    except (ImportError, KeyError, TypeError, ImproperlyConfigured) as error:
        raise EmbedderMisconfigured(f"settings.EMBEDDER cannot be followed: {error}") from error
    if not isinstance(embedder, Embedder):
        raise EmbedderMisconfigured(f"settings.EMBEDDER: {setting['BACKEND']} is not an Embedder.")
    return embedder


def reset_embedder(**_kwargs: Any) -> None:
    """Forget the embedder, so that the next caller builds one."""
    global _embedder, _lock  # noqa: PLW0603
    # A lock that another thread held while the process forked would stay locked for ever in the child.
    _lock = threading.Lock()
    _embedder = None


def _follow_setting(*, setting: str, **_kwargs: Any) -> None:
    if setting == "EMBEDDER":
        reset_embedder()


setting_changed.connect(_follow_setting)
# A forked worker inherits neither the model's threads nor the vendor's connections in a usable state.
os.register_at_fork(after_in_child=reset_embedder)
