"""Quotas: what a person may keep, refused with a code where it is added, and counted anew once something is deleted."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from core import rate_limits
from core.errors import QuotaExceeded, RateLimited, Unavailable
from core.isolation.acting import Caller, acting_as
from intake.chats import deleting, services
from intake.models import Turn
from intake.models.installation import read_kept_settings
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_person, a_turn, a_visitor
from memory import documents, quotas, records
from memory.models import MemoryDocument
from memory.tests.attached import read_all
from memory.tests.attached import say as say_with
from testing import files

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(quotas, "_known", {})


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def api(alice):
    api = APIClient()
    api.force_authenticate(alice)
    return api


def say(user, message="Hello"):
    caller = Caller(user_id=user.pk)
    with acting_as(caller):
        return services.create_turn(services.TurnRequest(message=message), caller=caller, now=NOW)


def test_a_turn_too_many_is_refused_and_not_kept_until_another_is_deleted(alice, settings):
    settings.QUOTA_TURNS = 3
    bob = a_person("bob@example.com")
    first = a_turn(alice, "Imported")
    for _ in range(2):
        say(alice)
    with pytest.raises(QuotaExceeded):
        say(alice)
    assert Turn.objects.filter(user=alice).count() == 3
    assert say(bob).pk
    with acting_as(alice):
        deleting.delete_conversation(caller=Caller(user_id=alice.pk), conversation_id=first.conversation_id)
    assert say(alice).pk


def test_counting_costs_nothing_without_a_quota_and_little_with_one(alice, settings, django_assert_num_queries):
    read_kept_settings()
    with django_assert_num_queries(0):
        quotas.take(alice.pk, turns=1)
    settings.QUOTA_TURNS = 10
    quotas.take(alice.pk, turns=1)
    with django_assert_num_queries(0):
        quotas.take(alice.pk, turns=1)


def test_documents_records_and_imports_beyond_the_quota_of_bytes_are_refused_by_its_code(alice, api, settings):
    settings.QUOTA_BYTES = 2_000
    with acting_as(alice):
        documents.append(user=alice, day=None, text="x" * 1_000, now=NOW)
    body = {"content": "y" * 1_500}
    import_ = {"filename": "export.zip", "bytes": 10}
    for path, sent in (("memory/records", body), ("imports", import_)):
        settings.QUOTA_BYTES = 2_000 if sent is body else 1
        refused = api.post(f"/api/v1/{path}/", sent, format="json")
        assert (refused.status_code, refused.json()["code"]) == (413, "quota_exceeded"), path
        assert refused.json()["retryable"] is False
    settings.QUOTA_BYTES = 200_000
    assert api.post("/api/v1/memory/records/", body, format="json").status_code == 201


def test_what_is_rewritten_may_become_shorter_beyond_the_quota_and_not_longer(alice, api, settings):
    record = records.create(user=alice, content="y" * 1_500, now=NOW)
    with acting_as(alice):
        documents.append(user=alice, day=None, text="x" * 1_500, now=NOW)
        note = documents.create_note(user=alice, title="A note", content="z" * 1_500, at=NOW)
    settings.QUOTA_BYTES = 1_000

    def replace(content):
        documents.replace(user=alice, day=None, content=content, expected=None, now=NOW)

    def rewrite_note(content):
        documents.rewrite_note(user=alice, note_id=note.pk, title="A note", content=content, at=NOW)

    def rewrite_record(content):
        records.rewrite(user=alice, record_id=record.id, content=content, now=NOW)

    for rewrite in (replace, rewrite_note, rewrite_record):
        rewrite("x" * 1_000)
        with pytest.raises(QuotaExceeded):
            rewrite("x" * 1_001)
    assert {each.content for each in MemoryDocument.objects.all()} == {"x" * 1_000}
    longer = api.patch(f"/api/v1/memory/records/{record.id}/", {"content": "x" * 1_001}, format="json")
    assert (longer.status_code, longer.json()["code"]) == (413, "quota_exceeded")


def test_more_records_wait_while_too_many_passages_wait_for_a_vector(alice, api, settings):
    settings.QUOTA_VECTORS_WAITING = 2
    for content in ("One", "Two"):
        records.create(user=alice, content=content, now=NOW)
    refused = api.post("/api/v1/memory/records/", {"content": "Three"}, format="json")
    assert (refused.status_code, refused.json()["code"], refused["Retry-After"]) == (429, "rate_limited", "60")
    assert say(alice).pk, "a chat goes on"


def test_the_account_page_says_how_much_there_is_and_may_be(alice, settings):
    a_turn(alice, "Hello")
    client = Client()
    client.force_login(alice)
    assert "of 1,000" not in client.get(reverse("intake:account")).text
    settings.QUOTA_TURNS = 1_000
    assert "1 of 1,000" in client.get(reverse("intake:account")).text


def test_threads_together_take_no_more_than_the_quota(alice, settings):
    settings.QUOTA_TURNS = 50
    quotas._known[alice.pk] = (time.monotonic(), quotas.Holdings())
    taken, begin = [], threading.Barrier(8)

    def take_some():
        begin.wait()
        for _ in range(5):
            quotas.take(alice.pk, turns=1)
            taken.append(1)

    # Switches threads as often as possible.
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            [done.result() for done in [threads.submit(take_some) for _ in range(8)]]
    finally:
        sys.setswitchinterval(before)
    assert quotas._known[alice.pk][1].turns == len(taken) == 40


def test_a_measure_that_another_thread_forgets_meanwhile_is_no_error(alice, settings, monkeypatch):
    settings.QUOTA_TURNS = 10
    measure = quotas.measure

    def forgotten_at_once(user_id):
        stored = measure(user_id)
        quotas._known.clear()
        return stored

    monkeypatch.setattr(quotas, "measure", forgotten_at_once)
    quotas.take(alice.pk, turns=1)


def test_a_quota_of_files_counts_each_content_once_and_spares_the_texts(alice, settings):
    settings.QUOTA_FILE_BYTES = 2500
    counted = {"take_room": partial(quotas.take_file, Caller(user_id=alice.pk))}
    a_file(alice, b"a" * 1000, **counted)
    a_file(alice, b"a" * 1000, "again.txt", **counted)
    a_file(alice, b"b" * 1000, **counted)
    with pytest.raises(QuotaExceeded, match=r"2\.4\sKB of files"):
        a_file(alice, b"c" * 1000, **counted)
    assert say(alice, "Words have a quota of their own").pk
    assert quotas.measure(alice.pk).file_bytes == 2000


def test_a_visitor_has_a_small_quota_of_files(monkeypatch):
    monkeypatch.setattr("memory.quotas.VISITOR_FILE_BYTES", 1000)
    visitor = a_visitor()
    counted = {"take_room": partial(quotas.take_file, Caller(user_id=visitor.pk, is_visitor=True))}
    a_file(visitor, b"a" * 900, **counted)
    with pytest.raises(QuotaExceeded):
        a_file(visitor, b"b" * 200, **counted)


def test_the_texts_of_files_count_as_text_and_then_no_further_file_is_taken(alice, settings):
    settings.QUOTA_BYTES = 100_000
    counted = {"take_room": partial(quotas.take_file, Caller(user_id=alice.pk))}
    a_file(alice, files.docx(files.docx_paragraph("The same words. " * 20_000)), "words.docx", **counted)
    read_all()
    assert quotas.measure(alice.pk).bytes > 150_000
    with pytest.raises(QuotaExceeded, match="of text"):
        a_file(alice, b"one more", **counted)


def test_before_the_first_message_a_visitor_holds_one_small_file():
    visitor = a_visitor()
    with pytest.raises(QuotaExceeded, match="one file of at most 5"):
        a_file(visitor, b"a" * (5 * 1024**2 + 1))
    first = a_file(visitor, b"first")
    with pytest.raises(QuotaExceeded, match="Send it, and attach others to the next"):
        a_file(visitor, b"second")
    say_with(visitor, first)
    assert a_file(visitor, b"a" * 6_000_000).pk


def test_no_file_is_taken_that_would_fill_the_disk(alice, settings, tmp_path, monkeypatch):
    settings.DATABASE_FOLDER = str(tmp_path)
    monkeypatch.setattr("intake.attachments.services.FREE_BYTES", 2**60)
    with pytest.raises(Unavailable, match="The disk is full"):
        a_file(alice)


def test_what_strangers_upload_has_a_lid_for_each_address(limited):
    limited(attachment="120/minute")
    for _ in range(10):
        rate_limits.take_bytes_of_visitor(5_000_000, address="192.0.2.7")
    with pytest.raises(RateLimited):
        rate_limits.take_bytes_of_visitor(5_000_000, address="192.0.2.7")
    rate_limits.take_bytes_of_visitor(5_000_000, address="192.0.2.8")
