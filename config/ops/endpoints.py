"""The endpoints for operators: `/healthz`, `/metrics`, `/.well-known/security.txt`, and the pages of index and version.

`GET /healthz`: reports to supervisors and load balancers whether this process can work.
"""

import hmac
import ipaddress
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.checks import CheckMessage, Error, register
from django.db import DatabaseError, connection
from django.db.models import Min
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from chat.pages.staff import note_action, staff_page
from config import VERSION
from config.ops.doctor import REDIS_AWAY, queue_lengths
from config.stack import PROGRAM, RUN
from core.isolation.acting import acting_as_staff
from core.isolation.checks import reads_a_login
from core.logs import PENDING_VECTORS, POOL, QUEUE_SECONDS
from intake import passwords
from intake.middleware import not_found
from memory.admin import requeue
from memory.backends.embedders import (
    EmbedderError,
    configured_embedders,
    get_embedder,
    read_active_name,
    require_active,
)
from memory.index.health import IndexHealth, index_health
from memory.models import Corpus, Embedding


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    parts = {"database": reads_a_login(), "embedder": _embedder_is_of_use()}
    behind = _behind() if parts["database"] else None
    # By them a supervisor knows whether this is a process of its own, and which.
    names = {"run": os.environ.get(RUN, ""), "program": os.environ.get(PROGRAM, "")}
    state = parts | names | {"version": VERSION, "behind": behind}
    return JsonResponse(state, status=200 if all(parts.values()) else 503)


def _behind() -> dict[str, int] | None:
    """How many passages wait for a vector, up to `CAP`, and for how long the first one could have been embedded."""
    try:
        waiting, seconds = _queue(now=timezone.now())
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


# --- `/metrics` for Prometheus: the counters of this web process, its connection pool, and the queue of the whole
# product ---
# It requires `METRICS_TOKEN`. Without that setting it answers requests from this machine or a private network that came
# through no proxy.

CAP = 10_000
_LINK = re.compile(r"\[([^\[\]]{1,300})\]\([^()\s]{1,500}\)")
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


def _look_at_the_queue() -> None:
    waiting, seconds = _queue(now=timezone.now())
    PENDING_VECTORS.set(waiting)
    QUEUE_SECONDS.set(seconds)


def _queue(*, now: datetime) -> tuple[int, float]:
    """Rows without a vector, and the seconds since the first was due. As staff, who can read the index but no text."""
    with acting_as_staff():
        waiting = Embedding.objects.waiting()
        count = waiting[: CAP + 1].count()
        oldest = waiting.aggregate(oldest=Min("next_attempt_at"))["oldest"]
    return count, max(0.0, (now - oldest).total_seconds()) if oldest else 0.0


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


# --- `/staff/index/`: what waits for a vector, what failed and why, and how much the tables hold ---

# Without their texts: the owner of a table alone may read it, and everybody may know its size.
_SIZES = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 2 DESC LIMIT 20
"""


@staff_page
@require_http_methods(["GET", "HEAD", "POST"])
def index_page(request: HttpRequest) -> HttpResponse:
    """A form has the failed texts embedded again."""
    now = timezone.now()
    if request.method == "POST":
        with acting_as_staff():
            failed = Embedding.objects.waiting().exclude(last_error="")
            count = requeue(Embedding.objects.quarantined(), now=now) + requeue(failed, now=now)
        note_action(request, "retried")
        done = ngettext("%(count)s passage is tried again.", "%(count)s passages are tried again.", count)
        messages.success(request, done % {"count": number_format(count, force_grouping=True)})
        return HttpResponseRedirect(reverse("staff_index"))
    with acting_as_staff():
        health = index_health(now=now)
    with connection.cursor() as cursor:
        cursor.execute(_SIZES)
        sizes = cursor.fetchall()
    active = read_active_name()
    context = {
        "health": health,
        "speed": _speed(health),
        "queues": _queues(),
        "sizes": sizes,
        "size": sum(size for _table, size in sizes),
        "kinds": list(zip(_kinds(), health.by_corpus, strict=True)),
        "active": active,
        "others": [share for share in health.by_model if share.name != active],
        "can_retry": health.failed.value or health.quarantined.value,
        "tab": "index",
    }
    return render(request, "intake/staff/index.html", context)


def _kinds() -> list[str]:
    names = {Corpus.CHAT: _("Chats"), Corpus.DAILY_LOG: _("Daily logs"), Corpus.RECORD: _("Records")}
    names[Corpus.ATTACHMENT] = _("Files")
    return [names.get(corpus, corpus.label) for corpus in Corpus]


def _queues() -> list[tuple[str, int]] | None:
    """None while Redis does not answer."""
    passwords.give_connections_back()
    try:
        return sorted(queue_lengths().items())
    except REDIS_AWAY:
        return None


def _speed(health: IndexHealth) -> str:
    """Such as "Slow: 0.5 texts a second, 3 h left"; empty if nothing waits."""
    if not health.waiting.value:
        return ""
    left = health.seconds_left
    if left is None:
        return _("Nothing was embedded in the last hour. See whether the worker runs.")
    speed = float(f"{health.recent.per_second:.2g}")
    values = {"speed": number_format(speed if speed % 1 else int(speed)), "left": _time_in_words(left)}
    if health.slowness:
        return _("Slow: %(speed)s texts a second, %(left)s left") % values
    return _("%(speed)s texts a second, %(left)s left") % values


def _time_in_words(seconds: float) -> str:
    for size, words in ((86_400, _("%(count)s d")), (3600, _("%(count)s h")), (60, _("%(count)s min"))):
        if seconds >= size:
            return words % {"count": round(seconds / size)}
    return _("%(count)s s") % {"count": round(seconds)}


# --- `/about/`: the version, what is new in it, and the licences of what is shipped ---

CHANGES = settings.BASE_DIR / "CHANGELOG.md"


@never_cache
@require_safe
def about(request: HttpRequest) -> HttpResponse:
    """For everybody who is logged in."""
    context = {"version": VERSION, "licence": "MIT", "news": _news(), "packages": _packages()}
    return render(request, "intake/about.html", context)


@lru_cache(maxsize=1)
def _news() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The newest dated section of the changelog: headings with their entries, in English as they are written."""
    text = CHANGES.read_text() if CHANGES.exists() else ""
    section = re.split(r"^## \S+ - \d{4}-\d\d-\d\d$", text, flags=re.MULTILINE)
    if len(section) == 1:
        return ()
    return tuple(_entries(re.split(r"^## ", section[1], flags=re.MULTILINE)[0]))


def _entries(section: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
        heading, _line, body = part.partition("\n")
        entries = (" ".join(entry.split()) for entry in re.split(r"^- ", body, flags=re.MULTILINE)[1:])
        # A link leads to a file of the repository, which is not served.
        yield heading, tuple(_LINK.sub(r"\1", entry).replace("`", "") for entry in entries)


# The script that draws diagrams, which `requirements/vendor.sh` fetches and `make audit` looks up.
SHIPPED_FILES = {"mermaid": ("11.17.2", "MIT")}


@lru_cache(maxsize=1)
def _packages() -> tuple[tuple[str, str, str], ...]:
    """Name, version and licence of every installed package, as its own metadata have them, and of shipped files."""
    found = {each.metadata["Name"]: (each.version, _licence(each)) for each in distributions() if each.metadata}
    found |= SHIPPED_FILES
    return tuple((name, *found[name]) for name in sorted(found, key=str.lower))


def _licence(package: Distribution) -> str:
    """An SPDX expression (PEP 639), or else the names in its metadata; empty if the package declares none."""
    metadata = package.metadata
    if expression := metadata["License-Expression"]:
        return expression
    names = [line.split(" :: ")[-1] for line in metadata.get_all("Classifier") or [] if line.startswith("License :: ")]
    # Some packages have the licence's whole text in place of its name.
    first, *rest = (metadata["License"] or "").strip().splitlines() or [""]
    return first.strip() if first and not (rest and names) else ", ".join(names)
