"""The process that reads one file: `python -m intake.attachments.reading.child`. Started by `read_safely` alone.

Reads a line of JSON and then the file from its input, and writes a line of JSON for each part, and a last one. It sets
its limits before it reads anything, and refuses by Python what no reader needs: the network, other programs, and files
that are written.
"""

import contextlib
import json
import resource
import signal
import sys
from typing import Any, NoReturn

from intake.attachments.reading.parts import DAMAGED, MEMORY, Unreadable

# Far above what a book of a thousand pages takes.
MEMORY_BYTES = 400 * 1024 * 1024
PROCESSOR_SECONDS = 15
# A little later than the worker gives up.
ALARM_SECONDS = 25
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
    return {"pages": reading.pages, "is_cut": reading.is_cut}


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
        (resource.RLIMIT_CPU, PROCESSOR_SECONDS),
        (resource.RLIMIT_FSIZE, OUTPUT_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        # macOS knows no limit of the memory.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))
    # Should the worker be killed, which would have ended this.
    signal.alarm(ALARM_SECONDS)
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    is_written = event == "open" and isinstance(arguments[1], str) and bool({*arguments[1]} & {*"wax+"})
    if is_written or event.startswith(_REFUSED):
        _end()


def _end() -> NoReturn:
    raise PermissionError("A reader of files may not do that.")


if __name__ == "__main__":
    main()
