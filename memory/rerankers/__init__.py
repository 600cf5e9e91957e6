"""The interface of a reranker, and the one that the settings name: a model that reads the query and a text together.

A process's threads share it. An installation may have none.
"""

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

logger = logging.getLogger(__name__)


class RerankerError(Exception):
    """No scores could be had. The message is for people: it never holds text of theirs, nor a key."""


class RerankerMisconfigured(RerankerError):
    """Trying again changes nothing: a file or a setting, named in the message, has to change first."""


class Reranker(ABC):
    """One instance serves all threads of a process."""

    name: str

    @abstractmethod
    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """Return how well each text answers the query, as log odds: 0 is as likely as not.

        When the time is up it returns the scores of the first texts only, at worst none. Raise a RerankerError.
        """

    def warm_up(self) -> None:  # noqa: B027 (an endpoint loads nothing here)
        """Load what the first query would otherwise wait for. Raise RerankerMisconfigured."""


_lock = threading.Lock()
_reranker: Reranker | None = None


def get_reranker() -> Reranker | None:
    """Return what `settings.RERANKER` names, if anything. Raise RerankerMisconfigured when it cannot be followed."""
    global _reranker  # noqa: PLW0603
    setting: dict[str, Any] | None = settings.RERANKER
    if not setting:
        return None
    with _lock:
        if _reranker is None:
            _reranker = _build(setting)
        return _reranker


def warm_up_reranker() -> None:
    """Load what the first search would otherwise wait for. What cannot be loaded is logged: search does without it."""
    try:
        if (reranker := get_reranker()) is not None:
            reranker.warm_up()
    except RerankerError:
        logger.exception("The reranker cannot be loaded, and searches have no second look")


def _build(setting: dict[str, Any]) -> Reranker:
    try:
        reranker = import_string(setting["BACKEND"])(**setting.get("OPTIONS", {}))
    except (ImportError, KeyError, TypeError, ImproperlyConfigured) as error:
        raise RerankerMisconfigured(f"settings.RERANKER cannot be followed: {error}") from error
    if not isinstance(reranker, Reranker):
        raise RerankerMisconfigured(f"settings.RERANKER: {setting['BACKEND']} is not a Reranker.")
    return reranker


def reset_reranker(**_kwargs: Any) -> None:
    global _lock, _reranker  # noqa: PLW0603
    # A lock that another thread held while the process forked would stay locked for ever in the child.
    _lock = threading.Lock()
    _reranker = None


def _follow_setting(*, setting: str, **_kwargs: Any) -> None:
    if setting == "RERANKER":
        reset_reranker()


setting_changed.connect(_follow_setting)
os.register_at_fork(after_in_child=reset_reranker)
