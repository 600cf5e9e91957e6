"""The turns of a session's log: of Claude Code, of Codex and of Gemini CLI, from where the last call ended.

Turns have the names that an import gives them, so that nothing comes in twice.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from recollect_cli.redaction import redacted
from recollect_cli.replies import answers_in_output, asked, asked_in, questions_in, replies_in_results, reply_to_call
from recollect_cli.values import Fields, joined, object_of, objects_of

Turn = Fields
"""`{uuid, parent?, saidAt, user, answer, model?, tools}`, as the server takes it."""
Lines = Iterator[tuple[int, int, Fields]]
"""Of each line: its number, where it begins in the file, and its object."""


def lines_of(path: Path, *, start: int, number: int) -> Lines:
    """From a byte and the number of the line there. A line that is being written is left for the next time."""
    with path.open("rb") as file:
        file.seek(start)
        at = start
        for line in file:
            number += 1
            if not line.endswith(b"\n"):
                return
            with suppress(ValueError, RecursionError):
                found = json.loads(line) if len(line) <= (32 * 1024 * 1024) else None
                if isinstance(found, dict):
                    yield number, at, found
            at += len(line)


class Transcript:
    """The turns of a session's file, from where it was read to; `at` and `number` are where the last turn begins."""

    def __init__(self, *, at: int = 0, number: int = 0, parent: str = "", model: str = "", queued: int = 0) -> None:
        self.at, self.number, self.parent, self.model = at, number, parent, model
        # How many prompts came into the session's queue before what is read, before the last turn, and since.
        self.queued_before = self.queued = queued
        self.queue: list[Fields] = []
        self.turns: list[Turn] = []
        self.of_node: dict[str, str] = {}
        self.misses_parent = False

    def ask(self, node: str, parent: str, text: str, moment: str, place: tuple[int, int]) -> None:
        if self.of_node.get(node) == node:
            # A session that was resumed may repeat its lines.
            return
        turn = {"uuid": node, "parent": parent or None, "saidAt": moment, "user": text}
        self.turns.append({**turn, "answer": "", "model": "", "tools": []})
        self.at, self.number = place
        self.queued = self.queued_before + len(self.queue)
        self.of_node[node] = node

    def answer(self, turn: str, text: str, model: str, tools: Iterable[str]) -> None:
        found = next((each for each in reversed(self.turns) if each["uuid"] == turn), None)
        if found is None:
            return
        found["answer"] = joined([found["answer"], text])
        found["model"] = model or found["model"]
        found["tools"] += [name for name in tools if name not in found["tools"]]


def _text(content: Any, *kinds: str) -> str:
    """The words of a content: a text, or the texts of its blocks, of these kinds or of any."""
    blocks = content if isinstance(content, list) else [content]
    blocks = [{"text": each, "type": "text"} if isinstance(each, str) else each for each in blocks]
    texts = (each.get("text") for each in objects_of(blocks) if not kinds or each.get("type") in kinds)
    return joined(text.strip() for text in texts if isinstance(text, str))


def _names(calls: list[Fields]) -> list[str]:
    return [str(each.get("name", "")) for each in calls]


def _claude_code(path: Path, transcript: Transcript) -> None:
    """A tree of lines: the turn of an answer is that of the nearest user's message above it."""
    first = transcript.at
    for number, at, line in lines_of(path, start=transcript.at, number=transcript.number):
        node, above = line.get("uuid"), line.get("parentUuid") or line.get("logicalParentUuid")
        if line.get("type") == "queue-operation":
            _take_queue(line, transcript, path)
        if not isinstance(node, str) or line.get("isSidechain"):
            continue
        above_turn = transcript.of_node.get(above, "") if isinstance(above, str) else ""
        if at == first > 0:
            above_turn = transcript.parent
        elif first > 0 and above and above not in transcript.of_node:
            transcript.misses_parent = True
        transcript.of_node[node] = above_turn
        if not (line.get("isMeta") or line.get("isCompactSummary") or line.get("isApiErrorMessage")):
            _take_message(line, node, above_turn, transcript, (at, number - 1))


def _take_message(line: Fields, node: str, above_turn: str, transcript: Transcript, place: tuple[int, int]) -> None:
    message, attachment = object_of(line, "message"), object_of(line, "attachment")
    for each in transcript.queue:
        # What was sent with the next message would stand in it.
        each["is_passed"] = each["state"] == "sent"
    kind, content = line.get("type"), message.get("content")
    if kind == "attachment" and attachment.get("type") == "queued_command":
        kind, content = "user", attachment.get("prompt")
    words = _text(content, "text")
    if kind == "user" and (text := joined([words, replies_in_results(line)])):
        transcript.ask(node, above_turn, text, str(line.get("timestamp", "")), place)
    elif kind == "assistant" and message.get("model") != "<synthetic>":
        calls = [each for each in objects_of(content) if each.get("type") == "tool_use"]
        text = joined([words, asked_in(calls, "input")])
        transcript.answer(above_turn, text, str(message.get("model") or ""), _names(calls))


def _take_queue(line: Fields, transcript: Transcript, path: Path) -> None:
    """A prompt that was written while an answer was running, by the name that an import gives it."""
    waiting = [each for each in transcript.queue if each["state"] == "waiting"]
    text = _text(line.get("content"), "text")
    if line.get("operation") == "enqueue":
        number = transcript.queued_before + len(transcript.queue)
        session, moment = line.get("sessionId") or path.stem, str(line.get("timestamp", ""))
        if redacted(text).strip():
            named = {"uuid": f"{session}:queued-{number}", "saidAt": moment, "user": text, "answer": "", "tools": []}
            transcript.queue.append({"state": "waiting", "turn": named})
    elif line.get("operation") in ("dequeue", "remove"):
        for each in waiting[:1]:
            each["state"] = "sent"
    elif line.get("operation") == "popAll":
        for each in waiting:
            each["state"] = "taken back"


def _codex(path: Path, transcript: Transcript) -> None:
    """A list of lines, whose numbers are the ids of their messages. A subagent's session has no words of the user."""
    thread = _Thread()
    is_child = is_of_subagent("codex", path)
    for number, at, line in () if is_child else lines_of(path, start=transcript.at, number=transcript.number):
        item = object_of(line, "payload")
        if line.get("type") == "turn_context":
            transcript.model = str(item.get("model") or transcript.model)
        elif item.get("type") == "thread_rolled_back":
            thread.roll_back(item.get("num_turns"))
            # The turn before may stand above what was read.
            transcript.misses_parent |= transcript.at > 0 and not thread.turns
        elif line.get("type") == "response_item":
            above = thread.turns[-1] if thread.turns else transcript.parent
            said, place = thread.take(item, (at, number - 1), transcript)
            if said:
                transcript.ask(str(number), above, said, str(line.get("timestamp", "")), place)
                thread.turns.append(str(number))
                thread.replies |= {str(number)} if item.get("type") != "message" else set()


class _Thread:
    """The turns of Codex that were not taken back, the calls that asked the user, and the turns that answer one."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.calls: dict[str, tuple[list[Fields], tuple[int, int]]] = {}
        self.replies: set[str] = set()

    def take(self, item: Fields, place: tuple[int, int], transcript: Transcript) -> tuple[str, tuple[int, int]]:
        """Notes what the agent said; returns what the user said, and where to read on."""
        kind, role, call = item.get("type"), item.get("role"), str(item.get("call_id"))
        turn = self.turns[-1] if self.turns else ""
        if kind in ("function_call", "custom_tool_call"):
            questions = questions_in(item.get("name"), item.get("arguments", item.get("input")))
            self.calls[call] = questions, place
            transcript.answer(turn, asked(questions), "", [str(item.get("name", ""))])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            # The next reading begins with the questions, without which the answers say nothing.
            questions, place = self.calls.get(call, ([], place))
            return answers_in_output(questions, item.get("output")), place
        elif kind == "message" and role == "user":
            return _text(item.get("content"), "input_text", "text"), place
        elif kind == "message" and role == "assistant":
            transcript.answer(turn, _text(item.get("content"), "output_text", "text"), transcript.model, [])
        return "", place

    def roll_back(self, count: Any) -> None:
        left = count if isinstance(count, int) else 0
        while self.turns and left:
            left -= self.turns.pop() not in self.replies


def is_of_subagent(product: str, path: Path) -> bool:
    """Whether the log has the work of a subagent: its parent's import brings that along."""
    head = next((line for _number, _at, line in lines_of(path, start=0, number=0)), {})
    if product != "codex":
        return bool(head.get("isSidechain"))
    about = object_of(head, "payload")
    is_child = about.get("source") == "subagent" or object_of(about, "source").keys() & {"subagent", "subAgent"}
    return bool(is_child) or about.get("thread_source") in ("subagent", "review")


def _gemini(path: Path, transcript: Transcript) -> None:
    """A log in which a record is written again when it grows; read whole, and taken from the last known turn on."""
    records: dict[str, Fields] = {}
    above: dict[str, str] = {}
    path_of_session: list[str] = []
    for number, _at, line in lines_of(path, start=0, number=0):
        node = str(line.get("id") or f"line-{number}")
        if isinstance(target := line.get("$rewindTo"), str):
            del path_of_session[path_of_session.index(target) if target in path_of_session else 0 :]
        elif "type" in line:
            if node not in records:
                above[node] = path_of_session[-1] if path_of_session else ""
                path_of_session.append(node)
            records[node] = line
    known, turn_of = transcript.number, {"": ""}
    for node, record in records.items():
        turn = turn_of.get(above[node], "")
        turn_of[node] = _take_record(node, record, turn, transcript)
    transcript.turns = transcript.turns[known:]


def _take_record(node: str, record: Fields, turn: str, transcript: Transcript) -> str:
    """The turn to which what follows the record belongs."""
    is_user = record.get("type") == "user"
    text = _text((is_user and record.get("displayContent")) or record.get("content"))
    calls = objects_of(record, "toolCalls")
    if record.get("type") == "gemini":
        answer = joined([text, asked_in(calls, "args")])
        transcript.answer(turn, answer, str(record.get("model") or ""), _names(calls))
        node, text = f"{node}:reply", joined(map(reply_to_call, calls))
    elif not is_user:
        return turn
    if not redacted(text).strip():
        return turn
    transcript.ask(node, turn, text, str(record.get("timestamp", "")), (0, len(transcript.turns)))
    return node


READERS: dict[str, Callable[[Path, Transcript], None]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini,
}
# By product: the variable that moves its folder, its place in the home directory, and where a session's log lies.
PLACES = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude", "projects/*/{session}.jsonl"),
    "codex": ("CODEX_HOME", ".codex", "*sessions/**/rollout-*{session}.jsonl"),
    "openclaw": ("OPENCLAW_STATE_DIR", ".openclaw", ""),
    "gemini-cli": ("GEMINI_CLI_HOME", ".gemini", ""),
    "cursor": ("", ".cursor", ""),
}


def default_place(product: str) -> Path:
    variable, name, _log = PLACES[product]
    moved = os.environ.get(variable)
    # Gemini CLI's variable moves the home directory that the folder lies in.
    return Path(moved or Path.home()) / name if product == "gemini-cli" or not moved else Path(moved)


def transcript_of(product: str, session: str, named: Any) -> Path | None:
    """The log of a session: the one named, or that of its id, since a session in a work tree lies in another folder.

    None if nothing is named and nothing found; the named one, which cannot be read, if it is nowhere else.
    """
    path = Path(named) if isinstance(named, str) and named else None
    if path is not None and path.is_file():
        return path
    pattern = PLACES.get(product, ("", "", ""))[2]
    if pattern and re.fullmatch(r"[\w.-]{8,100}", session):
        found = sorted(default_place(product).glob(pattern.format(session=session)))
        return found[0] if found else path
    return path


def new_turns(product: str, path: Path, position: Fields, ending: str = "") -> tuple[list[Turn], Fields]:
    """The turns from the last known one on, if it has grown, and the position after them. Raises `OSError`.

    `ending`: the last words of the last answer, which may not be in the file yet.
    """
    known = position if position.get("at", 0) <= path.stat().st_size else {}
    transcript = Transcript(
        **{name: value for name, value in known.items() if name in ("at", "number", "parent", "model", "queued")}
    )
    READERS[product](path, transcript)
    if transcript.misses_parent:
        # The session went back to an earlier turn, which only the whole file names.
        transcript = Transcript()
        READERS[product](path, transcript)
    if not transcript.turns:
        return [], known
    last = transcript.turns[-1]
    if ending.strip() not in last["answer"]:
        last["answer"] = joined([last["answer"], ending])
    is_known = _digest(transcript.turns[0]) == known.get("last")
    after = {"at": transcript.at, "number": transcript.number, "parent": last["parent"] or ""}
    after |= {"queued": transcript.queued, "model": transcript.model, "last": _digest(last)}
    return [*transcript.turns[is_known:], *_sent_from_queue(transcript)], after


def _sent_from_queue(transcript: Transcript) -> Iterator[Turn]:
    """Prompts that were sent and stand in no message: the user said them all the same."""
    lines = (line for turn in transcript.turns for line in [turn["user"], *turn["user"].splitlines()])
    seen = {" ".join(line.split()) for line in lines} if transcript.queue else set()
    for each in transcript.queue:
        if each.get("is_passed") and " ".join(each["turn"]["user"].split()) not in seen:
            yield each["turn"]


def _digest(turn: Turn) -> str:
    return hashed(json.dumps(turn, sort_keys=True))


def hashed(text: str) -> str:
    # A hook that only fetches context starts sooner without it.
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def session_of(product: str, path: Path) -> tuple[str, str]:
    """The session's id, as the hooks name it, and its folder; empty if the file has none."""
    if path.suffix != ".jsonl":
        return "", ""
    for _number, _at, line in lines_of(path, start=0, number=0):
        about = object_of(line, "payload") if product == "codex" else line
        session = str(about.get("id") or "") if product == "codex" else path.stem
        # The first line of Codex, and the first message of Claude Code.
        if product == "codex" or isinstance(line.get("uuid"), str):
            return session, str(about.get("cwd") or "")
    return "", ""
