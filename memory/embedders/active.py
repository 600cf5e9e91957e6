"""Which model is active, so that its vectors are the ones that are searched: the database says so to every process."""

import asyncio
import time

from memory.embedders.base import EmbedderMisconfigured

# How long a process goes by what it knew last: while models are switched, two processes may differ for as long.
SECONDS = 1.0

_known: tuple[float, str | None] | None = None


def active_name() -> str | None:
    """The active model's name; None where none was ever switched to, and so whatever is configured is active."""
    global _known  # noqa: PLW0603
    if _known is not None and time.monotonic() - _known[0] < SECONDS:
        return _known[1]
    if _is_in_event_loop():
        # It may not wait for the database. It asks at start-up only, to have a model loaded.
        return None
    name = read_active_name()
    _known = (time.monotonic(), name)
    return name


def read_active_name() -> str | None:
    from memory.models import EmbeddingModel  # its module needs the embedders'

    return EmbeddingModel.objects.active().values_list("name", flat=True).first()


def require(*configured: str) -> None:
    """Raise EmbedderMisconfigured if none of these models made the index: search would look for what is not there."""
    name = read_active_name()
    if name is not None and name not in configured:
        raise EmbedderMisconfigured(
            f"The index was made with the embedding model {name}, and the settings name {' and '.join(configured)}: "
            "name it again in EMBEDDING_…, and put another one into EMBEDDING_NEXT_… to switch to."
        )


def forget() -> None:
    global _known  # noqa: PLW0603
    _known = None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
