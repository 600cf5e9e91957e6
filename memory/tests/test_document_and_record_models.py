"""What the database itself holds to, whoever writes."""

from datetime import date

import pytest
from django.db import IntegrityError, transaction

from intake.tests.factories import a_person
from memory.models import MemoryDocument, MemoryRecord

pytestmark = pytest.mark.django_db

DAY = date(2026, 3, 1)


def a_document(user, kind="memory", day=None, project=""):
    return MemoryDocument.objects.create(user=user, kind=kind, date=day, project=project)


def test_each_person_has_one_memory_and_one_log_a_day():
    alice, bob = a_person(), a_person("bob@example.com")
    for user in (alice, bob):
        a_document(user)
        a_document(user, "daily_log", DAY)
        a_document(user, "daily_log", date(2026, 3, 2))
    for kind, day in (("memory", None), ("daily_log", DAY)):
        with pytest.raises(IntegrityError, match="memory_documents_once"), transaction.atomic():
            a_document(alice, kind, day)


def test_each_project_has_one_memory_and_one_log_a_day_beside_the_general_ones():
    alice = a_person()
    for project in ("", "garden", "kitchen"):
        a_document(alice, project=project)
        a_document(alice, "daily_log", DAY, project)
    for kind, day in (("memory", None), ("daily_log", DAY)):
        with pytest.raises(IntegrityError, match="memory_documents_once"), transaction.atomic():
            a_document(alice, kind, day, "garden")


def test_the_page_about_a_person_belongs_to_no_project():
    with pytest.raises(IntegrityError, match="memory_documents_one_about_me"):
        a_document(a_person(), "about", project="garden")


def test_a_document_named_without_a_project_is_the_general_one():
    alice = a_person()
    garden, general = a_document(alice, project="garden"), a_document(alice)
    log, garden_log = a_document(alice, "daily_log", DAY), a_document(alice, "daily_log", DAY, "garden")
    mine = MemoryDocument.objects.for_user(alice)
    assert [mine.on(None).get(), mine.on(None, "garden").get()] == [general, garden]
    assert [mine.on(DAY).get(), mine.on(DAY, "garden").get()] == [log, garden_log]


@pytest.mark.parametrize(("kind", "day"), [("memory", DAY), ("daily_log", None), ("diary", DAY), ("diary", None)])
def test_a_log_has_a_date_and_nothing_else_has(kind, day):
    with pytest.raises(IntegrityError, match="memory_documents_logs_have_dates"):
        a_document(a_person(), kind, day)


def test_personal_queries_begin_with_the_person():
    alice, bob = a_person(), a_person("bob@example.com")
    mine, log = a_document(alice), a_document(alice, "daily_log", DAY)
    record = MemoryRecord.objects.create(user=alice, content="We chose PostgreSQL", type="decision", tags=["db"])
    a_document(bob)
    MemoryRecord.objects.create(user=bob, content="Bob's", type="fact")
    assert MemoryDocument.objects.for_user(alice).on(None).get() == mine
    assert MemoryDocument.objects.for_user(alice).on(DAY).get() == log
    assert MemoryRecord.objects.for_user(alice).get() == record


def test_deleting_a_person_deletes_what_they_kept():
    alice = a_person()
    a_document(alice)
    MemoryRecord.objects.create(user=alice, content="x", type="fact")
    alice.delete()
    assert not MemoryDocument.objects.exists()
    assert not MemoryRecord.objects.exists()
