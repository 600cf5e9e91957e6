"""`make up` and `make down`: one supervisor for each `var`, whatever became of the one before."""

import os
import signal
import time

from config.stack.given import check_port
from config.stack.lock import RunLock
from config.stack.places import servers_dir, var_dir
from config.stack.processes import find_marked, find_servers, stop
from config.stack.supervisor import Address, Places, Supervisor, say

# A supervisor stops its parts in less, and starts them all in less.
STOP_SECONDS = 20
START_SECONDS = 200
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def up(address: Address, *, demo: bool) -> None:
    """Run everything until a signal ends it; raises StackError when something is in the way."""
    places = Places(var_dir())
    places.make()
    lock = RunLock(places.lock)
    if not lock.acquire():
        _report_running(places, lock)
        return
    places.address.unlink(missing_ok=True)
    if _end_earlier_run(places):
        say("Stopped what an earlier run had left behind.")
    check_port(address.host, address.port)
    supervisor = Supervisor(places, address)
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
        _end_earlier_run(places)
    say("Stopped.")


def down() -> None:
    """Stop the supervisor and what it started, or what a killed one left behind."""
    places = Places(var_dir())
    if not places.lock.exists():
        say("Nothing is running.")
        return
    lock = RunLock(places.lock)
    was_running = not lock.acquire()
    if was_running:
        _end_holder(lock)
    left_behind = _end_earlier_run(places)
    places.address.unlink(missing_ok=True)
    say("Stopped." if was_running or left_behind else "Nothing is running.")


def _report_running(places: Places, lock: RunLock) -> None:
    """Wait until the supervisor that holds the lock has an address, and print it."""
    deadline = time.monotonic() + START_SECONDS
    said = False
    while time.monotonic() < deadline and not lock.acquire():
        if places.address.exists():
            say(f"Recollect is already running at {places.address.read_text()} (`make down` stops it).")
            return
        if not said:
            say("Recollect is already starting …")
            said = True
        time.sleep(0.2)
    say("Recollect was being started elsewhere and did not come up: run the command again.")


def _end_holder(lock: RunLock) -> None:
    """End the supervisor that holds the lock: while it does, the number in the file is its own."""
    holder = lock.holder()
    deadline = time.monotonic() + STOP_SECONDS
    if holder:
        os.kill(holder, signal.SIGTERM)
    while not lock.acquire():
        if time.monotonic() > deadline and holder:
            os.kill(holder, signal.SIGKILL)
        time.sleep(0.05)


def _end_earlier_run(places: Places) -> bool:
    """Stop whatever a killed supervisor left behind; returns whether there was anything."""
    root = servers_dir(places.var)
    programs = find_marked(places.var)
    brokers = find_servers("valkey-server", root / "broker")
    databases = find_servers("postgres", root / "data")
    stop(programs, grace=4)
    stop(brokers, grace=2)
    stop(databases, grace=6, by=signal.SIGINT)
    return bool(programs or brokers or databases)
