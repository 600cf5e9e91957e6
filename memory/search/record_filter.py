"""What a search among memory records may be narrowed by, as a condition: built here, evaluated by the database."""

from typing import TYPE_CHECKING

from django.db.models import Q

if TYPE_CHECKING:
    from memory.search.records import MemorySearchQuery


def build_filter(query: "MemorySearchQuery") -> Q | None:
    """Any of the types, and the project, and any of the tags: a condition on `MemoryRecord`.

    What is empty or None narrows nothing; None when nothing does.
    """
    conditions = []
    if query.types:
        conditions.append(Q(type__in=list(query.types)))
    if query.project_id:
        conditions.append(Q(project_id=query.project_id))
    if query.tags:
        conditions.append(Q(tags__overlap=list(query.tags)))
    return Q(*conditions) if conditions else None
