"""`manage.py fit_ranking DIR…`: the weights of the hybrid ranking that suit these data sets best, for `Calibration`."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals import ranking_fit
from evals.datasets.loading import embed_all, load_turns
from evals.datasets.reading import Dataset, read_dataset
from evals.management import ReportingCommand
from evals.ranking_fit import RECALL_AT, RankedQuery
from evals.scratch import scratch_database
from evals.tables import columns
from memory.backends.embedders import TUNED, RankingWeights, get_embedder


class Command(ReportingCommand):
    help = "Fit the weights of the hybrid ranking to data sets, and try them on sets that they were not fitted to."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("datasets", type=Path, nargs="+", metavar="DIR", help="as run_evals --dataset takes it")

    def handle(self, *args: Any, datasets: list[Path], **options: Any) -> None:
        # Each is read before any is embedded, which takes minutes.
        read = [read_dataset(folder) for folder in datasets]
        asked = {dataset.name: self._questions(dataset) for dataset in read}
        every = [one for those in asked.values() for one in those]
        if not any(one.requested.any() for one in every):
            raise CommandError("No retriever found anything that is wanted: there is nothing to fit to.")
        weights = ranking_fit.fit(every)
        slope, intercept = ranking_fit.calibrate(every, weights)
        self.stdout.write("\nFor the calibration of the embedding model:\n")
        for name, weight in weights._asdict().items():
            self.stdout.write(f"    {name}: float = {weight:.2f}")
        self.stdout.write(f"    slope: float = {slope:.3f}\n    intercept: float = {intercept:.2f}\n")
        self.stdout.write("\n" + columns(_table(asked, weights)))

    def _questions(self, dataset: Dataset) -> list[RankedQuery]:
        with scratch_database():
            loaded = load_turns(dataset.turns, report=self.report)
            embed_all(report=self.report)
            return ranking_fit.questions(dataset, loaded)


def _table(asked: dict[str, list[RankedQuery]], weights: RankingWeights) -> list[list[str]]:
    """Percent. Each set by the weights in use, by those fitted to all sets, and by those fitted to the others."""
    rows = [["", *(f"R@{k}" for k in RECALL_AT)]]
    for name, those in asked.items():
        others = [one for other, questions in asked.items() if other != name for one in questions]
        tried = {"in use": (get_embedder().calibration or TUNED).weights, "fitted": weights}
        if any(one.requested.any() for one in others):
            tried["fitted to the others"] = ranking_fit.fit(others)
        for by, tried_weights in tried.items():
            found = ranking_fit.recall(those, tried_weights)
            rows.append([f"{name}, {by}", *(f"{100 * found[k]:.1f}" for k in RECALL_AT)])
    return rows
