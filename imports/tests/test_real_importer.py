"""The importing worker as a process, on a real broker: an upload over HTTP, events while it is at work, a kill."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from urllib.parse import urlsplit

import pytest
from celery import current_app
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone

from imports.models import ImportJob
from imports.services import MAX_CHUNK
from imports.storing.conversations import BATCH_TURNS
from imports.tests.exports import chatgpt
from intake.models import Conversation, Turn
from testing.sse_client import read_events

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]

URL = "/api/v1/imports/"
PATIENCE = 120
# Three of the batches that the worker stores at once.
TURNS = 3 * BATCH_TURNS


def start_importer(log, imports_dir):
    address = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "config",
            "worker",
            "--without-gossip",
            "--queues=imports",
            "-n",
            f"importer-{time.monotonic_ns()}",
        ],
        cwd=django_settings.BASE_DIR,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "config.settings.local",
            "SECRET_KEY": "for tests only",
            "DATABASE_URL": address.geturl(),
            "IMPORTS_DIR": str(imports_dir),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def kill(process):
    """All of it at once, as the kernel does when memory runs out."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)


def events_of(client, id_):
    with client.stream("GET", f"{URL}{id_}/events/", timeout=PATIENCE) as response:
        assert response.status_code == 200
        for event in read_events(response.iter_lines()):
            yield event.data


def test_an_upload_is_read_stored_and_told_of_also_when_its_worker_is_killed(
    server, settings, person, stranger, log_in, tmp_path, imports_dir
):
    settings.EMBEDDER = {
        "BACKEND": "memory.backends.minilm.MiniLMEmbedder",
        "OPTIONS": {"cache_dir": settings.MODEL_CACHE_DIR},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as export:
        export.writestr("conversations.json", json.dumps(chatgpt(conversations=TURNS // 10, turns=10)))
    data = buffer.getvalue()
    client = log_in(person)
    csrf = {"X-CSRFToken": client.cookies["csrftoken"]}
    log = tmp_path / "importer.log"
    with log.open("w") as output:
        importer = start_importer(output, imports_dir)
        try:
            begun = client.post(URL, json={"filename": "export.zip", "bytes": len(data)}, headers=csrf).json()
            for first in range(0, len(data), MAX_CHUNK):
                chunk = data[first : first + MAX_CHUNK]
                response = client.put(
                    begun["content_url"],
                    content=chunk,
                    headers={
                        **csrf,
                        "Content-Type": "application/octet-stream",
                        "Content-Range": f"bytes {first}-{first + len(chunk) - 1}/{len(data)}",
                    },
                )
                assert response.status_code == 200, response.text
            states = [event["state"] for event in events_of(client, begun["id"])]
            assert states[-1] == "ready", log.read_text()
            client.post(f"{URL}{begun['id']}/start/", json={}, headers=csrf)
            deadline = time.monotonic() + PATIENCE
            while not Turn.objects.exists():
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            kill(importer)
            assert client.get(f"{URL}{begun['id']}/").json()["state"] in ("running", "done")
            # As if the lease of the first attempt were over.
            ImportJob.objects.update(due_at=timezone.now())
            importer = start_importer(output, imports_dir)
            current_app.send_task("imports.sweep")
            *_, last = events_of(client, begun["id"])
            assert (last["state"], last["stored"]["turns"]) == ("done", TURNS), log.read_text()
        finally:
            kill(importer)
    assert Turn.objects.count() == TURNS
    assert Conversation.objects.count() == TURNS // 10
    assert "sourdough" not in log.read_text(), "no words in the log"
    found = client.post("/api/v1/tools/search_history/", json={"query": "sourdough number 7"}, headers=csrf).json()
    assert found["results"]
    others = log_in(stranger)
    missing = others.get(f"{URL}0190c0de-0000-7000-8000-000000000001/events/")
    theirs = others.get(f"{URL}{begun['id']}/events/")
    assert (theirs.status_code, theirs.content) == (missing.status_code, missing.content) == (404, theirs.content)
