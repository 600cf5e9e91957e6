"""`GET /healthz`: reports to supervisors and load balancers whether this process can work."""

import os

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from config import VERSION
from config.ops.metrics import CAP, queue_of_vectors
from config.stack import PROGRAM, RUN
from core.isolation.fitting import reads_a_login
from memory.backends.embedders import (
    EmbedderError,
    configured_embedders,
    get_embedder,
    require_active,
)


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    # Each question to a database that is away waits for the pool, and a supervisor waits no longer than two of them.
    reads = reads_a_login()
    parts = {"database": reads, "embedder": reads and _embedder_is_of_use()}
    behind = _behind() if reads else None
    # By them a supervisor knows whether this is a process of its own, and which.
    names = {"run": os.environ.get(RUN, ""), "program": os.environ.get(PROGRAM, "")}
    state = parts | names | {"version": VERSION, "behind": behind}
    return JsonResponse(state, status=200 if all(parts.values()) else 503)


def _behind() -> dict[str, int] | None:
    """How many passages wait for a vector, up to `CAP`, and for how long the first one could have been embedded."""
    try:
        waiting, seconds = queue_of_vectors(now=timezone.now())
    except DatabaseError:
        return None
    return {"passages": min(waiting, CAP), "seconds": int(seconds)}


def _embedder_is_of_use() -> bool:
    """Also checks that the model made the index; with another one, search could not read it."""
    try:
        get_embedder().warm_up()
        require_active(*(embedder.name for embedder in configured_embedders()))
    except (EmbedderError, DatabaseError):
        return False
    return True
