"""Every time that a person reads is in their own zone, wherever the server is: pages, answers, tools and imports."""

import re
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from core.isolation.acting import acting_as
from imports.models import Import, ImportedItem
from imports.reading.items import ImportedDocument
from imports.storing import documents as keeping
from intake.chats.tree import conversation_path
from intake.models import User, day_in_words, local_time
from intake.tests.factories import a_person, a_turn
from memory import documents, index, records
from memory.models import MemoryDocument
from testing import ZONE_OF_PEOPLE

# On this day in Los Angeles; the day after in UTC, and in Auckland.
EVENING = datetime(2026, 2, 4, 3, 30, tzinfo=UTC)
APPS = ("agent_tools", "chat", "config", "core", "imports", "intake", "memory")


@pytest.fixture
def alice(transactional_db):
    return a_person()


def test_the_suite_runs_far_from_its_people():
    assert (settings.TIME_ZONE, ZONE_OF_PEOPLE) == ("Pacific/Auckland", "America/Los_Angeles")


def test_recall_mode_says_the_days_of_chats_and_notes_in_the_persons_zone(alice, log_in, logged):
    a_turn(alice, "The risotto was for the dinner on the boat", said_at=EVENING)
    with acting_as(alice):
        records.create(user=alice, content="The risotto needs a dry wine on the boat", now=EVENING)
    index.embed_pending()
    events = log_in(alice).events("What about the risotto on the boat?")
    text = "".join(event.data["text"] for event in events if event.name == "delta")
    assert re.findall(r"\*\*(\d+ \w+ \d+)\*\*", text) == ["3 February 2026"] * 2


def test_search_memory_writes_the_day_in_the_persons_zone(alice):
    with acting_as(alice):
        records.create(user=alice, content="The risotto needs a dry wine", now=EVENING)
    index.embed_pending()
    client = Client()
    client.force_login(alice)
    answer = client.post(
        "/api/v1/tools/search_memory/", {"query": "risotto wine"}, content_type="application/json"
    ).json()
    assert "2026-02-03" in answer["text"]


@pytest.mark.parametrize(("at", "day"), [(EVENING, date(2026, 2, 3)), (date(2026, 2, 3), date(2026, 2, 3))])
def test_an_imported_note_is_of_its_day_in_the_persons_zone(alice, at, day):
    log = ImportedDocument(product="notes", external_id="log", kind="daily_log", title="", text="It rained", at=at)
    note = ImportedDocument(product="notes", external_id="note", title="Rain", text="It rained a lot", at=at)
    with acting_as(alice):
        batch = Import.objects.create(user=alice, filename="x.zip", bytes=1)
        keeping.keep_all([log, note], user=alice, brought_by=batch)
    kept = MemoryDocument.objects.for_user(alice)
    assert kept.get(date__isnull=False).date == day
    assert alice.local_time(kept.notes().get().updated_at).date() == day
    assert ImportedItem.objects.for_user(alice).count() == 2


def test_pages_show_times_in_the_persons_zone_without_scripts(alice):
    turn = a_turn(alice, "At night", said_at=EVENING)
    with acting_as(alice):
        documents.append(user=alice, day=None, text="A line", now=EVENING)
    client = Client()
    client.force_login(alice)
    page = client.get(conversation_path(turn.conversation_id)).text
    assert 'datetime="2026-02-03T19:30:00-08:00">3 Feb 2026, 19:30 PST' in page
    assert "3 Feb" in client.get(f"{conversation_path(turn.conversation_id)}outline/").text
    assert "3 Feb 2026, 19:30" in client.get("/memory/").text


@pytest.mark.django_db
def test_a_reader_without_an_account_has_no_zone_of_the_servers():
    # A word: the random characters of a token have any two letters.
    assert not re.search(r"\bNZ\b|\bNZ[DS]T\b|Auckland", Client().get("/login/").text)


def test_a_moment_at_the_ends_of_the_calendar_has_a_day():
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        for zone in ("Pacific/Auckland", "America/Los_Angeles"):
            assert local_time(moment, User(time_zone=zone).zone).date() == moment.date()
    assert day_in_words(date(1, 2, 3)) == "3 February 1"


# Where a moment may become a day and an hour in another way: in UTC by name, or for Django's own templates.
ELSEWHERE = {"intake/models/users.py", "intake/middleware.py"}
MADE_LOCAL = re.compile(
    r"\.astimezone\((?!UTC\)|\)\.isoformat)|\blocaltime\(|created_at\.date\(|said_at\.date\(|[^.]updated_at\.date\("
)


def test_one_function_says_a_time_to_a_person():
    found = [
        f"{path.relative_to(settings.BASE_DIR)}:{number}: {line.strip()}"
        for app in APPS
        for path in sorted((Path(settings.BASE_DIR) / app).rglob("*.py"))
        if "tests" not in path.parts and "testing" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if MADE_LOCAL.search(line) and str(path.relative_to(settings.BASE_DIR)) not in ELSEWHERE
    ]
    # Inside a request Django's own function does it, in the zone that the middleware has activated.
    assert [line for line in found if not re.match(r"(chat/templatetags/recollect|memory/admin_lists)\.py", line)] == []
