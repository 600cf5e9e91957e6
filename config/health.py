"""`GET /healthz`: whether this process can do its work, for whoever starts, balances or restarts it."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from memory.embedders import EmbedderError, get_embedder


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    parts = {"database": _database_answers(), "embedder": _embedder_is_loaded()}
    return JsonResponse(parts, status=200 if all(parts.values()) else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _embedder_is_loaded() -> bool:
    try:
        get_embedder().warm_up()
    except EmbedderError:
        return False
    return True
