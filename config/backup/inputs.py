"""Reads the inputs of the backup commands: the file, and the passphrase from the environment.

Every process of the machine could read a passphrase on a command line.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from typing import IO

from config.backup import BackupError

VARIABLE = "RECOLLECT_BACKUP_PASSPHRASE"


def passphrase() -> str | None:
    return os.environ.get(VARIABLE) or None


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """The file, seekable; standard input is copied unchanged to a temporary file."""
    if name != "-":
        try:
            with Path(name).open("rb") as file:
                yield file
        except FileNotFoundError:
            raise BackupError(f"There is no file {name}.") from None
        except IsADirectoryError:
            raise BackupError(f"{name} is a folder: name the file of the backup.") from None
        except PermissionError:
            raise BackupError(f"{name} may not be read by this user: change its owner or its mode.") from None
        return
    with tempfile.TemporaryFile() as file:
        copyfileobj(sys.stdin.buffer, file)
        file.seek(0)
        yield file
