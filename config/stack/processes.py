"""Starts, watches and stops the servers and this project's programs.

A process is identified by its environment, or by its name and folder, never only by its number.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from pwd import struct_passwd

import psutil

from config.stack import REFUSED, StackError
from config.stack.paths import BASE_DIR, reason

# In the environment of every process that a supervisor starts; the value is the supervisor's folder.
MARK = "RECOLLECT_SUPERVISED_IN"
SHOWN_LEVELS = (" ERROR ", " CRITICAL ", "PANIC: ")


def start_server(
    command: Sequence[str | Path],
    *,
    folder: Path,
    log: Path,
    account: struct_passwd | None,
    standard_input: bytes = b"",
) -> subprocess.Popen[bytes]:
    """Start a server in its own session, in `folder`, as `account`, without our environment."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.defpath, "TZ": "UTC"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o077,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
    if process.stdin:
        process.stdin.write(standard_input)
        process.stdin.close()
    return process


def find_servers(name: str, folder: Path) -> list[psutil.Process]:
    """Find processes of the program `name` that work in `folder`, as PostgreSQL and Valkey do."""
    return [process for process in psutil.process_iter() if _is_server(process, name, folder)]


def find_marked(var: Path) -> list[psutil.Process]:
    """Find processes that a supervisor of `var` started, and their children."""
    return [process for process in psutil.process_iter() if _mark(process) == str(var)]


def stop(processes: Iterable[psutil.Process], *, grace: float, by: signal.Signals = signal.SIGTERM) -> None:
    """Ask every process to end, wait `grace` seconds, and kill the rest."""
    waiting = list(processes)
    _send(waiting, by)
    _, stubborn = psutil.wait_procs(waiting, timeout=grace)
    _send(stubborn, signal.SIGKILL)
    psutil.wait_procs(stubborn, timeout=grace)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _is_server(process: psutil.Process, name: str, folder: Path) -> bool:
    try:
        return process.name() == name and process.cwd() == str(folder)
    except psutil.Error:
        return False


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


class Service(ABC):
    """A server or a program, in a process of its own that writes a log. Starting and stopping twice are harmless."""

    name: str
    log: Path
    # How it is asked to end, and how many seconds later it is killed.
    ends_by, grace = signal.SIGTERM, 4.0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @abstractmethod
    def start(self) -> None: ...

    def stop(self) -> None:
        """End it, and then the children that it has left."""
        if self._process and self.is_running:
            process = psutil.Process(self._process.pid)
            children = process.children(recursive=True)
            stop([process], grace=self.grace, by=self.ends_by)
            stop(children, grace=0)
            self._process.wait()
        self._process = None


class Program(Service):
    """A Python module of this project, run in a session of its own with its output in a log.

    Uvicorn and Celery finish their work within the grace; the sweep finds any work that a worker loses here.
    """

    def __init__(self, name: str, arguments: Sequence[str], *, environment: dict[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = [sys.executable, "-m", *arguments]
        self._environment = environment

    def start(self) -> None:
        if self.is_running:
            return
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=BASE_DIR,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def has_refused(self) -> bool:
        """Whether it has ended because it must not run as things are."""
        return self._process is not None and self._process.poll() == REFUSED


@dataclass
class Watch:
    """Watches one service: restarts it when it dies, with delays that grow with the number of failures."""

    service: Service
    deaths: int = 0
    started_at: float = 0.0
    _start_at: float = 0.0
    _last_reason: str = ""

    def start(self) -> None:
        self.started_at = time.monotonic()
        self._start_at = 0.0
        self.service.start()

    def start_or_wait(self) -> str:
        """Start the service, or plan another attempt; returns a sentence if it could not start for a new reason."""
        try:
            self.start()
        except (StackError, OSError) as error:
            why = reason(error)
            self._plan()
            is_new, self._last_reason = why != self._last_reason, why
            return f"{self.service.name} cannot start and is tried again: {why}" if is_new else ""
        self._last_reason = ""
        return ""

    def _plan(self) -> int:
        """Returns the seconds until the next attempt."""
        # A service that dies at once is started twice a minute.
        wait: int = min(2 ** min(self.deaths, 10) - 1, 30)
        self.deaths += 1
        self._start_at = time.monotonic() + wait
        return wait

    def tend(self) -> str:
        """Start the service if it is due; returns a sentence if it has just died or cannot start, otherwise nothing."""
        now = time.monotonic()
        if self.service.is_running:
            # A service that lived this long before it died is restarted at once; one that died sooner waits longer each
            # time. A worker waits for its database before it gives up.
            if now - self.started_at > 30:
                self.deaths = 0
            return ""
        if self._start_at:
            return self.start_or_wait() if now >= self._start_at else ""
        wait = self._plan()
        return f"{self.service.name} ended and is started again{f' in {wait} s' if wait else ''}."


class LogReader:
    """Reads the new lines of a log, and selects those that a user should see."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._last = ""

    def new_errors(self) -> list[str]:
        """Return new lines of level ERROR and above without their time; a repeated one only once."""
        errors = []
        for line in self._new_lines():
            if not any(level in line for level in SHOWN_LEVELS):
                continue
            text = line.split(" ", 2)[-1]
            if text != self._last:
                errors.append(text)
                self._last = text
        return errors

    def turn_over(self, largest: int) -> None:
        """Keep a log of more bytes as the former one; its program goes on writing into the emptied file."""
        if self.path.exists() and self.path.stat().st_size > largest:
            shutil.copyfile(self.path, self.path.with_name(f"{self.path.name}.1"))
            os.truncate(self.path, 0)
            self._offset = 0

    def _new_lines(self) -> list[str]:
        if not self.path.exists() or self.path.stat().st_size <= self._offset:
            return []
        with self.path.open("rb") as log:
            log.seek(self._offset)
            added = log.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


def begin_log(path: Path) -> Path:
    """Move the log of the previous run, so that each run begins a new one."""
    if path.exists():
        path.replace(path.with_name(f"{path.name}.1"))
    return path


def last_lines(log: Path) -> str:
    if not log.exists():
        return ""
    # The last lines usually say the reason.
    return "\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-12:])
