"""Checks that the configured embedding model is the one that made the index; with another one, search would fail.

`manage.py check --database default` reports it, and so does a web process or a worker that does not start.
"""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

from memory.backends.embedders import EmbedderError, configured_embedders, require_active
from memory.models import EmbeddingModel

HINT = (
    "Put the old values back, or name the new model in EMBEDDING_NEXT_…, start again, and run "
    "`manage.py switch_embedding_model`."
)


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
