"""`GET /healthz`: reports to supervisors and load balancers whether this process can work."""

import os

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from config.stack import PROGRAM, RUN
from core.schema import reads_a_login
from memory.embedders import EmbedderError, configured_embedders, get_embedder, require_active


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    parts = {"database": reads_a_login(), "embedder": _embedder_is_of_use()}
    # By them a supervisor knows whether this is a process of its own, and which.
    names = {"run": os.environ.get(RUN, ""), "program": os.environ.get(PROGRAM, "")}
    return JsonResponse(parts | names, status=200 if all(parts.values()) else 503)


def _embedder_is_of_use() -> bool:
    """Also checks that the model made the index; with another one, search could not read it."""
    try:
        get_embedder().warm_up()
        require_active(*(embedder.name for embedder in configured_embedders()))
    except (EmbedderError, DatabaseError):
        return False
    return True
