"""Checks that the configured embedding model is the one that made the index; with another one, search would fail.

`manage.py check --database default` reports it, and so does a web process or a worker that does not start.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

from memory.backends.embedders import EmbedderError, configured_embedders, require_active
from memory.models import EmbeddingModel, MemoryMap

HINT = (
    "Put the old values back, or name the new model in EMBEDDING_NEXT_…, start again, and run "
    "`manage.py switch_embedding_model`."
)


@register
def check_map_layout(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    if settings.MAP_LAYOUT not in MemoryMap.Method:
        known = ", ".join(MemoryMap.Method)
        return [Error(f"MAP_LAYOUT is {settings.MAP_LAYOUT!r}.", hint=f"It is one of: {known}.", id="memory.E002")]
    if settings.MAP_LAYOUT == MemoryMap.Method.TSNE and importlib.util.find_spec("openTSNE") is None:
        hint = "Install the extra: `uv pip install 'recollect[map]'`, or leave MAP_LAYOUT out."
        return [Error("MAP_LAYOUT is tsne, and openTSNE is not installed.", hint=hint, id="memory.E003")]
    return []


@register(Tags.database)
def check_embedding_model(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    tables = connections["default"].introspection.table_names() if "default" in (databases or ()) else []
    if EmbeddingModel._meta.db_table not in tables:
        return []
    try:
        require_active(*(embedder.name for embedder in configured_embedders()))
    except EmbedderError as error:
        return [Error(str(error), hint=HINT, id="memory.E001")]
    return []
