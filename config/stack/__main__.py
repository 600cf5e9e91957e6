"""`make up` and `make down`, as `python -m config.stack up|down`: one supervisor for each `var`.

It first ends the processes that a killed supervisor left. A StackError is printed as its one sentence.
"""

import argparse
import os
import signal
import sys
import time
from http import HTTPStatus

from config.stack import StackError, use_utf8
from config.stack.lock import RunLock
from config.stack.paths import STOP_COMMAND, full_disk, reason, refuse_another_data_folder, servers_dir, var_dir
from config.stack.preflight import check_port, read_environment
from config.stack.processes import find_marked, find_servers, stop
from config.stack.supervisor import Address, RunPaths, Supervisor, ask_there, say

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    use_utf8()
    arguments = _parse()
    # Logs, passwords and the address are private.
    os.umask(0o077)
    read_environment()
    try:
        if arguments.command == "down":
            down()
        elif arguments.command == "status":
            status()
        else:
            up(Address(arguments.host, _port(arguments.port)), demo=arguments.demo)
    except (StackError, OSError) as error:
        sys.exit(reason(error))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m config.stack", description="Run Recollect on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start everything, and stop it on Ctrl-C")
    start.add_argument("--host", default="127.0.0.1")
    start.add_argument("--port", default="8000")
    start.add_argument("--demo", action="store_true", help="load the sample data")
    commands.add_parser("down", help="stop what `up` started")
    commands.add_parser("status", help="say where it answers; exit status 1 if it does not")
    return parser.parse_args()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**16):
        raise StackError(f"{text} is not a port: choose one from 1 to 65535, as in `make up PORT=8000`.")
    return int(text)


def up(address: Address, *, demo: bool) -> None:
    """Run everything until a signal ends it; raises StackError if something prevents the start."""
    paths = RunPaths(var_dir())
    refuse_another_data_folder(paths.var)
    paths.make()
    lock = RunLock(paths.lock)
    if not lock.acquire():
        _report_running(paths, lock)
        return
    paths.address.unlink(missing_ok=True)
    if _end_earlier_run(paths):
        say("Stopped what an earlier run had left behind.")
    if full := full_disk(paths.var, servers_dir(paths.var)):
        raise StackError(full)
    check_port(address.host, address.port)
    supervisor = Supervisor(paths, address)
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.default_int_handler)
    try:
        supervisor.start(demo=demo)
        supervisor.watch()
    except KeyboardInterrupt:
        say("Stopping …")
    finally:
        for number in ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        supervisor.stop()
        _end_earlier_run(paths)
    say("Stopped.")


def down() -> None:
    """Stop the supervisor and its processes, or those that a killed one left."""
    paths = RunPaths(var_dir())
    if not paths.lock.exists():
        say("Nothing is running.")
        return
    lock = RunLock(paths.lock)
    was_running = not lock.acquire()
    if was_running:
        _end_holder(lock)
    left_behind = _end_earlier_run(paths)
    paths.address.unlink(missing_ok=True)
    say("Stopped." if was_running or left_behind else "Nothing is running.")
    if full := full_disk(paths.var, servers_dir(paths.var)):
        say(full)


def status() -> None:
    """Raises StackError unless a web process of the present run answers and is well."""
    address = RunPaths(var_dir()).address
    if not address.exists():
        raise StackError("Nothing is running, or it has not started yet.")
    answer = ask_there(address)
    if not answer.text.startswith(f"{HTTPStatus.OK:d} "):
        raise StackError(f"{address.read_text()}/healthz: {answer.text}.")
    say(f"Recollect runs at {address.read_text()}.")


def _report_running(paths: RunPaths, lock: RunLock) -> None:
    """Wait until the supervisor that holds the lock has an address, and print it."""
    deadline = time.monotonic() + 200
    is_announced = False
    while time.monotonic() < deadline and not lock.acquire():
        if paths.address.exists():
            say(f"Recollect is already running at {paths.address.read_text()} (`{STOP_COMMAND}` stops it).")
            return
        if not is_announced:
            say("Recollect is already starting …")
            is_announced = True
        time.sleep(0.2)
    say("Recollect was being started elsewhere and did not come up: run the command again.")


def _end_holder(lock: RunLock) -> None:
    """End the supervisor that holds the lock: while it does, the number in the file is its own."""
    holder = lock.holder()
    # A supervisor starts or stops all its parts in less time.
    deadline = time.monotonic() + 20
    if holder:
        os.kill(holder, signal.SIGTERM)
    while not lock.acquire():
        if time.monotonic() > deadline and holder:
            os.kill(holder, signal.SIGKILL)
        time.sleep(0.05)


def _end_earlier_run(paths: RunPaths) -> bool:
    """Stop the processes that a killed supervisor left; returns whether there were any."""
    root = servers_dir(paths.var)
    programs = find_marked(paths.var)
    brokers = find_servers("valkey-server", root / "broker")
    databases = find_servers("postgres", root / "data")
    stop(programs, grace=4)
    stop(brokers, grace=2)
    stop(databases, grace=6, by=signal.SIGINT)
    return bool(programs or brokers or databases)


if __name__ == "__main__":
    main()
