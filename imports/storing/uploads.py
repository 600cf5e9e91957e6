"""Stores uploads on disk: a private folder for each user, a file for each import, written chunk by chunk."""

import fcntl
import os
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from django.conf import settings

from core.errors import NoRoom
from core.rounds import for_each
from imports.models import Import, ImportJob
from imports.reading.limits import Limits
from intake.attachments.services import FREE_BYTES


def upload_path(batch: Import) -> Path:
    """Nothing of it comes from the user: both parts are ids of ours."""
    return Path(settings.IMPORTS_DIR) / str(batch.user_id) / str(batch.pk)


def write(batch: Import, data: bytes, *, offset: int) -> None:
    """Write a chunk, overwriting data of a broken attempt after the offset. Raises `NoRoom`."""
    path = upload_path(batch)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if shutil.disk_usage(path.parent).free - len(data) < FREE_BYTES:
        raise NoRoom
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "wb") as upload:
            upload.seek(offset)
            upload.write(data)
    except OSError:
        raise NoRoom from None


def delete_forgotten(*, now: datetime) -> int:
    """Delete files that belong to no open import: their account was deleted, or a worker died while it ended one."""
    removed: list[Path] = []

    def look_at(path: Path) -> None:
        # A file is slightly older than the row that it belongs to.
        if path.stat().st_mtime > now.timestamp() - 3600:
            return
        # Raises `ValidationError` for a name that is no id: a file of somebody else, which is left alone.
        if not ImportJob.objects.filter(import_id=path.name).exists():
            path.unlink(missing_ok=True)
            removed.append(path)

    for_each("imports.sweep, files", Path(settings.IMPORTS_DIR).glob("*/*"), look_at)
    return len(removed)


def delete(batch: Import) -> None:
    upload_path(batch).unlink(missing_ok=True)


def reserve(batch: Import) -> None:
    """Reserve the disk space of an announced upload. Raises `NoRoom` unless enough stays free once all are complete.

    The file has its final length from the beginning, without the blocks: the missing blocks of all files are the space
    that the uploads of all users may still take. So the folder itself counts, for every process that shares it.
    """
    folder, path = Path(settings.IMPORTS_DIR), upload_path(batch)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The folder's own lock: one upload after the other is counted against the free space.
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.disk_usage(folder).free - _announced(folder) - batch.bytes < FREE_BYTES:
            raise NoRoom
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as upload:
            upload.truncate(batch.bytes)
    except OSError:
        raise NoRoom from None
    finally:
        os.close(lock)


def _announced(folder: Path) -> int:
    """Bytes that open uploads have announced and not sent yet."""
    missing = 0
    for path in folder.glob("*/*"):
        with suppress(FileNotFoundError):
            kind = path.stat()
            # The unit of `st_blocks`, by POSIX.
            missing += max(0, kind.st_size - kind.st_blocks * 512)
    return missing


def reading_limits() -> Limits:
    """Zips in a zip are copied beside the uploads, on the disk whose space is checked, never to the system's folder."""
    folder = Path(settings.IMPORTS_DIR) / "temporary"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Limits(temporary=folder, free_bytes=FREE_BYTES)
