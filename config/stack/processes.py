"""Starting the servers and stopping what is ours: processes are known by what they are, never by a bare number."""

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import psutil

from config.stack.places import Account

# In the environment of every process that a supervisor starts; its value is the folder of that supervisor.
MARK = "RECOLLECT_SUPERVISED_IN"


def start_server(
    command: Sequence[str | Path], *, folder: Path, log: Path, account: Account | None, standard_input: bytes = b""
) -> subprocess.Popen[bytes]:
    """Start a server in its own session, in `folder`, as `account`, with an environment that holds nothing of ours."""
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
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    if process.stdin:
        process.stdin.write(standard_input)
        process.stdin.close()
    return process


def find_servers(name: str, folder: Path) -> list[psutil.Process]:
    """Find processes of the program `name` that work in `folder`, as PostgreSQL and Valkey do in their data's."""
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
