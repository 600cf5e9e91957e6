"""`make up`: the servers that come in wheels, and the supervisor of all processes."""

import os
import sys


def use_utf8() -> None:
    """Run the same command in Python's UTF-8 mode, unless text is UTF-8 already: files and sentences are."""
    import locale

    used = (locale.getpreferredencoding(False), sys.stdout.encoding if sys.stdout else "")
    if not sys.flags.utf8_mode and any(each.lower() != "utf-8" for each in used):
        os.environ["PYTHONUTF8"] = "1"
        os.environ.pop("PYTHONIOENCODING", None)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same command


class StackError(Exception):
    """A problem that the user can fix; the message is one sentence that says what it is and what to do."""


# The exit status of a program that must not run as things are: its last line says why, and trying again is of no use.
REFUSED = os.EX_CONFIG
# In the environment of the programs: the run that they belong to, their name in it, the folder of the servers' data,
# and the file that a worker touches with each task.
RUN, PROGRAM, DATA, TASKS = "RECOLLECT_RUN", "RECOLLECT_PROGRAM", "RECOLLECT_DATA", "RECOLLECT_TASKS"
# The setting for the number of web processes that share one address.
WEB_PROCESSES = "WEB_PROCESSES"
