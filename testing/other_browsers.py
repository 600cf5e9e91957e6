"""Firefox and WebKit by the protocols that their own packages speak; Playwright drives neither of Debian's builds.

Each driver has `go(address)`, `back()` and `run(function, *arguments)`, which calls a function in the page and gives
what it, or its promise, returns.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from websockets.sync.client import ClientConnection, connect

START_SECONDS = 60


class Firefox:
    """Over WebDriver BiDi."""

    def __init__(self, wire: ClientConnection):
        self.wire = wire
        self.sent = 0
        self._ask("session.new", capabilities={})
        self.page = self._ask("browsingContext.getTree")["contexts"][0]["context"]

    def go(self, address: str) -> None:
        self._ask("browsingContext.navigate", context=self.page, url=address, wait="complete")

    def back(self) -> None:
        self._ask("browsingContext.traverseHistory", context=self.page, delta=-1)

    def run(self, function: str, *arguments: Any) -> Any:
        expression = (
            f"Promise.resolve(({function})(...{json.dumps(arguments)})).then((it) => JSON.stringify(it ?? null))"
        )
        told = self._ask("script.evaluate", expression=expression, target={"context": self.page}, awaitPromise=True)
        if told["type"] == "exception":
            raise AssertionError(told["exceptionDetails"]["text"])
        return json.loads(told["result"]["value"])

    def _ask(self, method: str, **params: Any) -> Any:
        self.sent += 1
        self.wire.send(json.dumps({"id": self.sent, "method": method, "params": params}))
        while (told := json.loads(self.wire.recv(START_SECONDS))).get("id") != self.sent:
            pass
        if told["type"] == "error":
            raise AssertionError(f"{method}: {told['message']}")
        return told["result"]


class WebKit:
    """Over WebDriver's HTTP."""

    def __init__(self, address: str):
        self.address = f"{address}/session"
        wanted = {"webkitgtk:browserOptions": {"binary": _mini_browser(), "args": ["--automation"]}}
        session = self._ask("", capabilities={"alwaysMatch": wanted})["sessionId"]
        self.address = f"{self.address}/{session}"
        self._ask("/timeouts", script=START_SECONDS * 1000)

    def go(self, address: str) -> None:
        self._ask("/url", url=address)

    def back(self) -> None:
        self._ask("/back")

    def run(self, function: str, *arguments: Any) -> Any:
        script = f"const given = [...arguments], done = given.pop(); Promise.resolve(({function})(...given)).then(done)"
        return self._ask("/execute/async", script=script, args=arguments)

    def _ask(self, path: str, **body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(self.address + path, json.dumps(body).encode(), headers), timeout=START_SECONDS) as answer:
            return json.load(answer)["value"]


def _found(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        reason = f"No {program}: install the package {package}."
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def _mini_browser() -> str:
    return next(str(path) for path in sorted(Path("/usr/lib").glob("*/webkit2gtk-4*/MiniBrowser"), reverse=True))


@contextmanager
def _ended(*command: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """With the processes that it starts."""
    process = subprocess.Popen(command, text=True, start_new_session=True, **options)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    # It asks its vendor for nothing.
    silent = {
        "app.normandy.enabled": False,
        "messaging-system.rsexperimentloader.enabled": False,
        "services.settings.server": "data:,",
    }
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in silent.items()]
    (folder / "user.js").write_text("".join(lines))
    log = folder / "log"
    command = [_found("firefox-esr", "firefox-esr"), "--headless", "--no-remote", "--profile", str(folder)]
    with (
        log.open("w") as output,
        _ended(
            *command, "--remote-debugging-port=0", stdout=output, stderr=output, env={**os.environ, "HOME": str(folder)}
        ),
    ):
        until = time.monotonic() + START_SECONDS
        while not (found := re.search(r"BiDi listening on (ws://\S+)\n", log.read_text())):
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        with connect(f"{found[1]}/session", max_size=None) as wire:
            yield Firefox(wire)


@contextmanager
def webkit(folder: Path) -> Iterator[WebKit]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder),
        "WEBKIT_DISABLE_COMPOSITING_MODE": "1",
    }
    # The sandbox of a package for people's desktops wants a bus, which a bare machine does not have.
    environment["WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS"] = "1"
    command = [_found("xvfb-run", "xvfb"), "-a", _found("WebKitWebDriver", "webkit2gtk-driver"), f"--port={port}"]
    with _ended(*command, env=environment):
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                driver = WebKit(f"http://127.0.0.1:{port}")
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield driver


DRIVERS = {"firefox": firefox, "webkit": webkit}
