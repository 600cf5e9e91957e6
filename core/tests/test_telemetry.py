"""What libraries report to their vendors is off wherever a process begins, and what an earlier version left is deleted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from core import telemetry
from intake.attachments.reading import process

LEFT = Path("Microsoft/DeveloperTools/.onnxruntime")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def leave(cache, events):
    folder = cache / LEFT
    folder.mkdir(parents=True)
    (folder / "deviceid").write_text("01890a5d-ac96-7ab2-9f10-1f6c0b7e2a11")
    (folder / "onnxruntime.db").write_bytes(b"SQLite format 3\0")
    (folder / "onnxruntime.db-wal").write_bytes(events)
    (folder.parent / "deviceid").write_text("of another program")
    return folder


@pytest.mark.parametrize("module", ["config", "config.stack", "config.settings", "recollect_cli.__main__"])
def test_a_process_that_begins_with_any_of_our_modules_reports_to_nobody(module):
    code = f"import {module}, os, sys; print(*map(os.environ.get, sys.argv[1:]), 'onnxruntime' in sys.modules)"
    command = [sys.executable, "-c", code, *telemetry.SWITCHES]
    environment = {"PATH": os.defpath, "ORT_DISABLE_TELEMETRY": "0"}
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*telemetry.SWITCHES.values(), "False"]


def test_the_process_that_reads_files_reports_to_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "_CHILD", ["/usr/bin/env"])
    with (tmp_path / "source").open("w+b") as source, (tmp_path / "made").open("w+b") as made:
        process._run(source, made)
    assert {f"{name}={value}" for name, value in telemetry.SWITCHES.items()} <= {
        *(tmp_path / "made").read_text().split()
    }


@pytest.mark.parametrize(
    "file", ["Dockerfile", "docker-compose.yml", "deploy/recollect.service", "deploy/recollect.plist"]
)
def test_containers_and_services_report_to_nobody(file):
    text = (settings.BASE_DIR / file).read_text()
    assert [name for name in telemetry.SWITCHES if name not in text] == []


def test_what_names_this_product_is_deleted_and_nothing_above_it(cache):
    folder = leave(cache, b"modelProducerName\x12recollect")
    telemetry.delete_our_queue()
    assert not folder.exists()
    assert (folder.parent / "deviceid").exists()
    telemetry.delete_our_queue()


def test_what_another_program_has_left_is_found_and_stays(cache):
    assert telemetry.queue_folder() is None
    folder = leave(cache, b"modelProducerName\x12pytorch")
    telemetry.delete_our_queue()
    assert telemetry.queue_folder() == folder
    assert len([*folder.iterdir()]) == 3
