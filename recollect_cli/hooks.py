"""`recollect hook CLIENT EVENT`: what an agent's program calls at each event, from standard input to standard output.

1. `run` does its work in a thread and ends the process at one deadline, also while the thread waits for the server,
   the disk or the input: the exit status is always 0, and after a failure nothing is printed.
2. The events of all clients are four: a session begins, a prompt is sent, turns are complete, a session ends.
3. After three failures there is no attempt for a minute. After a day without success the next session begins with one
   notice.

Each client's contract was read from its package: Claude Code 2.1.197, Codex 0.171.0, Gemini CLI 0.61.0 and opencode
1.18.33; Cursor's from its documentation.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect_cli import capturing, spool, transcripts
from recollect_cli.client import Failure, Server
from recollect_cli.configuration import read_config, server_of
from recollect_cli.connecting import LACKS_SCOPE
from recollect_cli.failures import due_notice, is_paused, note_failure, note_success, note_unread
from recollect_cli.projects import project_of
from recollect_cli.redaction import CONTEXT_TAG, PROGRAM_TAGS, redacted

SESSION, PROMPT, TURNS, END = "session", "prompt", "turns", "end"

_CLAUDE_CODE = {
    "SessionStart": SESSION,
    "UserPromptSubmit": PROMPT,
    "Stop": TURNS,
    "PreCompact": TURNS,
    "SessionEnd": END,
}
EVENTS = {
    "claude-code": _CLAUDE_CODE,
    "codex": _CLAUDE_CODE,
    "gemini": {"SessionStart": SESSION, "BeforeAgent": PROMPT, "AfterAgent": TURNS, "SessionEnd": END},
    "opencode": {"session": SESSION, "prompt": PROMPT, "turns": TURNS},
    "cursor": {"sessionStart": SESSION},
}
# Of the server, by our name of the client.
PRODUCTS = {"gemini": "gemini-cli"}

Payload = dict[str, Any]


def run(client: str, event: str, *, started: float | None = None) -> None:
    """Never returns: the process ends with status 0, at the deadline at the latest."""
    begun = time.monotonic() if started is None else started
    kind = EVENTS.get(client, {}).get(event)
    printed: list[str] = []
    if kind is not None:
        left = begun + _seconds(kind) - time.monotonic()
        if not _ends_in(left, _work, client, event, kind, printed):
            printed.clear()
            # To note a failure after the deadline.
            _ends_in(0.1, note_failure, "It did not answer in time.")
    with suppress(BaseException):
        sys.stdout.write("".join(printed))
        sys.stdout.flush()
    # A thread that still waits for a server or a disk must not hold the agent up.
    os._exit(0)


def _seconds(kind: str) -> float:
    """A server far away may need more than the usual: RECOLLECT_HOOK_SECONDS, for every event."""
    with suppress(ValueError):
        return float(os.environ.get("RECOLLECT_HOOK_SECONDS", ""))
    # Seconds from the call of `run`. Python's own start takes up to a tenth of a second more.
    return {SESSION: 0.9, PROMPT: 0.6, TURNS: 0.9, END: 0.9}[kind]


def _ends_in(seconds: float, function: Callable[..., None], *arguments: Any) -> bool:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    return not thread.is_alive()


def _work(client: str, event: str, kind: str, printed: list[str]) -> None:
    text = ""
    # An agent must not notice any fault of ours.
    with suppress(BaseException):
        try:
            payload = json.loads(sys.stdin.buffer.read())
            if isinstance(payload, dict) and not payload.get("agent_id"):
                text = answer(client, kind, payload)
        except Failure as failure:
            # A token may be for one half alone: to recall, or to capture.
            if failure.code != LACKS_SCOPE:
                note_failure(str(failure))
        printed.extend(output_of(client, event, text, due_notice() if kind == SESSION else ""))


def answer(client: str, kind: str, payload: Payload) -> str:
    """The text for the agent, usually none. Raises `Failure`."""
    config = read_config()
    folder = str(payload.get("cwd") or (payload.get("workspace_roots") or [Path.cwd()])[0])
    if capturing.is_left_alone(folder, config) or is_paused():
        return ""
    server = server_of(
        os.environ.get("RECOLLECT_URL"), os.environ.get("RECOLLECT_TOKEN"), otherwise=config.get("url", "")
    )
    if kind in (SESSION, PROMPT):
        return _context(server, kind, folder, payload)
    if config.get("capture") in ("all", "only"):
        _send(server, PRODUCTS.get(client, client), kind, folder, payload)
    return ""


def _context(server: Server, kind: str, folder: str, payload: Payload) -> str:
    query = redacted(str(payload.get("prompt", ""))).strip()[:800].strip()
    if kind == PROMPT and (not query or query.startswith("/")):
        # A command of the program.
        return ""
    about = {
        "for": kind,
        "query": query if kind == PROMPT else None,
        "project": project_of(folder)[0],
        "session": _session(payload),
        # What the tags around the text take.
        "maxTokens": {SESSION: 800, PROMPT: 300}[kind] - 20,
    }
    asked = {name: value for name, value in about.items() if value}
    found = server.post_briefly("/api/v1/tools/get_context/", asked)
    note_success()
    text = str(found.get("text") or "").strip()
    # No stored text ends the frame, or speaks as the program that reads it.
    text = re.sub(rf"(?i)<(?=/?\s*(?:{'|'.join((*PROGRAM_TAGS, CONTEXT_TAG))})\b)", "\u2039", text)
    return f"<{CONTEXT_TAG}>\n{text}\n</{CONTEXT_TAG}>" if text else ""


def _session(payload: Payload) -> str:
    return str(payload.get("session_id") or payload.get("conversation_id") or "")


def _send(server: Server, product: str, kind: str, folder: str, payload: Payload) -> None:
    project, branch = project_of(folder)
    named = {"product": product, "session": _session(payload), "project": project, "branch": branch, "cwd": folder}
    about = {name: value for name, value in named.items() if value}
    session = _session(payload)
    path = transcripts.transcript_of(product, session, payload.get("transcript_path"))
    if product in transcripts.READERS and path is not None and (product not in PRODUCTS.values() or path.is_file()):
        ending = str(payload.get("last_assistant_message") or "")
        try:
            spool.capture_transcript(server, about, path, ending)
        except OSError as error:
            # A session that ends before anything was said has no log.
            if kind == TURNS:
                note_unread(session, f"{path}: {error.strerror or error}")
            return
        note_unread(session, "")
    elif kind == TURNS:
        spool.capture(server, about, _own_turns(payload))
        spool.flush(server)
    else:
        spool.flush(server)
    note_success()


def _own_turns(payload: Payload) -> list[transcripts.Turn]:
    """Of a client that sends the turns themselves, or the prompt and its answer."""
    if isinstance(payload.get("turns"), list):
        return [each for each in payload["turns"] if isinstance(each, dict)]
    import hashlib

    moment = str(payload.get("timestamp") or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    user = str(payload.get("prompt", ""))
    name = json.dumps([_session(payload), moment, user])
    node = hashlib.sha256(name.encode()).hexdigest()[:32]
    return [
        {"uuid": node, "saidAt": moment, "user": user, "answer": str(payload.get("prompt_response", "")), "tools": []}
    ]


def output_of(client: str, event: str, text: str, notice: str) -> list[str]:
    """What the client reads as JSON; nothing for nothing."""
    if not text and not notice:
        return []
    if client == "opencode":
        return [json.dumps({"context": text})] if text else []
    if client == "cursor":
        return [json.dumps({"additional_context": text})] if text else []
    shown: dict[str, Any] = {"systemMessage": notice} if notice else {}
    if text:
        shown["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": text}
    return [json.dumps(shown)]
