"""`benchmark import`: how fast a generated ChatGPT export is stored and searchable, and the worker's memory."""

import json
import resource
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from django.utils import timezone

from core.isolation.acting import acting_as
from evals.benchmarks.base import Benchmark, Figures
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import call, environment, own_broker
from evals.scratch import scratch_database
from evals.synthetic import SyntheticTurn
from evals.synthetic import turns as synthetic_turns
from imports import services
from imports.models import Import
from imports.storing import uploads
from imports.storing.worker import work
from intake.models import Turn, User
from memory.index.scoring import score
from memory.models.documents import Corpus, Scope

TURNS_PER_CONVERSATION = 10
# A word of the generator's own, in every tenth turn.
MARK = "zanzibar"
MARKED = 10
BEGAN = 1_672_531_200
HOUR = 3600
KILOBYTES_PER_MEGABYTE = 1000


def run(options: dict[str, Any], report: Report) -> Any:
    turns = options["turns"]
    with tempfile.TemporaryDirectory() as folder, own_broker() as broker, scratch_database() as database:
        path = Path(folder) / "export.zip"
        report(f"Writing an export of {turns:,} turns.")
        write_export(path, turns=turns)
        report("Importing it twice, and undoing it.")
        given = environment(database=database, broker=broker) | {
            "IMPORTS_DIR": folder,
        }
        return call(import_twice, given, path=str(path), turns=turns)


def import_twice(*, path: str, turns: int) -> Figures:
    """The importing worker's work, in a process of its own: an import, the same again, and the undoing of the first."""
    export = Path(path)
    user = User.objects.create_user("importer@evals.invalid")
    done, read_seconds, store_seconds = _bring(user, export)
    with acting_as(user):
        found = score(Scope(user, (Corpus.CHAT,)), query=MARK, limit=10**6).hits
        stored = Turn.objects.for_user(user).count()
    again, _, _ = _bring(user, export)
    with acting_as(user):
        services.undo(user=user, import_id=str(done.pk), force=True, now=timezone.now())
    undo_seconds = _timed()
    with acting_as(user):
        left = Turn.objects.for_user(user).count()
    figures = {"stored": stored, "searchable": len(found), "again": again.stored["turns"], "left": left}
    if figures != {"stored": turns, "searchable": -(-turns // MARKED), "again": 0, "left": 0}:
        raise SystemExit(f"Of {turns:,} turns something is missing, came in twice, or was left by undoing: {figures}")
    return {
        "turns_per_s": round(turns / store_seconds),
        "read_turns_per_s": round(turns / read_seconds),
        "undo_turns_per_s": round(turns / undo_seconds),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KILOBYTES_PER_MEGABYTE, 1),
        "turns": turns,
    }


def _bring(user: User, path: Path) -> tuple[Import, float, float]:
    """The import when it is done, and how long it was read and stored."""
    size, now = path.stat().st_size, timezone.now()
    with acting_as(user):
        batch = services.begin(user=user, filename=path.name, size=size, product="", now=now)
        uploads.write(batch, b"", offset=0)
        shutil.copyfile(path, uploads.upload_path(batch))
        # As if all chunks but the last byte had come.
        Import.objects.for_user(user).filter(pk=batch.pk).update(bytes_received=size - 1)
        with path.open("rb") as export:
            export.seek(size - 1)
            last = export.read()
        services.receive(user=user, import_id=str(batch.pk), data=last, first=size - 1, total=size, now=now)
    read_seconds = _timed()
    with acting_as(user):
        services.start(user=user, import_id=str(batch.pk), only=None, leave_out=(), since=None, now=timezone.now())
    store_seconds = _timed()
    with acting_as(user):
        return services.get(user=user, import_id=str(batch.pk)), read_seconds, store_seconds


def _timed() -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def write_export(path: Path, *, turns: int, seed: int = 0) -> None:
    """A zip as ChatGPT gives it: the same for the same numbers, written as it is made."""
    said = enumerate(synthetic_turns(turns, seed=seed))
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as export,
        export.open("conversations.json", "w", force_zip64=True) as stream,
    ):
        for number in range(-(-turns // TURNS_PER_CONVERSATION)):
            conversation = _conversation(f"generated-{seed}-{number}", number, islice(said, TURNS_PER_CONVERSATION))
            stream.write((b"," if number else b"[") + json.dumps(conversation).encode())
        stream.write(b"]")


def _conversation(name: str, number: int, said: Iterator[tuple[int, SyntheticTurn]]) -> dict[str, Any]:
    """A tree of messages, of which each is the child of the one before."""
    began, leaf = BEGAN + number * HOUR, "root"
    mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "message": None}}
    for place, turn in said:
        mark = "" if place % MARKED else f" {MARK}"
        for role, text in (("user", turn.user_message + mark), ("assistant", turn.assistant_message)):
            node = f"{place}-{role}"
            message = {
                "author": {"role": role},
                "create_time": began + place,
                "content": {"content_type": "text", "parts": [text]},
                "metadata": {"model_slug": "gpt-4o"},
            }
            mapping[node] = {"id": node, "parent": leaf, "message": message}
            leaf = node
    times = {"create_time": began, "update_time": began + HOUR}
    return {"conversation_id": name, "title": f"Generated {number}", **times, "mapping": mapping, "current_node": leaf}


BENCHMARK = Benchmark(
    "import", "how fast an export is imported", run, {"turns": Number(5_000, "how many turns the export has")}
)
