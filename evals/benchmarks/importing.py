"""`benchmark import`: how fast a generated ChatGPT export is stored and searchable, and the worker's memory."""

import json
import tempfile
import zipfile
from argparse import ArgumentParser
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

from django.core.management import CommandError

from evals.benchmarks.base import Benchmark, Figures
from evals.datasets.loading import Report
from evals.processes import environment, own_broker, run_module
from evals.scratch import scratch_database
from evals.synthetic import turns as synthetic_turns

TURNS_PER_CONVERSATION = 10
# A word of the generator's own, in every tenth turn.
MARK = "zanzibar"
MARKED = 10
BEGAN = 1_672_531_200
HOUR = 3600


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=50_000, help="how many turns the export has (default 50,000)")


def run(options: dict[str, Any], report: Report) -> Figures:
    turns = options["turns"]
    with tempfile.TemporaryDirectory() as folder, own_broker() as broker, scratch_database() as database:
        path = Path(folder) / "export.zip"
        report(f"Writing an export of {turns:,} turns.")
        write_export(path, turns=turns)
        report("Importing it twice, and undoing it.")
        given = environment(database=database, broker=broker) | {
            "IMPORTS_DIR": folder,
            "IMPORTING_WORKER": "1",
            "IMPORTS_FREE_BYTES": "0",
        }
        got = run_module("evals.children.import_export", given, data={"path": str(path), "mark": MARK})
    if got["again_turns"] or got["left_turns"] or got["turns"] != turns or got["searchable"] != -(-turns // MARKED):
        raise CommandError(f"Of {turns:,} turns something is missing, came in twice, or was left by undoing: {got}")
    return {
        "turns_per_s": round(turns / got["store_seconds"]),
        "read_turns_per_s": round(turns / got["read_seconds"]),
        "undo_turns_per_s": round(turns / got["undo_seconds"]),
        "peak_rss_mb": got["peak_rss_mb"],
        "turns": turns,
    }


def write_export(path: Path, *, turns: int, seed: int = 0) -> None:
    """A zip as ChatGPT gives it: the same for the same numbers, written as it is made."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as export,
        export.open("conversations.json", "w", force_zip64=True) as stream,
    ):
        _write(stream, _conversations(turns, seed))


def _write(stream: IO[bytes], conversations: Iterator[dict[str, Any]]) -> None:
    separator = b"["
    for conversation in conversations:
        stream.write(separator + json.dumps(conversation).encode())
        separator = b","
    stream.write(b"]")


def _conversations(turns: int, seed: int) -> Iterator[dict[str, Any]]:
    said = enumerate(synthetic_turns(turns, seed=seed))
    for number in range(-(-turns // TURNS_PER_CONVERSATION)):
        began = BEGAN + number * HOUR
        mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "message": None}}
        leaf = "root"
        for place, turn in islice(said, TURNS_PER_CONVERSATION):
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
        yield {
            "conversation_id": f"generated-{seed}-{number}",
            "title": f"Generated {number}",
            "create_time": began,
            "update_time": began + HOUR,
            "mapping": mapping,
            "current_node": leaf,
        }


BENCHMARK = Benchmark(name="import", help="how fast an export is imported", add_arguments=add_arguments, run=run)
