"""The models that settings name: one instance of each, shared by a process's threads."""

import logging
import os
import threading
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

logger = logging.getLogger(__name__)

_lock = threading.Lock()
# By the name of the setting.
_made: dict[str, Any] = {}


def configured(name: str, kind: type[Any], error: type[Exception]) -> Any:
    """The instance that this setting describes. Raises the error if the setting cannot be followed."""
    with _lock:
        if name not in _made:
            _made[name] = _build(name, kind, error)
        return _made[name]


def _build(name: str, kind: type[Any], error: type[Exception]) -> Any:
    setting: dict[str, Any] = getattr(settings, name)
    try:
        made = import_string(setting["BACKEND"])(**setting.get("OPTIONS", {}))
    except (ImportError, KeyError, TypeError, ImproperlyConfigured) as reason:
        raise error(f"settings.{name} cannot be followed: {reason}") from reason
    if not isinstance(made, kind):
        raise error(f"settings.{name}: {setting['BACKEND']} is no {kind.__name__}.")
    if getattr(made, "calibration", True) is None:
        logger.warning("Search is not tuned for %s: its scale is measured on each user's own vectors", made.name)
    return made


def _forget(setting: str | None = None, **_kwargs: Any) -> None:
    """The next caller gets a new instance: of one setting, or of each in a forked worker, which cannot use the
    inherited threads of a model or the vendor's connections.
    """
    global _lock  # noqa: PLW0603
    # A lock that another thread held during the fork would stay locked forever in the child.
    _lock = threading.Lock()
    for name in [setting] if setting else [*_made]:
        _made.pop(name, None)


setting_changed.connect(_forget)
os.register_at_fork(after_in_child=_forget)
