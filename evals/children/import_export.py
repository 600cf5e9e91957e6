"""The importing worker's work in a process of its own, for `benchmark import`.

Reads `{"path": an export, "mark": a word in it}`, writes `{"turns", "stored", "read_seconds", "store_seconds",
"again_turns", "searchable", "undo_seconds", "left_turns", "peak_rss_mb"}`: `searchable` is how many turns the word
finds when the import is done, `again_turns` what a second import brings, `left_turns` what the first's undoing leaves.
"""

import json
import resource
import shutil
import sys
import time
from pathlib import Path

import django

django.setup()

from django.utils import timezone  # noqa: E402

from core.isolation.acting import acting_as  # noqa: E402
from imports import services  # noqa: E402
from imports.models import Import  # noqa: E402
from imports.storing import uploads  # noqa: E402
from imports.storing.running import work  # noqa: E402
from intake.models import Turn, User  # noqa: E402
from memory import terms  # noqa: E402
from memory.models.corpora import Corpus, Scope  # noqa: E402

KILOBYTES_PER_MEGABYTE = 1000


def main() -> None:
    given = json.load(sys.stdin)
    path = Path(given["path"])
    user = User.objects.create_user("importer@evals.invalid")
    done, read_seconds, store_seconds = _bring(user, path)
    with acting_as(user):
        hits = terms.score(Scope(user, (Corpus.CHAT,)), query=given["mark"], limit=10**6).hits
        turns = Turn.objects.for_user(user).count()
    again, _, _ = _bring(user, path)
    with acting_as(user):
        services.undo(user=user, import_id=str(done.pk), force=True, now=timezone.now())
    undo_seconds = _timed()
    with acting_as(user):
        left = Turn.objects.for_user(user).count()
    json.dump(
        {
            "turns": turns,
            "stored": done.stored["turns"],
            "read_seconds": read_seconds,
            "store_seconds": store_seconds,
            "again_turns": again.stored["turns"],
            "searchable": len(hits),
            "undo_seconds": undo_seconds,
            "left_turns": left,
            "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KILOBYTES_PER_MEGABYTE, 1),
        },
        sys.stdout,
    )


def _bring(user: User, path: Path) -> tuple[Import, float, float]:
    """The import when it is done, and how long it was read and stored."""
    size, now = path.stat().st_size, timezone.now()
    with acting_as(user):
        batch = services.begin(user=user, filename=path.name, size=size, product="", now=now)
        uploads.write(batch, b"", offset=0)
        shutil.copyfile(path, uploads.path_of(batch))
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


if __name__ == "__main__":
    main()
