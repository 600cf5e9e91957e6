"""Keeps throw-away servers for a test run: they end when the other end of standard input does, however it ends.

`python -m config.stack.keeper` prints `{"DATABASE_URL": …, "REDIS_URL": …, …}` once both answer.
"""

import json
import shutil
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import psycopg

from config.stack.broker import EmbeddedRedis
from config.stack.errors import StackError
from config.stack.places import choose_account, make_private, temporary_servers_dir
from config.stack.postgres import OWNER, EmbeddedPostgres
from core.testing.examiner import make_examiner


def main() -> None:
    root = temporary_servers_dir()
    # Ends with its parent, in order, rather than at a signal to the whole terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, root, ignore_errors=True)
        try:
            urls = _start(root, cleanup)
        except StackError as error:
            sys.exit(f"{error}")
        print(json.dumps(urls), flush=True)
        sys.stdin.read()


def _start(root: Path, cleanup: ExitStack) -> dict[str, str]:
    make_private(root, choose_account())
    log = root / "servers.log"
    postgres, broker = EmbeddedPostgres(root, log=log, durable=False), EmbeddedRedis(root, log=log)
    for server in (postgres, broker):
        cleanup.callback(server.stop)
        server.start()
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        make_examiner(connection, owner=OWNER, web=postgres.roles.web, worker=postgres.roles.worker)
    return {**postgres.addresses, "REDIS_URL": broker.url}


if __name__ == "__main__":
    main()
