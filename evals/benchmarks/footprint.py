"""`benchmark footprint`: what a product of `make up` takes at rest: memory, processor, wake-ups, statements, packages.

And, with `--turns`, how much memory it takes while an export is imported, and how soon a message is found meanwhile.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
import psycopg
from django.conf import settings

from evals.benchmarks.base import Benchmark, Figures, TableRows
from evals.benchmarks.importing import write_export
from evals.client import Client
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import START_SECONDS, Environment, call, free_port, wait_until
from evals.reliability.product import CHAT, Person, make_people
from testing.servers import ADDRESSES

MEGABYTE = 10**6
SERVERS = ("postgres", "valkey-server")


class Taken(NamedTuple):
    """What a process has taken: proportional memory in bytes now; processor seconds and wake-ups so far."""

    name: str
    memory: int
    seconds: float
    wakeups: int


def run(options: dict[str, Any], report: Report) -> Figures:
    with tempfile.TemporaryDirectory(prefix="recollect-footprint-") as folder:
        var = Path(folder) / "var"
        with _running(var, report) as (supervisor, address, started_after, given):
            report(f"Waiting {options['rest']:g} s until it rests.")
            time.sleep(options["rest"])
            with _statements(var) as count:
                before, began = _taken(supervisor), time.monotonic()
                time.sleep(options["seconds"])
                after, seconds = _taken(supervisor), time.monotonic() - began
                statements = count()
            figures: Figures = {
                "processes": [
                    {
                        "name": each.name,
                        "mb": round(each.memory / MEGABYTE, 1),
                        "cpu_percent": round((each.seconds - before[pid].seconds) / seconds * 100, 2),
                        "wakeups_per_s": round((each.wakeups - before[pid].wakeups) / seconds, 1),
                    }
                    for pid, each in after.items()
                    if pid in before
                ],
                "statements_per_min": round(statements / seconds * 60),
                "started_s": round(started_after, 1),
                "packages_mb": _size_of_packages(),
            }
            if options["turns"]:
                figures["import"] = _beside_an_import(supervisor, address, given, options["turns"], report)
            servers = _servers_of(var)
        shutil.rmtree(servers, ignore_errors=True)
    own = [each for each in figures["processes"] if each["name"] not in SERVERS]
    return figures | {
        "own_processes": len(own),
        "own_mb": round(sum(each["mb"] for each in own)),
        "own_cpu_percent": round(sum(each["cpu_percent"] for each in own), 2),
        "own_wakeups_per_s": round(sum(each["wakeups_per_s"] for each in own), 1),
    }


@contextmanager
def _running(var: Path, report: Report) -> Iterator[tuple[psutil.Process, str, float, Environment]]:
    """The supervisor of a product of its own, its address, the seconds until it answered, and its environment."""
    report("Starting a product of its own.")
    kept = {name: value for name, value in os.environ.items() if name not in (*ADDRESSES, "DATABASE_BACKUP_URL")}
    kept |= {"RECOLLECT_VAR": str(var), "MODEL_CACHE_DIR": str(settings.MODEL_CACHE_DIR), "RATE_LIMITS": "10000"}
    address, began = f"http://127.0.0.1:{(port := free_port())}", time.monotonic()
    with (Path(var.parent) / "output").open("w+") as output:
        command = [sys.executable, "-m", "config.stack", "up", "--port", str(port)]
        with subprocess.Popen(  # noqa: S603 - a fixed command
            command, cwd=settings.BASE_DIR, env=kept, stdout=output, stderr=output
        ) as up:
            try:
                wait_until(
                    lambda: (var / "run" / "address").exists() or up.poll() is not None,
                    seconds=START_SECONDS,
                    otherwise=lambda: "The product does not start.",
                )
                if up.poll() is not None:
                    raise SystemExit(Path(output.name).read_text())
                yield psutil.Process(up.pid), address, time.monotonic() - began, kept
            finally:
                up.terminate()


def _taken(supervisor: psutil.Process) -> dict[int, Taken]:
    """By the number of each process; the supervisor first. One that ends meanwhile is left out."""
    taken = {}
    for each in (supervisor, *supervisor.children(recursive=True)):
        with suppress(OSError, psutil.NoSuchProcess):
            taken[each.pid] = _taken_by(each)
    return taken


def _taken_by(process: psutil.Process) -> Taken:
    name = process.name()
    if name not in SERVERS:
        name = process.environ().get("RECOLLECT_PROGRAM", "supervisor")
    folder = Path(f"/proc/{process.pid}")
    memory = next(line for line in (folder / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    wakeups = sum(
        int(line.split()[1])
        for thread in folder.glob("task/*/status")
        for line in thread.read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )
    times = process.cpu_times()
    return Taken(name, int(memory.split()[1]) * 1024, times.user + times.system, wakeups)


@contextmanager
def _statements(var: Path) -> Iterator[Any]:
    """The block's argument tells how many statements the database has got since the block began."""
    log = var / "log" / "postgres.log"
    settings_of_up = dict(line.split("=", 1) for line in (var / "env").read_text().splitlines())
    passwords = dict(line.split() for line in (_servers_of(var) / "postgres-passwords").read_text().splitlines())
    address = urlsplit(settings_of_up["DATABASE_URL"])._replace(netloc=f"postgres:{passwords['postgres']}@")
    with psycopg.connect(address.geturl(), autocommit=True) as connection:
        for statement in ("ALTER SYSTEM SET log_statement = 'all'", "SELECT pg_reload_conf()"):
            connection.execute(statement)
        time.sleep(1)
        start = log.stat().st_size
        yield lambda: log.read_bytes()[start:].count(b"LOG:  ")
        connection.execute("ALTER SYSTEM RESET log_statement")
        connection.execute("SELECT pg_reload_conf()")


def _servers_of(var: Path) -> Path:
    """The folder of its servers, which `make up` has noted."""
    return Path((var / "data-folder").read_text().strip())


def _size_of_packages() -> int:
    """What `.venv` takes on the disk."""
    files = (path for path in Path(sys.prefix).rglob("*") if path.is_file() and not path.is_symlink())
    return round(sum(path.stat().st_blocks * 512 for path in files) / MEGABYTE)


def _beside_an_import(
    supervisor: psutil.Process, address: str, given: Environment, turns: int, report: Report
) -> Figures:
    """The most memory while an export is read and stored, and the seconds until a message is found by meaning."""
    own = {**given, "DJANGO_SETTINGS_MODULE": "config.settings.local"}
    person, most = Person(*call(make_people, own, count=1)[0]), 0
    found_after: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Client(address, person.headers) as client:
        report(f"Importing {turns:,} turns.")
        write_export(Path(folder) / "export.zip", turns=turns)
        data = (Path(folder) / "export.zip").read_bytes()
        begun = client.ask("POST", "/api/v1/imports/", {"filename": "export.zip", "bytes": len(data)})
        batch, began = f"/api/v1/imports/{begun.data['id']}/", time.monotonic()
        span = {"Content-Type": "application/octet-stream", "Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"}
        client.ask("PUT", f"{batch}content/", data, span)
        while (state := client.ask("GET", batch).data["state"]) not in ("done", "failed"):
            if state == "ready":
                client.ask("POST", f"{batch}start/", {})
            found_after.append(_seconds_until_found(client, number=len(found_after)))
            most = max(most, sum(each.memory for each in _taken(supervisor).values() if each.name not in SERVERS))
    if state == "failed":
        raise SystemExit("The import failed.")
    return {
        "turns": turns,
        "own_mb": round(most / MEGABYTE),
        "seconds": round(time.monotonic() - began, 1),
        "message_found_s": max(found_after),
    }


def _seconds_until_found(client: Client, *, number: int) -> float:
    """From a message that is saved until a search by meaning alone finds it."""
    message = f"My parrot number {number} sings opera in the bath every evening."
    client.ask("POST", CHAT, {"message": message})
    began = time.monotonic()
    search = {"query": f"parrot number {number} singing opera", "mode": "semantic", "limit": 3}
    while message not in client.ask("POST", "/api/v1/tools/search_chat_history/", search).body.decode():
        if time.monotonic() - began > START_SECONDS:
            raise SystemExit("A message was not found by meaning.")
        time.sleep(0.1)
    return round(time.monotonic() - began, 1)


def table(figures: Figures) -> TableRows:
    head = ["", "MB", "% of a core", "wake-ups/s"]
    shown = [
        [each["name"], *(f"{each[what]:,}" for what in ("mb", "cpu_percent", "wakeups_per_s"))]
        for each in figures["processes"]
    ]
    own = ["own_mb", "own_cpu_percent", "own_wakeups_per_s"]
    return [head, *shown, [f"{figures['own_processes']} of ours", *(f"{figures[what]:,}" for what in own)]]


def words(figures: Figures) -> list[str]:
    lines = [
        f"It answered {figures['started_s']} s after its start. At rest the database gets "
        f"{figures['statements_per_min']} statements a minute. The packages take {figures['packages_mb']} MB."
    ]
    if beside := figures.get("import"):
        lines.append(
            f"While {beside['turns']:,} turns came in, for {beside['seconds']} s, ours took at most "
            f"{beside['own_mb']} MB, and a message was found by meaning after at most {beside['message_found_s']} s."
        )
    return lines


BENCHMARK = Benchmark(
    "footprint",
    "what a product takes of a machine at rest, and beside an import",
    run,
    {
        "rest": Number(60, "for how many seconds it rests before it is looked at", may_be_zero=True),
        "seconds": Number(60, "for how many seconds it is looked at"),
        "turns": Number(0, "how many turns are imported then", may_be_zero=True),
    },
    table=table,
    words=words,
)
