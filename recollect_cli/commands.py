"""What can be typed: `recollect search "…"`, `recollect add "…"`, `recollect import PATH`, `recollect sync`."""

import argparse
import json
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server, in_numbers, preview_text, printable, progress_shown, report_text
from recollect_cli.importing import PLACES, ImportOptions, SyncedFolder, changes, folders, import_path, sync

DEFAULT_ADDRESS = "http://127.0.0.1:8000"
INTERRUPTED = 130  # as shells have it


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 for what the server or the way there refused, 130 for Ctrl-C (2 is argparse's, for a wrong
    usage)."""
    options = command_parser().parse_args(arguments)
    try:
        for answer in _answers(options):
            _print(answer, as_json=options.json)
    except Failure as failure:
        print(printable(f"recollect: {failure}"), file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("recollect: stopped", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    return 0


def _print(answer: dict[str, Any], *, as_json: bool) -> None:
    try:
        text = answer.pop("text") if not as_json and "text" in answer else None
        print(printable(json.dumps(answer, ensure_ascii=False, indent=2) if text is None else text), flush=True)  # noqa: T201
    except BrokenPipeError:
        # Its reader, such as `head`, has seen enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _answers(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What to print, piece by piece: an object, with its text for people as `text`."""
    if not options.token:
        raise Failure("Put a token into RECOLLECT_TOKEN, or give --token: make one at /settings/tokens/.")
    server = Server(options.url, options.token)
    if options.command == "import":
        yield _import(server, options)
    elif options.command == "sync":
        yield from _sync(server, options)
    else:
        yield _add(server, options) if options.command == "add" else _search(server, options)


def _import(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    requested = ImportOptions(product=options.product, since=options.since, is_dry_run=options.dry_run)
    with progress_shown(is_quiet=options.json) as show:
        answer = import_path(server, options.path.expanduser(), requested, show)
    if options.dry_run:
        return {**answer, **_unless_json(options, preview_text(answer))}
    return {**answer, **_unless_json(options, report_text(answer, server.address))}


def _sync(server: Server, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    watched = folders(options.product, options.path and options.path.expanduser())
    for folder in watched:
        yield _synced(server, folder, options)
    if options.watch:
        for changed in changes(watched):
            again = (_synced_again(server, each, options) for each in watched if each[1].resolve() in changed)
            yield from (answer for answer in again if answer is not None)


def _synced_again(server: Server, folder: SyncedFolder, options: argparse.Namespace) -> dict[str, Any] | None:
    """None where nothing is new, or could not be sent: the next change finds what was not."""
    try:
        answer = _synced(server, folder, options)
    except Failure as failure:
        if not failure.may_pass:
            raise
        print(printable(f"recollect: {failure}"), file=sys.stderr)  # noqa: T201
        return None
    return None if answer["import"] is None else answer


def _synced(server: Server, folder: SyncedFolder, options: argparse.Namespace) -> dict[str, Any]:
    product, _path = folder
    with progress_shown(is_quiet=options.json) as show:
        done = sync(server, folder, show)
    text = f"{product}: nothing new" if done is None else f"{product}: {in_numbers(done['stored'])}"
    return {"product": product, "import": done, **_unless_json(options, text)}


def _unless_json(options: argparse.Namespace, text: str) -> dict[str, str]:
    return {} if options.json else {"text": text}


def _search(server: Server, options: argparse.Namespace) -> dict[str, Any]:
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
    named = {name: value for name, value in arguments.items() if value}
    return server.call("save_memory", named, **{"Idempotency-Key": str(uuid.uuid4())})


def command_parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    address, token = os.environ.get("RECOLLECT_URL", DEFAULT_ADDRESS), os.environ.get("RECOLLECT_TOKEN", "")
    shared.add_argument("--url", default=address, help=f"the server (RECOLLECT_URL; {DEFAULT_ADDRESS})")
    shared.add_argument("--token", default=token, help="an access token (RECOLLECT_TOKEN)")
    shared.add_argument("--json", action="store_true", help="print the whole answer as JSON")

    parser = argparse.ArgumentParser(prog="recollect", description="Your memory, from a terminal.")
    commands = parser.add_subparsers(dest="command", required=True)
    search = _command(commands, "search", shared, "search chats, notes and memories")
    search.add_argument("query")
    search.add_argument("--scope", choices=["all", "memory", "daily_log", "sessions"], default="all")
    search.add_argument("--limit", type=int, default=10, help="how many results at most (10)")
    search.add_argument("--rerank", action="store_true", help="have a second model order the best ones again")
    add = _command(commands, "add", shared, "save a memory")
    add.add_argument("content", help="what to remember; - reads it from standard input")
    add.add_argument("--type", help="what kind: decision, lesson, preference, note (the default), …")
    add.add_argument("--project", help="the project it belongs to")
    add.add_argument("--tag", action="append", help="a label; may be given several times")
    _add_import(commands, shared)
    _add_sync(commands, shared)
    return parser


def _command(commands: Any, name: str, shared: argparse.ArgumentParser, what: str) -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = commands.add_parser(name, parents=[shared], help=what, description=what)
    return added


def _add_import(commands: Any, shared: argparse.ArgumentParser) -> None:
    bring = _command(commands, "import", shared, "bring an export of another product in")
    bring.add_argument("path", type=Path, help="a zip, a file or a folder")
    bring.add_argument("--as", dest="product", metavar="PRODUCT", help="the product, where it is not recognised")
    bring.add_argument("--dry-run", action="store_true", help="say what would come in, and store nothing")
    bring.add_argument(
        "--since", type=_moment, metavar="DATE", help="only what went on since: YYYY-MM-DD or a date-time"
    )


def _add_sync(commands: Any, shared: argparse.ArgumentParser) -> None:
    keep = _command(commands, "sync", shared, "bring what agents on this machine wrote since last time")
    keep.add_argument("product", nargs="?", choices=list(PLACES), help="all that are here, unless named")
    keep.add_argument("path", nargs="?", type=Path, help="its folder, if it is not at its usual place")
    keep.add_argument("--watch", action="store_true", help="go on, and bring each change")


def _moment(text: str) -> str:
    """A date or date-time as the server takes it: with a zone, this machine's where none is said."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no date: write it as 2025-01-31.") from None
