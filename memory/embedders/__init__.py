"""The configured embedding models, each shared by a process's threads; one of them is active.

Normally `EMBEDDER` is the only model. During a switch to another one, that one is `EMBEDDER_NEXT`, and the database
says which of the two is active (docs/decisions/0016).
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from memory.embedders.base import (
    Calibration,
    Embedder,
    EmbedderError,
    EmbedderLeftAlone,
    EmbedderMisconfigured,
    EmbedderRefused,
    EmbedderSlow,
    EmbedderUnavailable,
)

__all__ = [
    "Calibration",
    "Embedder",
    "EmbedderError",
    "EmbedderLeftAlone",
    "EmbedderMisconfigured",
    "EmbedderRefused",
    "EmbedderSlow",
    "EmbedderUnavailable",
    "configured_embedders",
    "get_embedder",
    "get_next_embedder",
    "read_active_name",
    "require_active",
    "using",
]

logger = logging.getLogger(__name__)

# How long a process uses the name of the active model that it read last. During a switch, two processes may differ for
# as long.
ACTIVE_NAME_SECONDS = 1.0

_lock = threading.Lock()
# By the name of the setting.
_embedders: dict[str, Embedder] = {}
_active_name: tuple[float, str | None] | None = None
_chosen: ContextVar[Embedder | None] = ContextVar("embedder", default=None)


def get_embedder() -> Embedder:
    """Return the active model's embedder, which made the index and embeds queries and new texts.

    Raise EmbedderMisconfigured if the settings are invalid, or name other models than the active one.
    """
    if (chosen := _chosen.get()) is not None:
        return chosen
    current, following = _configured("EMBEDDER"), get_next_embedder()
    if following is None:
        return current
    name = _recent_active_name()
    if name not in (None, current.name, following.name):
        require_active(current.name, following.name)
    return following if name == following.name else current


def get_next_embedder() -> Embedder | None:
    """Return the embedder of the next model, during a switch."""
    return _configured("EMBEDDER_NEXT") if settings.EMBEDDER_NEXT else None


def configured_embedders() -> list[Embedder]:
    """All configured embedders. Raise EmbedderMisconfigured."""
    return [embedder for embedder in (_configured("EMBEDDER"), get_next_embedder()) if embedder is not None]


def _recent_active_name() -> str | None:
    """The active model's name, read periodically; None before anything is indexed, when the settings decide."""
    global _active_name  # noqa: PLW0603
    if _active_name is not None and time.monotonic() - _active_name[0] < ACTIVE_NAME_SECONDS:
        return _active_name[1]
    if _is_in_event_loop():
        # This code must not wait for the database; it only loads a model at start-up.
        return None
    name = read_active_name()
    _active_name = (time.monotonic(), name)
    return name


def read_active_name() -> str | None:
    from memory.models import EmbeddingModel  # its module imports this one

    return EmbeddingModel.objects.active().values_list("name", flat=True).first()


def require_active(*configured: str) -> None:
    """Raise EmbedderMisconfigured if none of these models made the index: search could not read it."""
    name = read_active_name()
    if name is not None and name not in configured:
        raise EmbedderMisconfigured(
            f"The index was made with the embedding model {name}, and the settings name {' and '.join(configured)}: "
            "name it again in EMBEDDING_…, and put another one into EMBEDDING_NEXT_… to switch to."
        )


def forget_active_name() -> None:
    global _active_name  # noqa: PLW0603
    _active_name = None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def using(embedder: Embedder) -> Iterator[None]:
    """Within the block, this model is the active one for this thread."""
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
    if embedder.calibration is None:
        logger.warning("Nobody has tuned search for %s: it is measured on each person's own vectors", embedder.name)
    return embedder


def reset_embedder(**_kwargs: Any) -> None:
    """Remove the embedders, so that the next caller builds new ones."""
    global _lock  # noqa: PLW0603
    # A lock that another thread held during the fork would stay locked forever in the child.
    _lock = threading.Lock()
    _embedders.clear()
    forget_active_name()


def _follow_setting(*, setting: str, **_kwargs: Any) -> None:
    if setting in ("EMBEDDER", "EMBEDDER_NEXT"):
        reset_embedder()


setting_changed.connect(_follow_setting)
# A forked worker cannot use the inherited threads of the model or the vendor's connections.
os.register_at_fork(after_in_child=reset_embedder)
