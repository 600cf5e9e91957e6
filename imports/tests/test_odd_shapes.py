"""The same words come in from any part of a history: over REST and the page, and as the command line packs it."""

import bz2
import gzip
import io
import shutil

import pytest

from imports.tests.histories import HISTORIES
from imports.tests.over_rest import Importer
from imports.tests.test_every_file_is_accounted_for import zipped
from intake.tests.factories import a_person
from recollect_cli import packing
from recollect_cli.client import Failure

pytestmark = pytest.mark.django_db

((CLAUDE_CODE, CLAUDE_CODE_LOG),) = HISTORIES["claude-code"].items()
((CODEX, CODEX_LOG),) = HISTORIES["codex"].items()
((OPENCLAW, OPENCLAW_LOG),) = HISTORIES["openclaw"].items()
CHATGPT = HISTORIES["chatgpt"]["conversations.json"]

# By shape: its files, what of them is named, and the product that the caller names or none.
SHAPES = {
    "a session's file": ({"s.jsonl": CLAUDE_CODE_LOG}, "s.jsonl", "claude-code"),
    "a session's file of another name": ({"talk.txt": CODEX_LOG}, "talk.txt", "codex"),
    "a project's folder": ({f"p/{CLAUDE_CODE}": CLAUDE_CODE_LOG}, f"p/{CLAUDE_CODE}".rpartition("/")[0], "claude-code"),
    "projects alone": ({f"p/{CLAUDE_CODE}": CLAUDE_CODE_LOG}, "p/projects", "claude-code"),
    "the hidden folder": ({f".claude/{CLAUDE_CODE}": CLAUDE_CODE_LOG}, ".claude", "claude-code"),
    "a home with a hidden folder": ({f"home/.claude/{CLAUDE_CODE}": CLAUDE_CODE_LOG}, "home", "claude-code"),
    "a month's folder": ({f".codex/{CODEX}": CODEX_LOG}, f".codex/{CODEX}".rpartition("/")[0], "codex"),
    "sessions alone": ({f"x/{CODEX}": CODEX_LOG}, "x/sessions", "codex"),
    "sessions of an agent": ({f"x/{OPENCLAW}": OPENCLAW_LOG}, f"x/{OPENCLAW}".rpartition("/")[0], "openclaw"),
    "a zip of a month": ({"month.zip": zipped({CODEX.rpartition("/")[2]: CODEX_LOG})}, "month.zip", "codex"),
    "a zip in a folder": ({"f/month.zip": zipped({CODEX.rpartition("/")[2]: CODEX_LOG})}, "f", "codex"),
    "an unpacked export in a folder": (
        {"f/export/conversations.json": CHATGPT, "f/chat.html": "<html>"},
        "f",
        "chatgpt",
    ),
}


@pytest.fixture
def importer(client):
    client.force_login(a_person())
    return Importer(client)


def made(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_part_of_a_history_comes_in_the_same_in_every_way(importer, tmp_path, shape):
    files, named, product = SHAPES[shape]
    made(tmp_path / "here", files)
    path = tmp_path / "here" / named
    sent = {"a file": (path.read_bytes(), path.name)} if path.is_file() else {}
    if path.is_dir():
        packed = io.BytesIO()
        packing.pack(packing.requested_files(path, None), packed)
        archive = shutil.make_archive(str(tmp_path / "zip"), "zip", path.parent, path.name)
        sent = {"packed by the command": (packed.getvalue(), "f.zip")}
        sent["a zip of it"] = ((tmp_path / archive).read_bytes(), "f.zip")
    results = []
    for data, filename in sent.values():
        for asked in ({}, {"product": product}):
            id_ = importer.upload(data, filename=filename, **asked)
            shown, preview = importer.get(f"{id_}/").json(), importer.get(f"{id_}/preview/").json()
            importer.client.delete(f"/api/v1/imports/{id_}/")
            assert (shown["state"], shown["product"], shown["skipped"]) == ("ready", product, []), shown["error"]
            results.append([(item["external_id"], item["title"], item["turns"]) for item in preview["items"]])
    assert results[0] and all(result == results[0] for result in results)


@pytest.mark.parametrize("packed", [gzip.compress(CHATGPT.encode()), bz2.compress(CHATGPT.encode()), b"Rar!\x1a\x07"])
def test_an_archive_of_another_kind_says_to_unpack_it(importer, packed):
    failed = importer.get(f"{importer.upload(packed, filename='takeout.tgz')}/").json()
    assert failed["error"].startswith("This is packed, and not as a zip: unpack it,")


def test_a_named_product_without_a_history_is_refused_in_the_same_words(importer, tmp_path):
    made(tmp_path, {"letters/diary.docx": "words"})
    failed = importer.get(f"{importer.upload(zipped({'diary.docx': 'words'}), product='codex')}/").json()
    assert failed["state"] == "failed" and "Looked for: " in failed["error"] and "Found: diary.docx" in failed["error"]
    with pytest.raises(Failure, match=r"Looked for what codex has\. Found: diary\.docx"):
        packing.requested_files(tmp_path / "letters", "codex")
