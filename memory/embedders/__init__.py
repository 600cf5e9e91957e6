"""The embedding models that the settings name, each shared by a process's threads; one of them is active.

`EMBEDDER` is the model, and all there is. While another one takes its place, that one is `EMBEDDER_NEXT`, and the
database says which of the two is active (docs/decisions/0016).
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from memory.embedders import active
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
    "configured_embedders",
    "get_embedder",
    "get_next_embedder",
    "using",
]

_lock = threading.Lock()
# By the name of the setting.
_embedders: dict[str, Embedder] = {}
_chosen: ContextVar[Embedder | None] = ContextVar("embedder", default=None)


def get_embedder() -> Embedder:
    """Return the active model's embedder: it made what is searched, and is to make the vectors of what is saved.

    Raise EmbedderMisconfigured when the settings cannot be followed, or name other models than the active one.
    """
    if (chosen := _chosen.get()) is not None:
        return chosen
    current, following = _configured("EMBEDDER"), get_next_embedder()
    if following is None:
        return current
    name = active.active_name()
    if name not in (None, current.name, following.name):
        active.require(current.name, following.name)
    return following if name == following.name else current


def get_next_embedder() -> Embedder | None:
    """Return the embedder of the model that is to be active next, if there is one."""
    return _configured("EMBEDDER_NEXT") if settings.EMBEDDER_NEXT else None


def configured_embedders() -> list[Embedder]:
    """All that the settings name. Raise EmbedderMisconfigured."""
    return [embedder for embedder in (_configured("EMBEDDER"), get_next_embedder()) if embedder is not None]


@contextmanager
def using(embedder: Embedder) -> Iterator[None]:
    """Within the block, for this thread, the active model is this one."""
    token = _chosen.set(embedder)
    try:
        yield
    finally:
        _chosen.reset(token)


def _configured(name: str) -> Embedder:
    embedder = _embedders.get(name)
    if embedder is None:
        with _lock:
            embedder = _embedders.get(name) or _embedders.setdefault(name, _build(name))
    return embedder


def _build(name: str) -> Embedder:
    setting: dict[str, Any] = getattr(settings, name)
    try:
        backend = import_string(setting["BACKEND"])
        embedder = backend(**setting.get("OPTIONS", {}))
    except (ImportError, KeyError, TypeError, ImproperlyConfigured) as error:
        raise EmbedderMisconfigured(f"settings.{name} cannot be followed: {error}") from error
    if not isinstance(embedder, Embedder):
        raise EmbedderMisconfigured(f"settings.{name}: {setting['BACKEND']} is not an Embedder.")
    return embedder


def reset_embedder(**_kwargs: Any) -> None:
    """Forget the embedders, so that the next caller builds one."""
    global _lock  # noqa: PLW0603
    # A lock that another thread held while the process forked would stay locked for ever in the child.
    _lock = threading.Lock()
    _embedders.clear()
    active.forget()


def _follow_setting(*, setting: str, **_kwargs: Any) -> None:
    if setting in ("EMBEDDER", "EMBEDDER_NEXT"):
        reset_embedder()


setting_changed.connect(_follow_setting)
# A forked worker inherits neither the model's threads nor the vendor's connections in a usable state.
os.register_at_fork(after_in_child=reset_embedder)
