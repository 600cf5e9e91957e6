"""`python -m evals.reliability.agents_week`: real agents work for a week with the hooks of `recollect install`.

1. A product of its own runs, and a model on loopback that answers the APIs of Anthropic, OpenAI and Google. Of Claude
   Code, Codex, Gemini CLI and opencode those take part that are on PATH; the others are named. Nothing is installed.
2. Each agent works in sessions of three to five prompts, in three repositories, once with hooks and once without. The
   time from a prompt to the model's first request, and what that request has of ours, are taken down.
3. With each failure (server down, hung, 500, wrong token, slow, a disk that takes nothing, broken JSON) an agent's
   output and its requests must be, byte for byte, those without hooks.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BASE = Path(__file__).resolve().parents[2]
AGENTS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini", "opencode": "opencode"}
# What each names in what it stores; no word of one may be in the context of another.
PROJECTS = ("quartz", "maple", "heron")
FACTS = ("the port is 54{n:02}", "the owner is team {n}", "the limit is {n}0 requests", "the mirror is host-{n}")
# As JSON has it. The instructions name the tag, without a line end after it.
# Gemini CLI writes the marks of tags as entities.
BLOCK = re.compile(r"(?:<|&lt;)recollect-context(?:>|&gt;)\\n(.*?)(?:<|&lt;)/recollect-context(?:>|&gt;)", re.DOTALL)
FAILURES = ("down", "hung", "500", "wrong token", "slow", "no disk", "broken JSON")
SLOW_SECONDS = 5
LONGEST_RUN = 120


# --- A model on loopback ---


class Model:
    """Keeps each request with its time; answers with the last words of the prompt, as a stream if one is asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[float, str]] = []
        self._server = _serving(self._answer)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()

    def first(self, mark: str, since: float) -> tuple[float, str] | None:
        """The first request with this mark that offers tools: agents ask for titles beside it."""
        found = [each for each in self.requests if each[0] >= since and mark in each[1] and '"tools"' in each[1]]
        return found[0] if found else None

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        text = body.decode(errors="replace")
        self.requests.append((time.monotonic(), text))
        # What is recalled has the marks of earlier prompts.
        marks = re.findall(r"mark-[a-z0-9]+-[0-9]+-[0-9]+", BLOCK.sub("", text))
        words = f"Noted, {marks[-1]}." if marks else "A session"
        path = handler.path.partition("?")[0]
        is_stream = "stream" in path or '"stream":true' in text.replace(" ", "")
        if path.endswith("/count_tokens"):
            _send(handler, {"input_tokens": 10})
        elif path.endswith("/messages"):
            _anthropic(handler, words, is_stream=is_stream)
        elif path.endswith("/responses"):
            _responses(handler, words)
        elif "generateContent" in path or "GenerateContent" in path:
            _google(handler, words, is_stream=is_stream)
        else:
            _send(handler, {"data": [], "models": []})


def _serving(answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        do_GET = do_HEAD = do_POST  # noqa: N815 - the names of http.server

        def handle(self) -> None:
            # Agents leave in the middle.
            with suppress(ConnectionError):
                super().handle()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _send(handler: BaseHTTPRequestHandler, data: Any, kind: str = "application/json", status: int = 200) -> None:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _stream(handler: BaseHTTPRequestHandler, events: list[dict[str, Any]]) -> None:
    named = [f"event: {each['type']}\n" if "type" in each else "" for each in events]
    text = "".join(f"{name}data: {json.dumps(each)}\n\n" for name, each in zip(named, events, strict=True))
    _send(handler, text.encode(), "text/event-stream")


def _anthropic(handler: BaseHTTPRequestHandler, words: str, *, is_stream: bool) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "stop_sequence": None}
    if not is_stream:
        content = [{"type": "text", "text": words}]
        _send(handler, {**message, "content": content, "stop_reason": "end_turn", "usage": usage})
        return
    start: dict[str, Any] = {**message, "content": [], "stop_reason": None, "usage": usage}
    delta = {"type": "text_delta", "text": words}
    _stream(
        handler,
        [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ],
    )


def _responses(handler: BaseHTTPRequestHandler, words: str) -> None:
    content = [{"type": "output_text", "text": words, "annotations": []}]
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    done = {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}
    _stream(
        handler,
        [
            {"type": "response.created", "response": {**done, "status": "in_progress", "output": []}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": done},
        ],
    )


def _google(handler: BaseHTTPRequestHandler, words: str, *, is_stream: bool) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": words}]}, "finishReason": "STOP", "index": 0}
    counts = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    answer = {"candidates": [candidate], "usageMetadata": counts}
    if is_stream:
        _stream(handler, [answer])
    else:
        _send(handler, answer)


# --- A machine with an agent ---


class Machine:
    """A home directory in which one agent works, with or without hooks."""

    def __init__(self, folder: Path, agent: str, model: Model) -> None:
        self.folder, self.agent, self.model = folder, agent, model
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_DATA_HOME": str(self.home / ".data"),
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "GEMINI_API_KEY": "fake",
            "GOOGLE_GEMINI_BASE_URL": model.address,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "OPENAI_API_KEY": "fake",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "NO_COLOR": "1",
            "IS_SANDBOX": "1",
        }
        self._settings()
        for name in PROJECTS:
            repository = folder / name
            (repository / ".git").mkdir(parents=True)
            (repository / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
            (repository / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://git.invalid/team/{name}\n')

    def _settings(self) -> None:
        gemini = self.home / ".gemini"
        gemini.mkdir()
        chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"disableAutoUpdate": True}}
        (gemini / "settings.json").write_text(json.dumps({**chosen, "privacy": {"usageStatisticsEnabled": False}}))
        codex = self.home / ".codex"
        codex.mkdir()
        (codex / "config.toml").write_text(
            'model = "gpt-5"\nmodel_provider = "fake"\n[model_providers.fake]\nname = "fake"\n'
            f'base_url = "{self.model.address}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        )
        opencode = self.home / ".config" / "opencode"
        opencode.mkdir(parents=True)
        provider = {"anthropic": {"options": {"baseURL": f"{self.model.address}/v1", "apiKey": "fake"}}}
        settings = {
            "model": "anthropic/claude-sonnet-4-5",
            "provider": provider,
            "autoupdate": False,
            "share": "disabled",
        }
        (opencode / "opencode.json").write_text(json.dumps(settings))

    def recollect(self, *words: str, text: str = "") -> None:
        command = [sys.executable, str(BASE / "recollect_cli"), *words]
        subprocess.run(command, env=self.environment, input=text.encode(), check=True, capture_output=True)  # noqa: S603

    def install(self, address: str, token: str) -> None:
        self.recollect("login", address, "--token", "-", text=token)
        self.recollect("install", self.agent, "--capture", "all")

    def configure(self, **config: str) -> None:
        file = self.home / ".config" / "recollect" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **config}))

    def ask(self, project: str, prompt: str, *, is_first: bool) -> tuple[int, bytes, float]:
        """The exit status, the output, and when it was sent."""
        begun = time.monotonic()
        command = [shutil.which(AGENTS[self.agent]) or "", *self._words(prompt, is_first=is_first)]
        done = subprocess.run(  # noqa: S603
            command,
            cwd=self.folder / project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=LONGEST_RUN,
        )
        return done.returncode, done.stdout, begun

    def _words(self, prompt: str, *, is_first: bool) -> list[str]:
        if self.agent == "claude-code":
            return ["-p", prompt, *([] if is_first else ["--continue"])]
        if self.agent == "codex":
            options = ["--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
            return ["exec", *options, *([prompt] if is_first else ["resume", "--last", prompt])]
        if self.agent == "gemini":
            return [
                "--skip-trust",
                "-m",
                "gemini-2.5-flash",
                "-p",
                prompt,
                *([] if is_first else ["--resume", "latest"]),
            ]
        return ["run", prompt, *([] if is_first else ["--continue"])]


# --- The week ---


class Week:
    """What was taken down: seconds to the first request, tokens, and sentences about what must not be."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, bool, bool], list[float]] = {}
        self.packs: dict[str, list[int]] = {}
        self.recalls: dict[str, list[int]] = {}
        self.wrong: list[str] = []
        self.prompts = 0


def work(week: Week, machine: Machine, session: int, *, has_hooks: bool) -> None:
    """One session of three to five prompts in one repository."""
    project = PROJECTS[session % len(PROJECTS)]
    blocks: set[str] = set()
    for number in range(3 + session % 3):
        mark = f"mark-{project}-{session}-{number}"
        fact = FACTS[number % len(FACTS)].format(n=session)
        asks = f"What did we say about {FACTS[number % len(FACTS)].split(' is ')[0]} of {project}?"
        prompt = f"In {project} {fact}. Note {mark}." if session < len(PROJECTS) else f"{asks} Note {mark}."
        status, output, begun = machine.ask(project, prompt, is_first=number == 0)
        request = machine.model.first(mark, begun)
        if request is None or status or mark not in output.decode(errors="replace"):
            week.wrong.append(f"{machine.agent} did not answer {mark}: status {status}")
            continue
        week.prompts += 1
        week.seconds.setdefault((machine.agent, has_hooks, number == 0), []).append(request[0] - begun)
        found = {json.loads(f'"{each}"') for each in BLOCK.findall(request[1])}
        for block in found - blocks:
            kept = week.packs if "# " in block else week.recalls
            kept.setdefault(f"{machine.agent} {session}", []).append(tokens_of(block))
            others = [other for other in PROJECTS if other != project and other in block]
            if others or not has_hooks:
                week.wrong.append(
                    f"{machine.agent} got a line of {others or 'ours without hooks'} in {project}: {block}"
                )
        blocks |= found


def tokens_of(text: str) -> int:
    """As the server counts, with a margin."""
    from intake.llm.tokens import tokens_of as counted

    return round(counted(text))


# --- Failures: a stand-in for the server, or a machine that is wrong ---


@contextmanager
def failing(machine: Machine, failure: str, address: str) -> Iterator[None]:
    """Within the block the machine's hooks meet this failure."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if failure == "hung":
            silent.listen(64)
        here = f"http://127.0.0.1:{silent.getsockname()[1]}"

        def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
            if failure == "slow":
                time.sleep(SLOW_SECONDS)
            status = 500 if failure == "500" else 200
            _send(handler, b'{"text": "bro' if failure == "broken JSON" else b"{}", status=status)

        stand_in = _serving(answer)
        if failure in ("500", "slow", "broken JSON"):
            here = f"http://127.0.0.1:{stand_in.server_port}"
        changed = {"url": address if failure in ("wrong token", "no disk") else here}
        machine.configure(**changed, **({"token": "0" * 64} if failure == "wrong token" else {}))
        if failure == "no disk":
            # A file where our folder would be: each write of a hook fails, as on a full disk, and none of the agent's.
            state = machine.folder / "full"
            state.mkdir()
            (state / "recollect").write_text("")
            machine.environment["XDG_STATE_HOME"] = str(state)
        try:
            yield
        finally:
            stand_in.shutdown()


def compare(agent: str, folder: Path, model: Model, address: str, token: str) -> Iterator[tuple[str, bool]]:
    """For each failure whether the output, the status and what the model got are those without hooks."""

    def run(machine: Machine) -> tuple[int, bytes, bool]:
        status, output, begun = machine.ask("quartz", "Note mark-quartz-0-0.", is_first=True)
        request = model.first("mark-quartz-0-0", begun)
        return status, output, request is not None and "recollect-context" not in _without_instructions(request[1])

    expected = run(Machine(folder / f"{agent}-plain", agent, model))
    for failure in FAILURES:
        machine = Machine(folder / f"{agent}-{failure.replace(' ', '-')}", agent, model)
        machine.install(address, token)
        with failing(machine, failure, address):
            # With a disk that takes nothing the context still comes: the output alone is compared.
            yield (
                failure,
                run(machine)[: 2 if failure == "no disk" else 3] == expected[: 2 if failure == "no disk" else 3],
            )


def _without_instructions(text: str) -> str:
    """The block of the instructions file names the tag."""
    return text.replace("in `<recollect-context>`", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sessions", type=int, default=30, help="with hooks, and as many without (30)")
    parser.add_argument("--agents", nargs="*", default=list(AGENTS), choices=list(AGENTS), help="all, unless named")
    parser.add_argument("--no-failures", action="store_true", help="leave the failures out")
    options = parser.parse_args()
    here = [agent for agent in options.agents if shutil.which(AGENTS[agent])]
    for agent in set(options.agents) - set(here):
        _show(f"{agent}: no {AGENTS[agent]} on PATH, left out.")
    if not here:
        sys.exit("No agent is on PATH.")
    _set_up_django()
    from evals.reliability.product import running_product

    folder, model = Path(tempfile.mkdtemp(prefix="recollect-week-")), Model()
    try:
        with running_product() as product:
            (person,) = product.people(1)
            work_through(here, folder, model, product.address, person.token, sessions=options.sessions)
            for agent in [] if options.no_failures else here:
                for failure, is_same in compare(agent, folder, model, product.address, person.token):
                    _show(f"{agent}, {failure}: {'the same' if is_same else 'DIFFERENT'}")
    finally:
        model.close()
        shutil.rmtree(folder, ignore_errors=True)


def _set_up_django() -> None:
    """Of a script that starts its own product: no database is asked from here."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    os.environ["IGNORE_ENV_FILES"] = "1"
    os.environ.setdefault("DATABASE_URL", "postgres:///none")
    os.environ.setdefault("SECRET_KEY", "of this script alone")
    import django

    django.setup()


def work_through(here: list[str], folder: Path, model: Model, address: str, token: str, *, sessions: int) -> None:
    """The sessions of all agents in turn, and what was taken down."""
    from evals.client import Client

    week = Week()
    machines = {
        (agent, has_hooks): Machine(folder / f"{agent}-{has_hooks}", agent, model)
        for agent in here
        for has_hooks in (True, False)
    }
    for agent in here:
        machines[agent, True].install(address, token)
    for session in range(sessions):
        agent = here[session % len(here)]
        for has_hooks in (True, False):
            work(week, machines[agent, has_hooks], session // len(here), has_hooks=has_hooks)
        _show(f"session {session + 1} of {sessions}: {agent}")
    with Client(address, {"Authorization": f"Token {token}"}) as client:
        report(week, client.ask("GET", "/api/v1/account/export/?as=json").body.decode())


def report(week: Week, export: str) -> None:
    for agent in AGENTS:
        for is_first in (True, False):
            with_hooks, without = (week.seconds.get((agent, has_hooks, is_first), []) for has_hooks in (True, False))
            if with_hooks and without:
                extra = statistics.median(with_hooks) - statistics.median(without)
                worst = max(with_hooks) - statistics.median(without)
                kind = "first prompt" if is_first else "later prompts"
                _show(f"{agent}, {kind}: +{extra:.2f} s at the median, +{worst:.2f} s at worst, of {len(with_hooks)}")
    for name, counts in (("pack", week.packs), ("prompt", week.recalls)):
        every = [count for each in counts.values() for count in each]
        most, mean = max(every or [0]), statistics.mean(every or [0])
        _show(f"tokens of a {name}: {mean:.0f} on average, {most} at most, {len(every)}")
    total = sum(count for counts in (week.packs, week.recalls) for each in counts.values() for count in each)
    _show(f"tokens of all packs and prompts: {total}, of {week.prompts} prompts with and without hooks")
    stored = export.count('"user_message"')
    _show(f"turns captured: {stored}")
    _show(f"of them with recalled text: {export.count('recollect-context') + export.count('memory in Recollect')}")
    _show(f"wrong: {len(week.wrong)}")
    for each in week.wrong[:20]:
        _show(f"  {each[:300]}")


def _show(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a script


if __name__ == "__main__":
    main()
