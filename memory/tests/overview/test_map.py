"""The map: what is on it, how its clusters are named, how it grows, and that it shows nobody what is another's or gone."""

import pytest
from intake.tests.factories import a_person, a_turn
from memory import term_segments
from memory.tests.overview.drawn import draw

pytestmark = pytest.mark.django_db


def test_x():
    alice = a_person()
    for number in range(12):
        a_turn(alice, f"How do I water the tomatoes in the garden, bed {number}?", "Water the soil, not the leaves.")
        a_turn(alice, f"Play me the cello suite number {number} by Bach", "The strings need tuning before a concert.")
    term_segments.flush()
    a = draw(alice)
    print(a)
    from memory.models import TellingWord

    print(list(TellingWord.objects.values_list("kind", "bucket", "rank", "word", "texts")))
    from memory.overview import timeline
    from django.utils import timezone
    from core.isolation.acting import acting_as

    with acting_as(alice):
        t = timeline.read_timeline(user=alice, now=timezone.now())
        print(t)
        print(timeline.read_month(user=alice, first=t.months[0].first).entries[:2])
    assert 0
