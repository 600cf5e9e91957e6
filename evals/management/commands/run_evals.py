"""`manage.py run_evals`: a named suite (pass or fail), or the production search measured on a data set."""

import json
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals import echo, files, languages, proposals, retrieval, surfaces, vec02
from evals.datasets.loading import embed_all, load_life, load_turns
from evals.datasets.reading import read_dataset, read_life
from evals.management import ReportingCommand
from evals.scratch import scratch_database
from evals.surfaces import SURFACES
from evals.vec02 import Verdict
from memory.search import SearchMode

ALL = "all"
# Each fills an empty database, and its verdicts decide the exit status.
# With the share of them that must pass.
SUITES: dict[str, tuple[Callable[[], list[Verdict]], float]] = {
    "vec-02": (vec02.run, 1.0),
    "echo": (echo.run, echo.AT_LEAST),
    "recall": (echo.recall, echo.RECALLED),
    "recall-nothing": (echo.recall_nothing, echo.QUIET),
    "languages": (languages.run, languages.AT_LEAST),
    "files": (files.run, files.AT_LEAST),
    "proposals": (proposals.run, 1.0),
}


class Command(ReportingCommand):
    help = "Run a suite of evals, or measure retrieval on a data set, in a scratch database."

    def add_arguments(self, parser: ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--suite", choices=sorted(SUITES), help="the named evals; exit status 0 if all pass")
        what.add_argument("--dataset", type=Path, metavar="DIR", help="a folder with turns.jsonl and queries.jsonl")
        parser.add_argument("--mode", choices=[*SearchMode, ALL], default=ALL, help="how it is searched (default all)")
        parser.add_argument(
            "--surface",
            choices=[ALL, *(surface.name for surface in SURFACES)],
            help="for a data set with documents and records: ask this surface instead, or each in turn",
        )
        parser.add_argument(
            "--distractors", type=int, default=0, metavar="N", help="add N made-up turns a person (with --surface)"
        )
        parser.add_argument("--rerank", action="store_true", help="with the second look, where there is one")
        parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["suite"]:
            self._run_suite(options["suite"])
        elif options["surface"]:
            self._measure_surfaces(options)
        else:
            self._measure(options)

    def _run_suite(self, name: str) -> None:
        run, at_least = SUITES[name]
        with scratch_database():
            verdicts = run()
        for verdict in verdicts:
            self.stdout.write(str(verdict))
        failed = sum(verdict.failure is not None for verdict in verdicts)
        if at_least < 1:
            self.stdout.write(f"{len(verdicts) - failed} of {len(verdicts)} passed, {at_least:.0%} must.")
        if len(verdicts) - failed < at_least * len(verdicts):
            raise CommandError(f"{failed} of {len(verdicts)} evals failed.")

    def _measure(self, options: dict[str, Any]) -> None:
        modes = [mode for mode in SearchMode if options["mode"] in (ALL, mode)]
        dataset = read_dataset(options["dataset"])
        with scratch_database():
            loaded = load_turns(dataset.turns, report=self.report)
            embed_all(report=self.report)
            by_mode = {
                mode: retrieval.answer(dataset, loaded, mode, rerank=options["rerank"], report=self.report)
                for mode in modes
            }
        named = retrieval.with_rank_fusion(by_mode)
        title = f"{dataset.name}: {len(dataset.turns):,} turns, {len(dataset.queries):,} queries; percent"
        tables = [
            retrieval.table(name, answered, retrieval.newest_first(dataset, answered).get("newest_first", {}))
            for name, answered in named.items()
        ]
        self._show(title, tables, options["json"], retrieval.as_data(dataset, named))

    def _measure_surfaces(self, options: dict[str, Any]) -> None:
        asked = [surface for surface in SURFACES if options["surface"] in (ALL, surface.name)]
        life = read_life(options["dataset"])
        distractors = options["distractors"]
        with scratch_database():
            loaded = load_life(life, distractors=distractors, report=self.report)
            embed_all(report=self.report)
            answered = {
                surface.name: surfaces.ask(life, loaded, surface, rerank=options["rerank"], report=self.report)
                for surface in asked
            }
        beside = f", {distractors:,} made-up turns a person beside them" if distractors else ""
        title = f"{life.name}: {len(life.turns):,} turns{beside}, {len(life.queries):,} questions; percent"
        data = {
            "dataset": life.name,
            "turns": len(life.turns),
            "distractors": distractors,
            "queries": len(life.queries),
            "surfaces": {name: surfaces.as_data(those) for name, those in answered.items()},
        }
        self._show(title, [surfaces.table(name, those) for name, those in answered.items()], options["json"], data)

    def _show(self, title: str, tables: list[str], target: Path | None, data: dict[str, Any]) -> None:
        for part in (title, *tables):
            self.stdout.write(f"\n{part}")
        if target is not None:
            target.write_text(json.dumps(data, indent=2) + "\n")
