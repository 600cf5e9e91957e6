"""`benchmark attachments`: how soon a stored file is found, what its reading takes, and what hostile files do."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.utils import timezone

from evals.benchmarks.base import Benchmark, Figures, TableRows
from evals.datasets.loading import Report, embed_all
from evals.files import attach
from evals.options import Number
from evals.scratch import as_worker, scratch_database
from evals.synthetic import turns as synthetic_turns
from intake.attachments.reading import Unreadable
from intake.attachments.reading.process import MEMORY_BYTES, read_safely
from intake.attachments.services import bytes_of
from intake.models import User
from memory.index import attachments as reading
from memory.search.history import HistoryRequest, search_history
from testing import files

# A word that stands at the end of each file alone.
MARK = "zanzibar"
KILOBYTES_PER_MEGABYTE = 1024
# Of a process that was ended and could say nothing, the most that it can have taken.
MOST_MB = MEMORY_BYTES / KILOBYTES_PER_MEGABYTE**2


def run(options: dict[str, Any], report: Report) -> Figures:
    with scratch_database():
        made = {name: _measured(name, make(options), report) for name, make in MAKERS.items()}
        report("Making all vectors.")
        began = time.perf_counter()
        embed_all(report=report)
        seconds = time.perf_counter() - began
    hostile = {what: _tried(what, *file, report) for what, file in files.HOSTILE.items()}
    return {"files": made, "hostile": hostile, "vectors_s": round(seconds, 1)}


def _pdf(options: Mapping[str, Any]) -> tuple[str, bytes]:
    """Pages of the generator's turns, as full as a book's."""
    said = (f"{turn.user_message} {turn.assistant_message}" for turn in synthetic_turns(10**6, seed=1))
    pages = [" ".join(_words(said, 400)) for _ in range(options["pages"])]
    return "book.pdf", files.pdf([*pages[:-1], f"{pages[-1]} {MARK}"])


def _words(texts: Any, count: int) -> Sequence[str]:
    words: list[str] = []
    while len(words) < count:
        words += next(texts).split()
    return words[:count]


def _csv(options: Mapping[str, Any]) -> tuple[str, bytes]:
    return "table.csv", files.csv_rows(options["rows"]) + f"\n{options['rows']},{MARK},1.00,2026-01-01".encode()


def _docx(options: Mapping[str, Any]) -> tuple[str, bytes]:
    said = list(synthetic_turns(40, seed=2))
    sections = [(turn.user_message[:60], turn.assistant_message) for turn in said]
    return "report.docx", files.docx_of([*sections, ("End", MARK)], pictures=options["pictures"])


MAKERS: Mapping[str, Callable[[Mapping[str, Any]], tuple[str, bytes]]] = {
    "pdf": _pdf,
    "csv": _csv,
    "docx_with_pictures": _docx,
}


def _measured(kind: str, file: tuple[str, bytes], report: Report) -> Figures:
    """From the bytes that have come until a search finds the file's last words, by one worker."""
    name, data = file
    user = User.objects.create_user(f"{kind}@evals.invalid")
    report(f"{name}: {len(data) / KILOBYTES_PER_MEGABYTE**2:.1f} MB.")
    began = time.perf_counter()
    attach(user, data, name)
    with as_worker():
        claimed = reading.claim(now=timezone.now())
        if claimed is None:
            raise SystemExit(f"Nothing waits to be read: {name}")
        read = read_safely(bytes_of(claimed), claimed.name, claimed.media_type)
        reading.store(claimed, read, now=timezone.now())
    found = search_history(HistoryRequest(query=MARK), user=user, now=timezone.now()).results
    seconds = time.perf_counter() - began
    if [each.reference.file for each in found] != [name]:
        raise SystemExit(f"The end of {name} is not found.")
    return {
        "found_s": round(seconds, 2),
        "peak_rss_mb": round(read.peak_kb / KILOBYTES_PER_MEGABYTE, 1),
        "parts": len(read.parts),
        "size_mb": round(len(data) / KILOBYTES_PER_MEGABYTE**2, 2),
    }


def _tried(what: str, name: str, make: Callable[[], bytes], report: Report) -> Figures:
    report(f"Trying {what}.")
    data = make()
    began = time.perf_counter()
    try:
        peak_kb, sentence = read_safely(data, name, "").peak_kb, ""
    except Unreadable as error:
        peak_kb, sentence = error.peak_kb, str(error.sentence)
    return {
        "refused_or_read": True,
        "seconds": round(time.perf_counter() - began, 2),
        "peak_rss_mb": round(peak_kb / KILOBYTES_PER_MEGABYTE, 1) if peak_kb else MOST_MB,
        "sentence": sentence,
    }


def table(figures: Figures) -> TableRows:
    head = ["", "seconds", "MB"]
    made = [[name, str(each["found_s"]), str(each["peak_rss_mb"])] for name, each in figures["files"].items()]
    tried = [[name, str(each["seconds"]), str(each["peak_rss_mb"])] for name, each in figures["hostile"].items()]
    return [head, *made, *tried]


def words(figures: Figures) -> Sequence[str]:
    return [f"{what}: {each['sentence'] or 'read'}" for what, each in figures["hostile"].items()]


BENCHMARK = Benchmark(
    "attachments",
    "how soon files are found, and what hostile ones do",
    run,
    {
        "pages": Number(300, "how many pages the PDF has"),
        "rows": Number(50_000, "how many rows the table has"),
        "pictures": Number(12, "how many pictures the DOCX has"),
    },
    table=table,
    words=words,
)
