"""What leaves this machine of an agent's session: the folders that may, the turns of a transcript, without secrets.

Turns are read from where the last call ended, redacted, and kept in a spool until the server has them. Only the user's
words, the agent's answers and the names of tools are read: never results of tools, contents of files, thinking or the
environment.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from recollect_cli.client import Failure, Server, read, state_folder, write, write_file
from recollect_cli.connecting import project_of, read_config

# --- Privacy: folders that are left alone, passages marked as private, and keys ---

IGNORE_FILE = ".recollect-ignore"
# Around the context that a hook puts in: what was recalled is not captured again.
CONTEXT_TAG = "recollect-context"
PRIVATE, KEY = "[private]", "[key]"
# The programs put in them what is not the user's words: context of hooks, instructions, files, output of commands.
PROGRAM_TAGS = (
    "hook_context", "system-reminder", "user-prompt-submit-hook", "session-start-hook", "environment_context",
    "user_instructions", "INSTRUCTIONS", "permissions", "skill", "ide_selection", "ide_opened_file", "ide_diagnostics",
    "new-diagnostics", "local-command-stdout", "local-command-stderr", "bash-stdout", "bash-stderr", "persisted-output",
    "task-notification",
)  # fmt: skip
_INSTRUCTIONS = re.compile(r"^# AGENTS\.md instructions[^\n]{0,500}$", re.MULTILINE)

_KEYS = re.compile(
    r"\b(?:"
    r"sk-[A-Za-z0-9_-]{16,200}|(?:gh[opsur]|glpat|npm|hf|rcat|rcrt|pypi)[_-][A-Za-z0-9_-]{16,300}"
    r"|github_pat_[A-Za-z0-9_]{20,200}|xox[abeoprs]-[A-Za-z0-9-]{10,200}|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|AIza[A-Za-z0-9_-]{30,60}|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,200}|SG\.[A-Za-z0-9_.-]{20,200}"
    r"|eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{4,4000}(?:\.[A-Za-z0-9_-]{0,4000})?"
    r")"
)
# A name that says what the value is, then the value; the name stays.
_NAMED = re.compile(
    r"(?i)(?P<name>\b[A-Za-z0-9_-]{0,40}(?:api[_-]?key|secret|passw(?:or)?d|passphrase|access[_-]?token|auth[_-]?token"
    r"|private[_-]?key|credential)[A-Za-z0-9_-]{0,20}[\"']{0,1}[ \t]{0,4}(?:=|:)[ \t]{0,4})"
    r"(?P<value>\"[^\"\n]{4,500}\"|'[^'\n]{4,500}'|[^\s\"',;]{4,500})"
)
_BEARER = re.compile(r"(?i)\b(?P<name>(?:bearer|token|basic)[ \t]{1,4})(?=[^\s]{0,200}[0-9])[A-Za-z0-9._~+/=-]{20,500}")
_IN_ADDRESS = re.compile(r"(?P<name>[a-z][a-z0-9+.-]{1,20}://)[^\s:/@]{0,100}:[^\s/@]{1,200}@")


def redacted(text: str) -> str:
    """Without what was recalled or added by a program, without what is marked as private, and without keys."""
    for tag in (*PROGRAM_TAGS, CONTEXT_TAG):
        text = _between(text, f"<{tag}>", f"</{tag}>", "", needs_end=True)
    text = _INSTRUCTIONS.sub("", text)
    text = _between(text, "<private>", "</private>", PRIVATE)
    text = _between(text, "-----BEGIN ", "-----END ", KEY, only_with="PRIVATE KEY", takes_line=True)
    text = _KEYS.sub(KEY, text)
    text = _BEARER.sub(rf"\g<name>{KEY}", text)
    text = _IN_ADDRESS.sub(rf"\g<name>{KEY}@", text)
    return _NAMED.sub(rf"\g<name>{KEY}", text)


def _between(
    text: str,
    begin: str,
    end: str,
    instead: str,
    *,
    only_with: str = "",
    takes_line: bool = False,
    needs_end: bool = False,
) -> str:
    """Replaces each passage from `begin` to `end`; one without an end reaches to the end of the text, or stays."""
    parts, at = [], 0
    while (start := text.find(begin, at)) >= 0:
        stop = text.find(end, start + len(begin))
        if stop < 0 and needs_end:
            break
        after = len(text) if stop < 0 else stop + len(end)
        if takes_line and stop >= 0:
            line_end = text.find("\n", after)
            after = len(text) if line_end < 0 else line_end
        is_meant = not only_with or only_with in text[start : start + 60]
        parts += [text[at:start], instead if is_meant else text[start:after]]
        at = after
    return "".join([*parts, text[at:]])


Settings = dict[str, Any]
"""`{capture: all | only | none, folders: [...], never: [...]}` of this machine's configuration."""


def is_left_alone(folder: str, settings: Settings) -> bool:
    """Whether nothing of this folder leaves the machine, neither turns nor prompts."""
    here = os.path.realpath(folder)
    if any(_is_within(here, each) for each in settings.get("never", [])) or _is_ignored(here):
        return True
    return settings.get("capture") == "only" and not any(_is_within(here, each) for each in settings.get("folders", []))


def may_capture(folder: str, settings: Settings) -> bool:
    return settings.get("capture") in ("all", "only") and not is_left_alone(folder, settings)


def _is_within(folder: str, other: str) -> bool:
    root = os.path.realpath(os.path.expanduser(other))  # noqa: PTH111 - pathlib costs the hook a tenth of its start
    return folder == root or folder.startswith(root.rstrip(os.sep) + os.sep)


def _is_ignored(folder: str) -> bool:
    """By a file in the folder or above it: empty for all below it, or with patterns of folders, one a line.

    One that cannot be read counts as empty.
    """
    for root in (Path(folder), *Path(folder).parents):
        file = root / IGNORE_FILE
        if not file.is_file():
            continue
        try:
            lines = [
                line.strip().strip("/") for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
            ]
        except OSError:
            return True
        patterns = [line for line in lines if line and not line.startswith("#")]
        inside = Path(folder).relative_to(root)
        above = [str(each) for each in (inside, *inside.parents)]
        if not patterns or any(fnmatch(name, pattern) for name in above for pattern in patterns):
            return True
    return False


# --- The turns of a transcript ---

Turn = dict[str, Any]
"""`{uuid, parent?, saidAt, user, answer, model?, tools}`, as the server takes it."""
Lines = Iterator[tuple[int, int, dict[str, Any]]]
"""Of each line: its number, where it begins in the file, and its object."""
LONGEST_LINE = 32 * 1024 * 1024


def _lines(path: Path, *, start: int, number: int) -> Lines:
    """From a byte and the number of the line there. A line that is being written is left for the next time."""
    with path.open("rb") as file:
        file.seek(start)
        at = start
        for line in file:
            number += 1
            if not line.endswith(b"\n"):
                return
            with suppress(ValueError, RecursionError):
                found = json.loads(line) if len(line) <= LONGEST_LINE else None
                if isinstance(found, dict):
                    yield number, at, found
            at += len(line)


class Transcript:
    """The turns of a session's file, from where it was read to; `at` and `number` are where the last turn begins."""

    def __init__(self, *, at: int = 0, number: int = 0, parent: str = "", model: str = "") -> None:
        self.at, self.number, self.parent, self.model = at, number, parent, model
        self.turns: list[Turn] = []
        self.of_node: dict[str, str] = {}
        self.misses_parent = False

    def ask(self, node: str, parent: str, text: str, moment: str, place: tuple[int, int]) -> None:
        if self.of_node.get(node) == node:
            # A session that was resumed may repeat its lines.
            return
        self.turns.append(
            {
                "uuid": node,
                "parent": parent or None,
                "saidAt": moment,
                "user": text,
                "answer": "",
                "model": "",
                "tools": [],
            }
        )
        self.at, self.number = place
        self.of_node[node] = node

    def answer(self, turn: str, text: str, model: str, tools: Iterable[str]) -> None:
        found = next((each for each in reversed(self.turns) if each["uuid"] == turn), None)
        if found is None:
            return
        found["answer"] = "\n\n".join(filter(None, [found["answer"], text]))
        found["model"] = model or found["model"]
        found["tools"] += [name for name in tools if name not in found["tools"]]


def _text(content: Any, *kinds: str) -> str:
    if isinstance(content, str):
        return content.strip()
    blocks = content if isinstance(content, list) else []
    texts = (each.get("text") for each in blocks if isinstance(each, dict) and each.get("type") in kinds)
    return "\n\n".join(text.strip() for text in texts if isinstance(text, str) and text.strip())


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _claude_code(path: Path, transcript: Transcript) -> None:
    """A tree of lines: the turn of an answer is that of the nearest user's message above it."""
    first = transcript.at
    for number, at, line in _lines(path, start=transcript.at, number=transcript.number):
        node, above = line.get("uuid"), line.get("parentUuid") or line.get("logicalParentUuid")
        if not isinstance(node, str) or line.get("isSidechain"):
            continue
        above_turn = transcript.of_node.get(above, "") if isinstance(above, str) else ""
        if at == first > 0:
            above_turn = transcript.parent
        elif first > 0 and above and above not in transcript.of_node:
            transcript.misses_parent = True
        message = _object(line.get("message"))
        transcript.of_node[node] = above_turn
        if line.get("isMeta") or line.get("isCompactSummary") or line.get("isApiErrorMessage"):
            continue
        content = message.get("content")
        if line.get("type") == "user" and (text := _text(content, "text")):
            transcript.ask(node, above_turn, text, str(line.get("timestamp", "")), (at, number - 1))
        elif line.get("type") == "assistant" and message.get("model") != "<synthetic>":
            blocks = content if isinstance(content, list) else []
            tools = [
                str(each.get("name", ""))
                for each in blocks
                if isinstance(each, dict) and each.get("type") == "tool_use"
            ]
            transcript.answer(above_turn, _text(content, "text"), str(message.get("model") or ""), tools)


def _codex(path: Path, transcript: Transcript) -> None:
    """A list of lines, whose numbers are the ids of their messages."""
    turn = ""
    for number, at, line in _lines(path, start=transcript.at, number=transcript.number):
        item = _object(line.get("payload"))
        kind, role = item.get("type"), item.get("role")
        if line.get("type") == "turn_context":
            transcript.model = str(item.get("model") or transcript.model)
        elif line.get("type") != "response_item":
            continue
        elif kind in ("function_call", "custom_tool_call"):
            transcript.answer(turn, "", "", [str(item.get("name", ""))])
        elif kind == "message" and role == "user" and (text := _text(item.get("content"), "input_text", "text")):
            transcript.ask(
                str(number), turn or transcript.parent, text, str(line.get("timestamp", "")), (at, number - 1)
            )
            turn = str(number)
        elif kind == "message" and role == "assistant":
            transcript.answer(turn, _text(item.get("content"), "output_text", "text"), transcript.model, [])


READERS: dict[str, Callable[[Path, Transcript], None]] = {"claude-code": _claude_code, "codex": _codex}


def new_turns(
    product: str, path: Path, position: dict[str, Any], ending: str = ""
) -> tuple[list[Turn], dict[str, Any]]:
    """The turns from the last known one on, if it has grown, and the position after them. Raises `OSError`.

    `ending`: the last words of the last answer, which may not be in the file yet.
    """
    known = position if position.get("at", 0) <= path.stat().st_size else {}
    transcript = Transcript(
        **{name: value for name, value in known.items() if name in ("at", "number", "parent", "model")}
    )
    READERS[product](path, transcript)
    if transcript.misses_parent:
        # The session went back to an earlier turn, which only the whole file names.
        transcript = Transcript()
        READERS[product](path, transcript)
    if not transcript.turns:
        return [], known
    last = transcript.turns[-1]
    if ending.strip() and ending.strip() not in last["answer"]:
        last["answer"] = "\n\n".join(filter(None, [last["answer"], ending.strip()]))
    is_known = _digest(transcript.turns[0]) == known.get("last")
    after = {"at": transcript.at, "number": transcript.number, "parent": last["parent"] or ""}
    return transcript.turns[is_known:], {**after, "model": transcript.model, "last": _digest(last)}


def _digest(turn: Turn) -> str:
    return _hashed(json.dumps(turn, sort_keys=True))


def _hashed(text: str) -> str:
    # A hook that only fetches context starts sooner without it.
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


# --- The spool: bodies that the server has not taken yet, and up to where each session was read ---

SPOOL_BYTES = 50_000_000
# Of one request.
MOST_TURNS, MOST_CHARACTERS, MOST_TOOLS, LONGEST_TOOL = 50, 400_000, 500, 100
APPEND = "/api/v1/sessions/append/"
# The server will never take these: they are set aside, and `recollect status` counts them.
HOPELESS = ("validation_error", "too_large", "400", "413", "415", "422")


def spool_folder() -> Path:
    return state_folder() / "spool"


def bodies(about: dict[str, Any], turns: Iterable[Turn]) -> Iterator[dict[str, Any]]:
    """Requests of a bearable size, redacted. A turn of which nothing is left but private passages is left out."""
    batch: list[Turn] = []
    size = 0
    for turn in turns:
        words = {"user": redacted(turn["user"]).strip(), "answer": redacted(turn["answer"])}
        if not words["user"].replace(PRIVATE, "").strip():
            continue
        length = sum(map(len, words.values()))
        if batch and (len(batch) == MOST_TURNS or size + length > MOST_CHARACTERS):
            yield {**about, "turns": batch}
            batch, size = [], 0
        tools = [name[:LONGEST_TOOL] for name in turn["tools"] if name][:MOST_TOOLS]
        batch.append({**{name: value for name, value in turn.items() if value}, **words, "tools": tools})
        size += length
    if batch:
        yield {**about, "turns": batch}


def keep(body: dict[str, Any]) -> bool:
    """Whether the spool took it: it is not full, and can be written to."""
    text = json.dumps(body)
    if spool_size() + len(text) > SPOOL_BYTES:
        return False
    try:
        write_file(spool_folder() / f"{time.time_ns()}-{os.getpid()}.json", text)
    except OSError:
        return False
    return True


def spool_size() -> int:
    with suppress(OSError):
        return sum(each.stat().st_size for each in spool_folder().iterdir())
    return 0


def waiting(suffix: str = ".json") -> list[Path]:
    """The oldest first."""
    with suppress(OSError):
        return sorted(each for each in spool_folder().iterdir() if each.suffix == suffix)
    return []


def flush(server: Server) -> None:
    """Send what waits, the oldest first. Raises `Failure`: the rest goes on waiting."""
    for file in waiting():
        try:
            body = json.loads(file.read_bytes())
        except FileNotFoundError:
            # Another hook has sent it.
            continue
        except (OSError, ValueError):
            _set_aside(file)
            continue
        try:
            append(server, body)
        except Failure as failure:
            if failure.code not in HOPELESS:
                raise
            _set_aside(file)
            continue
        with suppress(OSError):
            file.unlink()


def append(server: Server, body: dict[str, Any]) -> dict[str, Any]:
    """Raises `Failure`."""
    return server.post_briefly(APPEND, body)


def _set_aside(file: Path) -> None:
    with suppress(OSError):
        file.rename(file.with_suffix(".refused"))


def position_name(product: str, session: str) -> str:
    return f"session-{_hashed(f'{product} {session}')[:32]}"


def capture_transcript(server: Server, about: dict[str, Any], path: Path, ending: str = "") -> None:
    """Send the new turns of a transcript. Raises `Failure` and `OSError`; the next call begins where this one did."""
    name = position_name(about["product"], about["session"])
    turns, position = new_turns(about["product"], path, read(name), ending)
    capture(server, about, turns)
    with suppress(OSError):
        write(name, position)
    flush(server)


def capture(server: Server, about: dict[str, Any], turns: Iterable[Turn]) -> None:
    """Keep the turns in the spool, or send at once what it does not take. Raises `Failure`."""
    for body in bodies(about, turns):
        if not keep(body):
            append(server, body)


# --- `recollect sync --watch`: the same without a hook ---


def append_session(server: Server, product: str, path: Path) -> int | None:
    """Sends the new turns of a session's file; returns how many were stored, None for a file that is no session.

    Raises `Failure` and `OSError`; the next call begins where this one did.
    """
    session, folder = _session_of(product, path)
    if not session:
        return None
    if folder and is_left_alone(folder, read_config()):
        return 0
    name = position_name(product, session)
    turns, position = new_turns(product, path, read(name))
    if "last" not in position:
        return None
    project, branch = project_of(folder) if folder else ("", "")
    named = {"product": product, "session": session, "project": project, "branch": branch, "cwd": folder}
    about = {field: value for field, value in named.items() if value}
    stored = sum(int(append(server, body).get("stored", 0)) for body in bodies(about, turns))
    with suppress(OSError):
        write(name, position)
    return stored


def _session_of(product: str, path: Path) -> tuple[str, str]:
    """The session's id, as the hooks name it, and its folder; empty if the file has none."""
    if path.suffix != ".jsonl":
        return "", ""
    for _number, _at, line in _lines(path, start=0, number=0):
        about = _object(line.get("payload")) if product == "codex" else line
        session = str(about.get("id") or "") if product == "codex" else path.stem
        # The first line of Codex, and the first message of Claude Code.
        if product == "codex" or isinstance(line.get("uuid"), str):
            return session, str(about.get("cwd") or "")
    return "", ""
