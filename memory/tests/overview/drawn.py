"""Maps for tests, drawn as a worker draws them."""

from datetime import timedelta

from django.utils import timezone

from core.isolation.acting import acting_as
from memory import index
from memory.overview import atlas, drawing
from testing.examiner import as_a_worker


def draw(user) -> atlas.MapOutput:
    """What is new is embedded, the person looks, a worker draws what is due, and they look again."""
    index.embed_pending()
    look(user)
    draw_due()
    return look(user)


def look(user) -> atlas.MapOutput:
    with acting_as(user):
        return atlas.read_atlas(user=user, now=timezone.now())


def draw_due() -> int:
    """Also what was drawn a moment ago and is behind."""
    from memory.models import MemoryMap

    MemoryMap.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    with as_a_worker():
        return drawing.draw_due(until=timezone.now() + timedelta(minutes=5))
