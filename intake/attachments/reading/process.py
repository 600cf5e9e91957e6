"""Reads a file in a process of its own, so that a hostile one costs a sentence and nothing else."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from core.text import gettext_noop as _
from core.text import pg_text, pg_value
from intake.attachments.reading.parts import FAILED, Part, Reading, Unreadable

logger = logging.getLogger(__name__)

SECONDS = 20
TOO_SLOW = _("The file could not be read in %(count)s seconds.")
_ROOT = Path(__file__).resolve().parents[3]
_CHILD = [sys.executable, "-E", "-s", "-B", "-X", "utf8", "-m", "intake.attachments.reading.child"]
# The child's limits end it with these: of time, and of output.
_OF_TIME = {signal.SIGXCPU, signal.SIGKILL}


def read_safely(data: bytes, name: str, media_type: str) -> Reading:
    """The text of a file. Raises `Unreadable` with the sentence why not; takes at most `SECONDS`.

    Files carry both directions, so that no pipe fills up, and the system limits the size of the output.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as made:
        source.write(json.dumps({"name": name, "media_type": media_type}).encode() + b"\n")
        source.write(data)
        source.seek(0)
        status = _run(source, made)
        made.seek(0)
        return _reading(made, status)


def _run(source: IO[bytes], made: IO[bytes]) -> int:
    """The exit status; negative for the signal that ended it, and SIGKILL's if its time was up."""
    # Nothing of the environment, which has the passwords of this server.
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    child = subprocess.Popen(  # noqa: S603 - a fixed command
        _CHILD, stdin=source, stdout=made, stderr=subprocess.DEVNULL, cwd=_ROOT, env=environment, start_new_session=True
    )
    try:
        return child.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        child.wait()


def _reading(made: IO[bytes], status: int) -> Reading:
    if -status in _OF_TIME:
        raise Unreadable(TOO_SLOW, count=SECONDS)
    parts: list[Part] = []
    last: dict[str, Any] = {}
    try:
        for line in made:
            match json.loads(line):
                case [str(place), str(text)]:
                    parts.append(Part(pg_text(place), pg_text(text)))
                case dict() as found:
                    last = pg_value(found)
    except ValueError:
        last = {}
    if last.get("unreadable"):
        raise Unreadable(last["unreadable"], peak_kb=int(last["peak_kb"]), **last["values"])
    if status != 0 or not last:
        logger.warning("A file ended its reader: status %d", status)
        raise Unreadable(FAILED)
    return Reading(parts, last["pages"], is_cut=bool(last["is_cut"]), peak_kb=int(last["peak_kb"]))
