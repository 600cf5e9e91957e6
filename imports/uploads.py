"""Uploads on disk: a private folder for each person, a file for each import, written chunk by chunk at its place."""

import os
import shutil
from pathlib import Path

from django.conf import settings

from core.errors import NoRoom
from imports.models import Import

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def path_of(batch: Import) -> Path:
    """Nothing of it comes from the person: both parts are ids of ours."""
    return Path(settings.IMPORTS_DIR) / str(batch.user_id) / str(batch.pk)


def write(batch: Import, data: bytes, *, offset: int) -> None:
    """Write a chunk; what an earlier, broken try left behind the offset is written over. Raises `NoRoom`."""
    path = path_of(batch)
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as upload:
            upload.truncate(offset)
            upload.seek(offset)
            upload.write(data)
    except OSError:
        raise NoRoom from None


def delete(batch: Import) -> None:
    path_of(batch).unlink(missing_ok=True)


def check_room(size: int) -> None:
    """Raises `NoRoom` unless the disk keeps room for everything else."""
    folder = Path(settings.IMPORTS_DIR)
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free - size < settings.IMPORTS_FREE_BYTES:
        raise NoRoom
