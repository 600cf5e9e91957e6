"""Documents and records in the export of an account: one's own, whole."""

import json

import pytest
from django.utils import timezone

from intake.chats import exporting
from intake.tests.factories import NOW, a_person
from memory import documents, records

pytestmark = pytest.mark.django_db


def test_an_export_has_the_persons_documents_and_records_and_nobody_elses():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    documents.append(user=alice, day=None, text="Tea, not coffee", now=NOW)
    documents.append(user=alice, day=NOW.date(), text="Planted beans", now=NOW)
    records.create(user=alice, content="We use PostgreSQL", now=NOW, project_id="p", tags=["db"])
    records.create(user=bob, content="Bob's", now=NOW)
    document = json.loads(b"".join(exporting.account_as_json(user=alice, now=timezone.now())))
    assert [(item["kind"], item["date"], item["content"].strip()) for item in document["documents"]] == [
        ("daily_log", "2026-03-01", "Planted beans"),
        ("memory", None, "Tea, not coffee"),
    ]
    [record] = document["records"]
    assert (record["content"], record["project_id"], record["tags"]) == ("We use PostgreSQL", "p", ["db"])
