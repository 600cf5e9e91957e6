"""The interface of rerankers, and the configured one: a model that reads the query and a text together.

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
    """No scores could be computed. The message is for people: it never contains a user's text or a key."""


class RerankerMisconfigured(RerankerError):
    """A retry does not help: a file or a setting, named in the message, must change first."""


class Reranker(ABC):
    """One instance serves all threads of a process."""

    name: str

    @abstractmethod
    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """Return how well each text answers the query, as log odds: 0 is as likely as not.

        When the time is up it returns only the scores of the first texts, possibly none. Raise a RerankerError.
        """

    def warm_up(self) -> None:  # noqa: B027 (an endpoint loads nothing here)
        """Load everything that the first query would wait for. Raise RerankerMisconfigured."""


_lock = threading.Lock()
_reranker: Reranker | None = None


def get_reranker() -> Reranker | None:
    """Return the reranker that `settings.RERANKER` names, if any. Raise RerankerMisconfigured if it is invalid."""
    global _reranker  # noqa: PLW0603
    setting: dict[str, Any] | None = settings.RERANKER
    if not setting:
        return None
    with _lock:
        if _reranker is None:
            _reranker = _build(setting)
        return _reranker


def warm_up_reranker() -> None:
    """Load everything that the first search would wait for. A failure is logged: search works without a reranker."""
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
    # A lock that another thread held during the fork would stay locked forever in the child.
    _lock = threading.Lock()
    _reranker = None


def _follow_setting(*, setting: str, **_kwargs: Any) -> None:
    if setting == "RERANKER":
        reset_reranker()


setting_changed.connect(_follow_setting)
os.register_at_fork(after_in_child=reset_reranker)
