"""Keeps the data folder of stopped servers with the schema between runs: the servers of tests start on copies of it.

Migrating an empty database takes thirteen seconds of a processor, copying this folder a third of one.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from config.stack.paths import BASE_DIR, choose_account, make_private, temporary_servers_dir
from config.stack.servers import OWNER, EmbeddedPostgres

# Everything that decides what the folder holds; the lock names the versions of PostgreSQL and of Django's own apps.
MADE_FROM = (
    "*/migrations/*.py",
    "core/isolation/**/*.py",
    "config/database/**/*.py",
    "config/stack/servers.py",
    "requirements/local.txt",
    "testing/migrated.py",
)
UNUSED_SECONDS = 7 * 24 * 3600


def migrated_servers() -> Path:
    """The folder, made by the first of the processes that ask for it. Raises StackError if it is somebody else's."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in MADE_FROM for path in BASE_DIR.glob(pattern)):
        digest.update(str(path.relative_to(BASE_DIR)).encode() + path.read_bytes())
    name = f"recollect-migrated-{os.geteuid()}"
    # The servers' account reaches it there, and not in a folder of root's.
    parent = temporary_servers_dir().parent
    folder = parent / f"{name}-{digest.hexdigest()[:12]}"
    with (parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for kept in parent.glob(f"{name}-*"):
                if kept.stat().st_mtime < time.time() - UNUSED_SECONDS:
                    shutil.rmtree(kept)
            _migrate_into(folder)
        make_private(folder, choose_account())
        os.utime(folder)
    return folder


def _migrate_into(folder: Path) -> None:
    root = temporary_servers_dir()
    # Outside the folder, which may be removed.
    log = root.with_suffix(".log")
    postgres = EmbeddedPostgres(root, log=log, durable=False)
    try:
        postgres.start()
        environment = os.environ | postgres.addresses | {"IGNORE_ENV_FILES": "1", "SECRET_KEY": "only-for-migrating"}
        command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
        subprocess.run(command, cwd=BASE_DIR, env=environment, check=True)
        with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE test_{OWNER} OWNER {OWNER} TEMPLATE {OWNER}")
    except BaseException:
        postgres.stop()
        shutil.rmtree(root, ignore_errors=True)
        raise
    postgres.stop()
    log.unlink(missing_ok=True)
    root.rename(folder)
