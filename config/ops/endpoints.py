"""The endpoints for operators: `/healthz`, `/metrics` and `/.well-known/security.txt`.

`GET /healthz`: reports to supervisors and load balancers whether this process can work.
"""

import hmac
import ipaddress
import os
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.checks import CheckMessage, Error, register
from django.db import DatabaseError, connection
from django.db.models import Min
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from config import VERSION
from config.stack import PROGRAM, RUN
from core.isolation.acting import acting_as_staff
from core.isolation.schema import reads_a_login
from core.logs import PENDING_VECTORS, POOL, QUEUE_SECONDS
from intake.web.middleware import not_found
from memory.backends.embedders import EmbedderError, configured_embedders, get_embedder, require_active
from memory.models import Embedding


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    parts = {"database": reads_a_login(), "embedder": _embedder_is_of_use()}
    # By them a supervisor knows whether this is a process of its own, and which.
    names = {"run": os.environ.get(RUN, ""), "program": os.environ.get(PROGRAM, "")}
    return JsonResponse(parts | names | {"version": VERSION}, status=200 if all(parts.values()) else 503)


def _embedder_is_of_use() -> bool:
    """Also checks that the model made the index; with another one, search could not read it."""
    try:
        get_embedder().warm_up()
        require_active(*(embedder.name for embedder in configured_embedders()))
    except (EmbedderError, DatabaseError):
        return False
    return True


# --- `/metrics` for Prometheus: the counters of this web process, its connection pool, and the queue of the whole
# product ---
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
    _look_at_the_queue()
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST)


def _may_look(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        header = request.headers.get("Authorization", "")
        return hmac.compare_digest(header.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    if "X-Forwarded-For" in request.headers:
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


def _look_at_the_queue() -> None:
    """As staff, who can read the index but no text."""
    now = timezone.now()
    with acting_as_staff():
        waiting = Embedding.objects.waiting()
        PENDING_VECTORS.set(waiting[: CAP + 1].count())
        oldest = waiting.aggregate(oldest=Min("next_attempt_at"))["oldest"]
    QUEUE_SECONDS.set(max(0.0, (now - oldest).total_seconds()) if oldest else 0.0)


# --- `/.well-known/security.txt` (RFC 9116): the contact for security reports, if `SECURITY_CONTACT` is set ---

SCHEMES = ("mailto:", "https://", "tel:")
# The longest time that the RFC recommends.
GOOD_FOR = timedelta(days=364)


@login_not_required
@require_safe
def security_txt(request: HttpRequest) -> HttpResponse:
    if not settings.SECURITY_CONTACT:
        return not_found(request)
    response = HttpResponse(_text(now=timezone.now()), content_type="text/plain; charset=utf-8")
    response["Cache-Control"] = "public, max-age=86400"
    return response


def _text(*, now: datetime) -> str:
    expires = (now + GOOD_FOR).replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [f"Contact: {contact}" for contact in settings.SECURITY_CONTACT]
    return "\n".join([*lines, f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}", "Preferred-Languages: en", ""])


@register
def check_contacts(**kwargs: Any) -> list[CheckMessage]:
    wrong = [contact for contact in settings.SECURITY_CONTACT if not contact.startswith(SCHEMES)]
    hint = f"Begin each contact in SECURITY_CONTACT with one of {', '.join(SCHEMES)}."
    return [Error(f"{contact!r} is no address to be contacted at.", hint=hint, id="config.E001") for contact in wrong]
