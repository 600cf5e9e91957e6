"""Files are read in a process of their own, which a hostile file may spoil, and nothing else."""

import time
from pathlib import Path

import pytest

from intake.attachments.reading import Part, Unreadable, process
from intake.attachments.reading.process import read_safely
from testing import files

OPEN_FILES = Path("/proc/self/fd")
ENDED_WELL = """print('{"pages": null, "is_cut": false, "pictures": [], "notes": [], "peak_kb": 1}')"""


def test_a_file_is_read_in_a_process_of_its_own():
    reading = read_safely(files.pdf(["Grüße (aus Köln)"]), "a.pdf", "application/pdf")
    assert (reading.parts, reading.pages, reading.is_cut) == ([Part("page 1", "Grüße (aus Köln)")], 1, False)
    assert 0 < reading.peak_kb < 100_000


def test_the_reason_of_a_refusal_comes_out_of_the_process():
    with pytest.raises(Unreadable) as raised:
        read_safely(files.encrypted_pdf(), "a.pdf", "")
    assert raised.value.sentence.message == "The file is protected by a password."


def test_the_process_gets_nothing_of_the_environment(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://secret")
    in_child(monkeypatch, "import os, json; print(json.dumps(['', repr(dict(os.environ))]))\n" + ENDED_WELL)
    assert "secret" not in read_safely(b"a", "a.txt", "").parts[0].text


def in_child(monkeypatch, program, *, is_confined=False):
    """What a hostile file makes of the process: it runs this."""
    if is_confined:
        program = f"from intake.attachments.reading import process\nprocess._confine()\n{program}"
    monkeypatch.setattr(process, "_CHILD", [*process._CHILD[:-2], "-c", program])


def sentence_of(data=b"a"):
    with pytest.raises(Unreadable) as raised:
        read_safely(data, "a.txt", "")
    return str(raised.value.sentence)


def test_a_process_that_takes_too_long_is_ended(monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 1)
    in_child(monkeypatch, "import time; time.sleep(600)")
    assert sentence_of() == "The file could not be read in 1 seconds."


@pytest.mark.medium
def test_a_process_that_computes_for_too_long_is_ended_by_its_limit(monkeypatch):
    in_child(
        monkeypatch,
        "from intake.attachments.reading import process\nprocess.PROCESSOR_SECONDS = 1\nprocess._confine()\nwhile True: pass",
    )
    assert sentence_of() == "The file could not be read in 20 seconds."


def test_a_process_that_takes_too_much_memory_gets_none(monkeypatch):
    in_child(monkeypatch, f"x = bytes({process.MEMORY_BYTES})\n{ENDED_WELL}", is_confined=True)
    assert sentence_of() == "The file could not be read."


def test_a_process_that_writes_too_much_is_ended(monkeypatch):
    in_child(monkeypatch, f"import os\nfor _ in range({process.OUTPUT_BYTES} // 65536 + 9): os.write(1, b'a' * 65536)",
             is_confined=True)  # fmt: skip
    assert sentence_of() == "The file could not be read."


@pytest.mark.parametrize(
    "deed",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "open('/tmp/written', 'w')",
    ],
)
def test_the_process_may_use_no_network_start_nothing_and_write_no_file(monkeypatch, deed):
    program = (
        f"import json\ntry:\n    {deed}\nexcept PermissionError:\n    print(json.dumps(['', 'refused']))\n{ENDED_WELL}"
    )
    in_child(monkeypatch, program, is_confined=True)
    assert [part.text for part in read_safely(b"a", "a.txt", "").parts] == ["refused"]


@pytest.mark.parametrize(
    "program", ["import os; os.abort()", "print('{')", "print('[1, 2]')", "", "import sys; sys.exit(3)"]
)
def test_a_process_that_dies_or_talks_nonsense_costs_a_sentence(monkeypatch, program):
    in_child(monkeypatch, program)
    assert sentence_of() == "The file could not be read."


@pytest.mark.medium
@pytest.mark.skipif(not OPEN_FILES.exists(), reason="The system does not list them.")
def test_no_open_file_is_left():
    before = len(list(OPEN_FILES.iterdir()))
    for _ in range(3):
        read_safely(b"a", "a.txt", "")
    assert len(list(OPEN_FILES.iterdir())) == before


@pytest.mark.extended
@pytest.mark.parametrize("what", files.HOSTILE)
def test_a_hostile_file_costs_a_sentence_or_is_read(what):
    name, make = files.HOSTILE[what]
    data = make()
    began = time.monotonic()
    try:
        peak_kb = read_safely(data, name, "").peak_kb
    except Unreadable as error:
        assert str(error.sentence).endswith(".")
        peak_kb = error.peak_kb
    assert time.monotonic() - began < process.SECONDS + 5
    assert peak_kb < 500 * 1024
