"""What can be typed: `recollect search "…"` and `recollect add "…"`."""

import argparse
import json
import os
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from recollect_cli.client import Failure, Server

DEFAULT_ADDRESS = "http://127.0.0.1:8000"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, or 1 for what the server or the way there refused (2 is argparse's, for a wrong usage)."""
    options = _parser().parse_args(arguments)
    try:
        answer = _ask(options)
    except Failure as failure:
        print(f"recollect: {failure}", file=sys.stderr)  # noqa: T201
        return 1
    try:
        print(json.dumps(answer, ensure_ascii=False, indent=2) if options.json else answer["text"], flush=True)  # noqa: T201
    except BrokenPipeError:
        # Its reader, such as `head`, has seen enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _ask(options: argparse.Namespace) -> dict[str, Any]:
    if not options.token:
        raise Failure("Put a token into RECOLLECT_TOKEN, or give --token: make one at /settings/tokens/.")
    server = Server(options.url, options.token)
    if options.command == "add":
        return _add(server, options)
    arguments = {
        "query": options.query,
        "scope": options.scope,
        "max_results": options.limit,
        "rerank": options.rerank,
    }
    return server.call("search_history", arguments)


def _add(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """Save a memory; the key keeps a request that a proxy repeats from being stored twice."""
    content = sys.stdin.read() if options.content == "-" else options.content
    arguments = {"content": content, "type": options.type, "project_id": options.project, "tags": options.tag}
    given = {name: value for name, value in arguments.items() if value}
    return server.call("save_memory", given, **{"Idempotency-Key": str(uuid.uuid4())})


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    address, token = os.environ.get("RECOLLECT_URL", DEFAULT_ADDRESS), os.environ.get("RECOLLECT_TOKEN", "")
    shared.add_argument("--url", default=address, help=f"the server (RECOLLECT_URL; {DEFAULT_ADDRESS})")
    shared.add_argument("--token", default=token, help="an access token (RECOLLECT_TOKEN)")
    shared.add_argument("--json", action="store_true", help="print the whole answer as JSON")

    parser = argparse.ArgumentParser(prog="recollect", description="Your memory, from a terminal.")
    commands = parser.add_subparsers(dest="command", required=True)
    search = commands.add_parser("search", parents=[shared], help="search chats, notes and memories")
    search.add_argument("query")
    search.add_argument("--scope", choices=["all", "memory", "daily_log", "sessions"], default="all")
    search.add_argument("--limit", type=int, default=10, help="how many results at most (10)")
    search.add_argument("--rerank", action="store_true", help="have a second model order the best ones again")
    add = commands.add_parser("add", parents=[shared], help="save a memory")
    add.add_argument("content", help="what to remember; - reads it from standard input")
    add.add_argument("--type", help="what kind: decision, lesson, preference, note (the default), …")
    add.add_argument("--project", help="the project it belongs to")
    add.add_argument("--tag", action="append", help="a label; may be given several times")
    return parser
