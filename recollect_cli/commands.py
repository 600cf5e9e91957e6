"""What can be typed: `recollect search "…"`, `recollect add "…"`, `recollect sync`, `recollect install CLIENT` …

The other modules of a command are imported by it, so that each starts quickly.
"""

import json
import os
import sys
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server
from recollect_cli.configuration import config_file, read_config, server_of, write_config
from recollect_cli.printing import in_numbers, preview_text, printable, progress_shown, report_text

DEFAULT_ADDRESS = "http://127.0.0.1:8000"
RETRY_SECONDS = 30

Answer = dict[str, Any]
Answers = Iterator[Answer]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 for what the server or the way there refused, 130 for Ctrl-C (2 is argparse's, for a wrong
    usage)."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    options = command_parser().parse_args(words)
    try:
        for answer in _COMMANDS[options.command](options) or ():
            _print(answer, as_json=getattr(options, "json", False))
    except Failure as failure:
        print(printable(f"recollect: {failure}"), file=sys.stderr)  # noqa: T201
        return 1
    except KeyboardInterrupt:
        print("recollect: stopped", file=sys.stderr)  # noqa: T201
        # As shells have it.
        return 130
    return 0


def _print(answer: Answer, *, as_json: bool) -> None:
    try:
        text = answer.pop("text") if not as_json and "text" in answer else None
        print(printable(json.dumps(answer, ensure_ascii=False, indent=2) if text is None else text), flush=True)  # noqa: T201
    except BrokenPipeError:
        # Its reader, such as `head`, has seen enough. Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _server(options: Namespace) -> Server:
    address = options.url or os.environ.get("RECOLLECT_URL")
    token = os.environ.get("RECOLLECT_TOKEN") if options.token is None else options.token
    return server_of(address, token, otherwise=DEFAULT_ADDRESS)


def _import(options: Namespace) -> Answers:
    from recollect_cli.importing import ImportOptions, import_path

    server = _server(options)
    requested = ImportOptions(product=options.product, since=options.since, is_dry_run=options.dry_run)
    with progress_shown(is_quiet=options.json) as show:
        answer = import_path(server, options.path.expanduser(), requested, show)
    text = preview_text(answer) if options.dry_run else report_text(answer, server.address)
    yield {**answer, **_unless_json(options, text)}


def _sync(options: Namespace) -> Answers:
    from time import monotonic

    from recollect_cli.syncing import changes, folders

    server = _server(options)
    watched = folders(options.product, options.path and options.path.expanduser())
    if not options.watch:
        for folder in watched:
            yield _synced(server, folder, options)
        return
    left, next_try = set[Path](), 0.0
    # The first batch is all of them. What could not be sent is tried again, also where nothing else changes.
    for changed in changes(watched):
        left |= changed
        if not left or (not changed and monotonic() < next_try):
            continue
        next_try = monotonic() + RETRY_SECONDS
        for folder in watched:
            if folder[1].resolve() in left and (answer := _synced_again(server, folder, options)) is not None:
                left.discard(folder[1].resolve())
                if answer["import"] is not None:
                    yield answer


def _synced_again(server: Server, folder: tuple[str, Path], options: Namespace) -> Answer | None:
    """None where it could not be sent."""

    try:
        return _synced(server, folder, options)
    except Failure as failure:
        if not failure.may_pass:
            raise
        print(printable(f"recollect: {failure}"), file=sys.stderr)  # noqa: T201
        return None


def _synced(server: Server, folder: tuple[str, Path], options: Namespace) -> Answer:
    from recollect_cli.syncing import sync

    product, _path = folder
    with progress_shown(is_quiet=options.json) as show:
        done = sync(server, folder, show, appends=options.watch)
    text = f"{product}: nothing new" if done is None else f"{product}: {in_numbers(done['stored'])}"
    return {"product": product, "import": done, **_unless_json(options, text)}


def _unless_json(options: Namespace, text: str) -> dict[str, str]:
    return {} if options.json else {"text": text}


def _search(options: Namespace) -> Answers:
    arguments = {
        "query": options.query,
        "scope": options.scope,
        "max_results": options.limit,
        "rerank": options.rerank,
    }
    yield _server(options).call("search_history", arguments)


def _add(options: Namespace) -> Answers:
    """Save a memory; the key keeps a request that a proxy repeats from being stored twice."""
    import uuid

    content = options.content
    try:
        content = sys.stdin.read() if content == "-" else content
        # Python passes bytes that are not in the terminal's encoding on as half characters.
        content.encode()
    except UnicodeError:
        place = "Standard input" if options.content == "-" else "The text"
        raise Failure(f"{place} is not in UTF-8, so it was not saved.") from None
    if not content.strip():
        raise Failure("There is nothing to save: the text is empty.")
    arguments = {"content": content, "type": options.type, "project_id": options.project, "tags": options.tag}
    named = {name: value for name, value in arguments.items() if value}
    yield _server(options).call("save_memory", named, **{"Idempotency-Key": str(uuid.uuid4())})


def _context(options: Namespace) -> Answers:
    from recollect_cli.projects import project_of

    about = {
        "for": "session" if options.query is None else "prompt",
        "query": options.query,
        "project": project_of(str(Path.cwd()))[0] if options.project is None else options.project,
        "maxTokens": options.max_tokens,
    }
    answer = _server(options).call("get_context", {name: value for name, value in about.items() if value})
    yield {**answer, "text": answer["text"] or ("" if options.json else "Nothing.")}


def _export(options: Namespace) -> Answers:
    import shutil
    from http.client import HTTPException
    from urllib.parse import urlencode

    server = _server(options)
    unfinished = options.file.expanduser().with_name(options.file.name + ".part")
    try:
        query = urlencode({"as": options.form, **({"project": options.project} if options.project else {})})
        with server.opened("GET", f"/api/v1/account/export/?{query}", None, {}) as received:
            with unfinished.open("xb") as target:
                shutil.copyfileobj(received, target)
            size = unfinished.stat().st_size
            unfinished.replace(options.file.expanduser())
    except (OSError, HTTPException) as error:
        raise Failure(f"The export broke off, see {unfinished}: {error}") from None
    yield {"file": str(options.file), "bytes": size, "text": f"{options.file}: {size:,} bytes."}


def _login(options: Namespace) -> Answers:
    from recollect_cli.connecting import log_in

    address, token = options.address or _address(options), _token(options)
    done = log_in(address, token, lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    yield {**done, "text": f"Logged in at {done['url']}. The token is in {done['file']}, which only you can read."}


def _address(options: Namespace) -> str:
    address = options.url or os.environ.get("RECOLLECT_URL") or read_config().get("url")
    return str(address or DEFAULT_ADDRESS)


def _token(options: Namespace) -> str | None:
    """Where it is `-`, from standard input."""

    token: str | None = options.token
    if token == "-":  # noqa: S105 - the sign for standard input
        import getpass

        token = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.read()
        if not token.strip():
            raise Failure("There was no token in standard input.")
    return token


def _install(options: Namespace) -> Answers:
    from recollect_cli import clients, installing

    config = read_config()
    about: dict[str, str] = {}
    if options.client in clients.APPS and not options.remove:
        address, key = _address(options), _token(options)
        if not key:
            page = f"{address.rstrip('/')}/settings/apps/"
            raise Failure(f"An app needs a key of its own: make one at {page}, and give it with --token, or --token -.")
        server = Server(address, key.strip())
        about = {"address": server.address.rstrip("/"), "key": server.token}
    changes = installing.planned(options.client, removes=options.remove, **about)
    shown = installing.shown(changes) or f"{options.client}: nothing to change."
    lines = [shown.replace(about["key"], "YOUR_KEY") if about else shown]
    if not options.dry_run:
        installing.apply(changes, removes=options.remove)
        if changes:
            lines.append(f"{options.client}: {'removed' if options.remove else 'installed'}.")
        if not options.remove and options.client in clients.APPS:
            lines += installing.next_steps(options.client, config)
        elif not options.remove:
            may_ask = sys.stdin.isatty() and not options.json
            named = (options.capture, options.folder or [], options.never or [])
            chosen = {**config, **installing.captured_folders(config, *named, may_ask=may_ask)}
            write_config(chosen)
            lines += installing.next_steps(options.client, chosen)
    yield {"client": options.client, "files": [str(file) for file in changes], "text": "\n".join(lines)}


def _status(options: Namespace) -> Answers:
    from recollect_cli import clients, installing, serving, spool
    from recollect_cli.failures import hook_state

    config, state = read_config(), hook_state()
    try:
        server = _server(options)
        address = server.address
        server.ask("GET", "/api/v1/tools/")
        reached = "reachable, and the token is good"
    except Failure as failure:
        address, reached = options.url or config.get("url", DEFAULT_ADDRESS), str(failure)
    installed = [client for client in (*clients.CLIENTS, *clients.APPS) if installing.is_installed(client)]
    held = {"waiting": len(spool.waiting()), "refused": len(spool.waiting(".refused"))}
    answer = {
        "version": version(),
        "url": address,
        "server": reached,
        "here": serving.running_at(),
        "config": str(config_file()),
        "installed": installed,
        "capture": config.get("capture", "none"),
        "folders": config.get("folders", []),
        "never": config.get("never", []),
        "spool": {**held, "bytes": spool.spool_size()},
        "hooks": state,
    }
    yield {**answer, "text": _status_text(answer)}


def _status_text(answer: Answer) -> str:
    from time import localtime, strftime

    spool, state = answer["spool"], answer["hooks"]
    never = [", ".join(answer["never"])] if answer["never"] else []
    kept = {"all": "in all folders", "only": f"only in {', '.join(answer['folders'])}", "none": "in no folder"}
    lines = [
        f"recollect {answer['version']}",
        f"Server: {answer['url']}: {answer['server']}",
        f"Server of this installation: {f'runs at {here}' if (here := answer['here']) else 'does not run'}",
        f"Installed for: {', '.join(answer['installed']) or 'no client'}",
        f"Sessions are kept {', never in '.join([kept[answer['capture']], *never])}",
        f"Waiting to be sent: {spool['waiting']} ({spool['bytes']:,} bytes); refused by the server: {spool['refused']}",
    ]
    for name, words in (("succeeded", "Last success of a hook"), ("failing_since", "Hooks have failed since")):
        if name in state:
            lines.append(f"{words}: {strftime('%Y-%m-%d %H:%M', localtime(state[name]))}")
    lines += [f"Because: {state['reason']}"] if "reason" in state else []
    return "\n".join([*lines, *(f"A hook could not read a session: {why}" for why in state.get("unread", {}).values())])


def _mcp(options: Namespace) -> None:
    from recollect_cli.mcp import serve_mcp

    serve_mcp(_server(options), tools=options.tools)


def _here(options: Namespace) -> None:
    """The server of this machine, or a command of it."""
    from recollect_cli import serving

    if options.command == "up":
        demo = ["--demo"] if options.demo else []
        serving.run(["up", "--host", options.host, "--port", options.port, *demo])
    elif options.command == "down":
        serving.run(["down"])
    else:
        serving.run(options.arguments, program="manage.py")


def _hook(options: Namespace) -> None:
    from recollect_cli import hooks

    hooks.run(options.client, options.event)


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    for name in DISTRIBUTIONS:
        try:
            return version_of(name)
        except PackageNotFoundError:
            continue
    return "from its repository"


# Of the command line alone, and of the wheel with the server.
DISTRIBUTIONS = ("recollect-cli", "recollect-server")
_COMMANDS: dict[str, Callable[[Namespace], Answers | None]] = {
    "search": _search,
    "add": _add,
    "import": _import,
    "sync": _sync,
    "context": _context,
    "export": _export,
    "login": _login,
    "install": _install,
    "status": _status,
    "mcp": _mcp,
    "up": _here,
    "down": _here,
    "manage": _here,
    "hook": _hook,
}


def command_parser() -> ArgumentParser:
    shared = ArgumentParser(add_help=False)
    shared.add_argument("--url", help=f"the server (RECOLLECT_URL, or that of the log-in; {DEFAULT_ADDRESS})")
    shared.add_argument("--token", help="an access token (RECOLLECT_TOKEN, or that of the log-in)")
    shared.add_argument("--json", action="store_true", help="print the whole answer as JSON")

    parser = ArgumentParser(prog="recollect", description="Your memory, from a terminal.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
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
    export = _command(commands, "export", shared, "download everything of yours into a file")
    export.add_argument("file", type=Path)
    export.add_argument(
        "--as", dest="form", choices=["json", "zip", "markdown"], default="json", help="its form (json)"
    )
    export.add_argument("--project", help="only what belongs to this project; --project=-NAME: all but that")
    _add_agents(commands, shared)
    _add_server(commands)
    return parser


def _add_server(commands: Any) -> None:
    what = "run the server on this machine, until Ctrl-C or `recollect down`"
    up = commands.add_parser("up", help=what, description=what)
    up.add_argument("--host", default="127.0.0.1", help="where it listens (127.0.0.1: for this machine alone)")
    up.add_argument("--port", default="8000", help="its port (8000)")
    up.add_argument("--demo", action="store_true", help="load sample data")
    what = "stop the server that `recollect up` has started"
    commands.add_parser("down", help=what, description=what)
    what = "run a command of the server beside it, as in `recollect manage backup FILE`, and `recollect manage doctor`"
    manage = commands.add_parser("manage", help=what, description=what, prefix_chars="\0", add_help=False)
    manage.add_argument("arguments", nargs="*", metavar="COMMAND", help="the command and its arguments")


class _Version(Action):
    """Looked up only if it is asked for, which takes a while."""

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        print(f"recollect {version()}")  # noqa: T201
        parser.exit()


def _add_agents(commands: Any, shared: ArgumentParser) -> None:
    login = _command(commands, "login", shared, "connect this machine to a server, by the browser or with --token")
    login.add_argument("address", nargs="?", metavar="URL", help="the server, such as https://recollect.example")
    install = _command(commands, "install", shared, "give an agent this memory, or an app this server's models")
    install.add_argument("client", choices=_AGENTS + _APPS, help="the agent's program, or an app that asks models")
    install.add_argument("--dry-run", action="store_true", help="print what would change, and change nothing")
    install.add_argument("--remove", action="store_true", help="take everything out again")
    install.add_argument("--capture", choices=["all", "only", "none"], help="keep the sessions of which folders")
    install.add_argument("--folder", action="append", help="one of the folders for --capture only; repeatable")
    install.add_argument("--never", action="append", metavar="FOLDER", help="nothing leaves this folder; repeatable")
    context = _command(commands, "context", shared, "print what an agent would get at the beginning of a session")
    context.add_argument("query", nargs="?", help="or beside this prompt")
    context.add_argument("--project", help="of this project (that of the current folder)")
    context.add_argument("--max-tokens", type=int, default=800, help="its budget (800)")
    _command(commands, "status", shared, "print whether the server, the hooks and the spool are well")
    mcp = _command(commands, "mcp", shared, "serve the server's tools over standard input and output")
    mcp.add_argument(
        "--tools", choices=["all", "few"], default="all", help="list every tool, or the seven of daily work"
    )
    hook = _command(commands, "hook", shared, "what an agent's program calls: JSON in, JSON out, and never a failure")
    hook.add_argument("client")
    hook.add_argument("event")


_AGENTS = ("claude-code", "codex", "gemini", "opencode", "cursor", "claude-desktop", "vscode")
_APPS = ("aider", "llm", "zed", "codex-model", "claude-code-model", "opencode-model")
_SYNCED = ("claude-code", "codex", "openclaw", "gemini-cli", "cursor")


def _command(commands: Any, name: str, shared: ArgumentParser, what: str) -> ArgumentParser:
    added: ArgumentParser = commands.add_parser(name, parents=[shared], help=what, description=what)
    return added


def _add_import(commands: Any, shared: ArgumentParser) -> None:
    bring = _command(commands, "import", shared, "bring an export of another product in")
    bring.add_argument("path", type=Path, help="a zip, a file or a folder")
    bring.add_argument("--as", dest="product", metavar="PRODUCT", help="the product, where it is not recognised")
    bring.add_argument("--dry-run", action="store_true", help="say what would come in, and store nothing")
    bring.add_argument(
        "--since", type=_moment, metavar="DATE", help="only what went on since: YYYY-MM-DD or a date-time"
    )


def _add_sync(commands: Any, shared: ArgumentParser) -> None:
    keep = _command(commands, "sync", shared, "bring what agents on this machine wrote since last time")
    keep.add_argument("product", nargs="?", choices=_SYNCED, help="all that are here, unless named")
    keep.add_argument("path", nargs="?", type=Path, help="its folder, if it is not at its usual place")
    keep.add_argument("--watch", action="store_true", help="go on, and bring each change")


def _moment(text: str) -> str:
    """A date or date-time as the server takes it: with a zone, this machine's where none is said."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no date: write it as 2025-01-31.") from None
