"""Reads a file in a process of its own, so that a hostile one costs a sentence and nothing else."""

import base64
import contextlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any, NoReturn

from core.telemetry import SWITCHES
from core.text import Sentence, pg_text, pg_value
from core.text import gettext_noop as _
from intake.attachments.reading.parts import DAMAGED, FAILED, MEMORY, Part, Reading, Unreadable

logger = logging.getLogger(__name__)

SECONDS = 20
TOO_SLOW = _("The file could not be read in %(count)s seconds.")
_CHILD = [sys.executable, "-E", "-s", "-B", "-X", "utf8", "-m", "intake.attachments.reading.process"]
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
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8", **SWITCHES}
    child = subprocess.Popen(  # noqa: S603 - a fixed command
        _CHILD,
        stdin=source,
        stdout=made,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[3],
        env=environment,
        start_new_session=True,
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
    pictures = [base64.b64decode(each) for each in last["pictures"]]
    notes = [Sentence(message, **values) for message, values in last["notes"]]
    peak_kb = int(last["peak_kb"])
    return Reading(parts, last["pages"], bool(last["is_cut"]), notes, peak_kb=peak_kb, pictures=pictures)


# Far above what a book of a thousand pages takes.
MEMORY_BYTES = 400 * 1024 * 1024
# The text of a file in UTF-8 as JSON.
OUTPUT_BYTES = 64 * 1024 * 1024
_REFUSED = ("socket.", "subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.system", "os.remove", "os.rename")


def main() -> None:
    _confine()
    head = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    try:
        last = _read(data, head["name"], head["media_type"])
    except Unreadable as error:
        last = {"unreadable": error.sentence.message, "values": error.sentence.values}
    except MemoryError:
        last = {"unreadable": MEMORY, "values": {}}
    except Exception:
        # A reader stumbled over the file: its words may be the file's.
        last = {"unreadable": DAMAGED, "values": {}}
    _write({**last, "peak_kb": _peak_kb()})
    sys.stdout.flush()


def _read(data: bytes, name: str, media_type: str) -> dict[str, Any]:
    from intake.attachments.reading.formats import read_file

    reading = read_file(data, name, media_type)
    for place, text in reading.parts:
        _write([place, text])
    pictures = [base64.b64encode(each).decode() for each in reading.pictures]
    notes = [[note.message, note.values] for note in reading.notes]
    return {"pages": reading.pages, "is_cut": reading.is_cut, "notes": notes, "pictures": pictures}


def _peak_kb() -> int:
    """Of this process alone: the system's count begins with the one that started it."""
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123 - no Path where little is loaded
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _write(line: Any) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


def _confine() -> None:
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, 15),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        # macOS knows no limit of the memory.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))
    # Should the worker be killed, which would have ended this.
    # A little later than the worker gives up.
    signal.alarm(25)
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    is_written = event == "open" and isinstance(arguments[1], str) and bool({*arguments[1]} & {*"wax+"})
    if is_written or event.startswith(_REFUSED):
        _end()


def _end() -> NoReturn:
    raise PermissionError("A reader of files may not do that.")


if __name__ == "__main__":
    main()
