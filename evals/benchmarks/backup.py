"""`benchmark backup`: a product with so many turns is backed up, restored into an empty one and compared with the file.

Each step is the operator's command, in a process of its own. Before the restore the same file with one byte flipped
must be refused, and have changed nothing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.db import connection

from evals.benchmarks.base import Benchmark, Figures
from evals.benchmarks.search.histories import made_pool
from evals.benchmarks.search.meaning import synthetic_meaning
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import Environment, environment, own_broker
from evals.scratch import database_url, scratch_database

PEOPLE = 50
KILOBYTES_PER_MEGABYTE = 1000
# Runs a command and prints what it and its children used. Linux counts the memory of the process that starts a command
# as the command's, so a small process starts it.
_USED_BY = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"\\n{used.ru_utime + used.ru_stime} {used.ru_maxrss}")
sys.exit(status)
"""
# A table that was made anew or emptied has another file.
_FILES = "SELECT relname, relfilenode FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY relname"


def run(options: dict[str, Any], report: Report) -> Figures:
    if not settings.DATABASE_BACKUP_URL:
        raise CommandError("DATABASE_BACKUP_URL is missing (docs/operations.md).")
    with tempfile.TemporaryDirectory() as folder, own_broker() as broker:
        path, damaged = Path(folder) / "recollect.backup", Path(folder) / "damaged.backup"
        with scratch_database() as database:
            given = _environment(database, broker)
            each = options["turns"] // PEOPLE
            with synthetic_meaning(), made_pool(each, given=given, report=report) as pool:
                pool.load([each] * PEOPLE)
            figures = {"database_mb": _ask("SELECT pg_database_size(current_database())")[0][0] // 10**6}
            report("Backing up.")
            figures |= _measured("backup", path, given)
        figures["file_mb"] = path.stat().st_size // 10**6
        _flip_a_byte(path, damaged)
        with scratch_database() as database:
            given = _environment(database, broker)
            report("Restoring a damaged file, then the whole one.")
            before = _ask(_FILES)
            figures |= _measured("restore", damaged, given, name="refusal", refusal="damaged")
            if _ask(_FILES) != before:
                raise CommandError("A refused restore changed something.")
            figures |= _measured("restore", path, given) | _measured("verify_backup", path, given)
    return figures


def _environment(database: str, broker: str) -> Environment:
    backup_url = database_url(database, login=settings.DATABASE_BACKUP_URL)
    return environment(database=database, broker=broker) | {"DATABASE_BACKUP_URL": backup_url}


def _measured(command: str, path: Path, given: Environment, *, name: str = "", refusal: str = "") -> Figures:
    """Seconds, seconds of a core, and the memory of the largest of its processes; the server's are not counted."""
    begun = time.perf_counter()
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _USED_BY, sys.executable, "manage.py", command, str(path)],
        cwd=settings.BASE_DIR,
        env=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if bool(ran.returncode) != bool(refusal) or refusal not in ran.stdout:
        raise CommandError(f"{command} ended with status {ran.returncode}: {ran.stdout}")
    core_seconds, kilobytes = map(float, ran.stdout.splitlines()[-1].split())
    name = name or command
    return {
        f"{name}_s": round(seconds, 1),
        f"{name}_core_s": round(core_seconds, 1),
        f"{name}_peak_mb": round(kilobytes / KILOBYTES_PER_MEGABYTE, 1),
    }


def _flip_a_byte(path: Path, damaged: Path) -> None:
    """In the file itself: what this process held in memory would be counted as its children's."""
    shutil.copyfile(path, damaged)
    with damaged.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def _ask(query: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


BENCHMARK = Benchmark(
    "backup",
    "a backup, its restore into an empty product, and the comparison of both",
    run,
    {"turns": Number(50_000, f"of {PEOPLE} people together")},
)
