"""`/metrics` for Prometheus: the counters of this web process, its connection pool, and the queue of all of them."""

import hmac
import ipaddress
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.db.models import Min
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from core.isolation.acting import acting_as_staff
from core.metrics import PENDING_VECTORS, POOL, QUEUE_SECONDS
from intake.failures import not_found
from memory.models import Embedding

# It requires `METRICS_TOKEN`. Without that setting it answers requests from this machine or a private network that came
# through no proxy.

CAP = 10_000
# This machine, and private addresses (RFC 1918, RFC 4193).
PRIVATE = [
    ipaddress.ip_network(each)
    for each in ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
]
# psycopg_pool's figures, with our names.
POOL_STATES = {"pool_size": "open", "pool_available": "idle", "requests_waiting": "waited for"}


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not _may_look(request):
        return not_found(request)
    _look_at_the_pool()
    waiting, seconds = queue_of_vectors(now=timezone.now())
    PENDING_VECTORS.set(waiting)
    QUEUE_SECONDS.set(seconds)
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


def _may_look(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        header = request.headers.get("Authorization", "")
        return hmac.compare_digest(header.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    if any(name in request.headers for name in ("X-Forwarded-For", "Forwarded", "Via")):
        return False
    try:
        address = ipaddress.ip_address(request.META.get("REMOTE_ADDR", ""))
    except ValueError:
        return False
    return any(address in network for network in PRIVATE)


def _look_at_the_pool() -> None:
    pool: Any = getattr(connection, "pool", None)
    stats = pool.get_stats() if pool is not None else {}
    for figure, state in POOL_STATES.items():
        POOL.labels(state).set(stats.get(figure, 0))


def queue_of_vectors(*, now: datetime) -> tuple[int, float]:
    """Rows without a vector, and the seconds since the first was due. As staff, who can read the index but no text."""
    with acting_as_staff():
        waiting = Embedding.objects.waiting()
        count = waiting[: CAP + 1].count()
        oldest = waiting.aggregate(oldest=Min("next_attempt_at"))["oldest"]
    return count, max(0.0, (now - oldest).total_seconds()) if oldest else 0.0
