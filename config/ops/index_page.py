"""`/staff/index/`: what waits for a vector, what failed and why, and how much the tables hold."""

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from chat.pages.common import done
from chat.pages.staff import note_action, staff_page
from config.ops.doctor import REDIS_AWAY, queue_lengths
from core.isolation.acting import acting_as_staff
from intake import passwords
from memory.admin import requeue
from memory.backends.embedders import (
    read_active_name,
)
from memory.index.health import IndexHealth, index_health
from memory.models import Corpus, Embedding

# Without their texts: the owner of a table alone may read it, and everybody may know its size.
_SIZES = """
SELECT relname, pg_total_relation_size(oid) FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 2 DESC LIMIT 20
"""


@staff_page
def index_page(request: HttpRequest) -> HttpResponse:
    """A form has the failed texts embedded again."""
    now = timezone.now()
    if request.method == "POST":
        with acting_as_staff():
            failed = Embedding.objects.waiting().exclude(last_error="")
            count = requeue(Embedding.objects.quarantined(), now=now) + requeue(failed, now=now)
        note_action(request, "retried")
        again = ngettext("%(count)s passage is tried again.", "%(count)s passages are tried again.", count)
        return done(request, again % {"count": number_format(count, force_grouping=True)}, "staff_index")
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
