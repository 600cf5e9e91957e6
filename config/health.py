"""`GET /healthz`: whether this process can do its work, for supervisors and load balancers."""

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from memory.embedders import EmbedderError, configured_embedders, get_embedder, require_active


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    parts = {"database": _database_answers(), "embedder": _embedder_is_of_use()}
    return JsonResponse(parts, status=200 if all(parts.values()) else 503)


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return False
    return True


def _embedder_is_of_use() -> bool:
    """Also that it is one which made the index: any other would look for what is not there."""
    try:
        get_embedder().warm_up()
        require_active(*(embedder.name for embedder in configured_embedders()))
    except (EmbedderError, DatabaseError):
        return False
    return True
