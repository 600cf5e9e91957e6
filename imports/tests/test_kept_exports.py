"""The exports that version 1.0 wrote come in as they did, from Markdown too.

The owner's texts contain marks, escapes, front matter and odd line ends.
"""

import json
import zipfile
from pathlib import Path

import pytest

from chat import exporting
from imports.reading.items import Notice
from imports.reading.products import read
from imports.tests.test_recollect_round_trip import bytes_by_name, importer_of
from intake.models import User
from intake.tests.factories import NOW
from memory.tests.attached import read_all

pytestmark = pytest.mark.django_db

MARKDOWN, JSON = (Path(__file__).with_name("kept") / f"1.0-{form}.zip" for form in ("markdown", "json"))
OWNER = {"email": "alice@example.com", "pk": 1}
WRITTEN = json.loads(zipfile.ZipFile(JSON).read("recollect.json"))
PARTS = ("projects", "conversations", "documents", "records", "proposals")


def of_1_0(value, written):
    """The value with the fields that 1.0 wrote."""
    if isinstance(written, dict):
        return {name: of_1_0(value[name], each) for name, each in written.items()}
    return [of_1_0(*pair) for pair in zip(value, written, strict=True)] if isinstance(written, list) else value


def exported(user):
    document = json.loads(b"".join(exporting.account_as_json(user=user, now=NOW)))
    return {part: of_1_0(document[part], WRITTEN[part]) for part in PARTS}


def test_the_markdown_of_1_0_gives_the_items_of_its_json():
    # Beside them the account's activity, which is no message.
    *items, left_out = read(MARKDOWN)
    assert isinstance(left_out, Notice)
    assert items == list(read(JSON))


@pytest.mark.medium
@pytest.mark.parametrize("first", [MARKDOWN, JSON], ids=["markdown", "json"])
def test_exports_of_1_0_come_back_to_their_owner_with_ids_and_times_and_twice_is_once(first):
    owner = User.objects.create_user(**OWNER)
    for path in (first, MARKDOWN, JSON):
        done = importer_of(owner).bring(path.read_bytes())
        assert (done["state"], done["skipped"]) == ("done", [])
        read_all()
        assert exported(owner) == {part: WRITTEN[part] for part in PARTS}
        assert [name for name, *_ in bytes_by_name(owner)] == ["lease.pdf", "room.png", "lease.pdf"]
