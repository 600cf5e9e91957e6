"""Pytest fixtures for pages in a real browser: headless Chromium, which reports anything a page must never do."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client

from testing.examiner import let_the_examiner_look

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, BrowserType, ConsoleMessage, Dialog, Page, Request

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    # One process for all pages, in place of one for each site of each context: a tenth of the tests' time.
    "--renderer-process-limit=1",
    "--disable-features=IsolateOrigins,site-per-process",
]
# First the one that has no window: it spends half as much on each page, and a quarter on starting.
NAMES = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
# A page takes a tenth of a second; on a busy machine, fifty times that.
PATIENCE_MS = 30_000
# Each has a process. No test opens pages with as many sets of options.
MOST_CONTEXTS = 4


@dataclass
class Trespasses:
    """Forbidden acts of a page: a request to another site, injected script that ran, an error."""

    home: str
    seen: list[str] = field(default_factory=list)

    def watch(self, page: "Page") -> None:
        page.on("request", self._on_request)
        page.on("pageerror", lambda error: self.seen.append(f"script error: {error}"))
        page.on("dialog", self._on_dialog)
        page.on("console", self._on_console)

    def _on_request(self, request: "Request") -> None:
        # The same place by the name that passkeys need.
        by_name = self.home.replace("127.0.0.1", "localhost")
        if not request.url.startswith((self.home, by_name, "data:", "blob:")):
            self.seen.append(f"request to {request.url}")

    def _on_dialog(self, dialog: "Dialog") -> None:
        self.seen.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_console(self, message: "ConsoleMessage") -> None:
        if "Content Security Policy" in message.text:
            self.seen.append(message.text)


@dataclass
class KeptBrowser:
    """A Chromium for all tests that need one and run without another kind of test between them.

    Not for the whole run: Playwright keeps an event loop running in this thread, and other tests need it for theirs.
    `contexts`: of the sets of options that tests opened pages with last, the newest at the end. A page takes 1.2 s of a
    processor in a new one, and half of that beside another page, whose process, files and compiled scripts it shares.
    """

    launched: "Browser"
    closing: ExitStack
    contexts: "dict[str, BrowserContext]" = field(default_factory=dict)

    def context(self, home: str, options: dict[str, Any]) -> "BrowserContext":
        name = repr(sorted(options.items()))
        context = self.contexts.pop(name, None)
        if context is None:
            context = self.launched.new_context(base_url=home, **options)
            context.new_page().goto("/offline/")
            for oldest in [*self.contexts][: 1 - MOST_CONTEXTS]:
                self.contexts.pop(oldest).close()
        self.contexts[name] = context
        return context


_kept: list[KeptBrowser] = []


def close_browser() -> None:
    while _kept:
        _kept.pop().closing.close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if "chromium_closed_at_the_end" not in getattr(item, "fixturenames", ()):
        close_browser()


@pytest.fixture(scope="session")
def chromium_closed_at_the_end(django_db_setup: None) -> Iterator[None]:
    yield
    close_browser()


def _launch(django_db_blocker: Any) -> KeptBrowser:
    from playwright.sync_api import expect, sync_playwright

    def close_connection() -> None:
        with django_db_blocker.unblock():
            connection.close()

    expect.set_options(timeout=PATIENCE_MS)
    with ExitStack() as closing:
        patch = closing.enter_context(pytest.MonkeyPatch.context())
        playwright = closing.enter_context(sync_playwright())
        # No code that uses the database runs in that loop, but Django detects the loop and would refuse.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        # Inside an event loop Django uses other connections than outside.
        with django_db_blocker.unblock():
            let_the_examiner_look()
        closing.callback(close_connection)
        launched = playwright.chromium.launch(executable_path=executable(playwright.chromium, NAMES), args=ARGUMENTS)
        closing.callback(launched.close)
        return KeptBrowser(launched, closing.pop_all())


@pytest.fixture
def browser(chromium_closed_at_the_end: None, django_db_blocker: Any) -> Iterator["Browser"]:
    """Chromium. A context that a test opens and leaves open is closed."""
    if _kept and not _kept[0].launched.is_connected():
        # It crashed in another test.
        close_browser()
    if not _kept:
        _kept.append(_launch(django_db_blocker))
    (kept,) = _kept
    yield kept.launched
    for context in kept.launched.contexts:
        if context not in kept.contexts.values():
            context.close()


@pytest.fixture
def open_page(browser: "Browser", server: str, _running_server: str) -> Iterator[Callable[..., "Page"]]:
    """Opens a page of the running application, as `user` or as a visitor; fails the test if a page misbehaved.

    Each page has its own cookies and storage; a tab beside it is a `new_page()` of its context. `is_alone`: in a
    context of its own, for what stays with a context, such as a clock that a test sets.
    """
    (kept,) = _kept
    contexts: list[BrowserContext] = []
    trespasses = Trespasses(home=server)

    def open_page(path: str = "/", *, user: Any = None, is_alone: bool = False, **options: Any) -> "Page":
        # A module may have its own server.
        is_kept = not is_alone and server == _running_server and "base_url" not in options
        context = kept.context(server, options) if is_kept else None
        if context is None or context in contexts:
            is_kept, context = False, browser.new_context(**{"base_url": server, **options})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        if is_kept:
            _forget_everything(page, server)
        if user is not None:
            context.add_cookies([session_cookie(user, server)])
        trespasses.watch(page)
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        if context in kept.contexts.values():
            for page in context.pages[1:]:
                page.close()
        else:
            context.close()
    assert trespasses.seen == []


def _forget_everything(page: "Page", home: str) -> None:
    """Remove the data of the previous test from this context. Files named by their content may stay in its cache."""
    page.context.clear_cookies()
    page.context.set_offline(False)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Storage.clearDataForOrigin", {"origin": home, "storageTypes": "all"})
    devtools.detach()


def session_cookie(user: Any, server: str) -> Any:
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return {"name": name, "value": client.cookies[name].value, "url": server}


@pytest.fixture
def net_log(browser: "Browser", tmp_path: Path) -> Callable[[Callable[["Browser"], None]], str]:
    """Runs a function with a Chromium of its own, which has windows, and returns its log of the network.

    The one without windows looks up no name before it refuses a navigation, and so hides what people's browsers do.
    """

    def run(visit: Callable[["Browser"], None]) -> str:
        log = tmp_path / "network.json"
        kind = browser.browser_type
        found = executable(kind, NAMES[1:])
        with kind.launch(executable_path=found, args=[*ARGUMENTS, f"--log-net-log={log}"]) as launched:
            visit(launched)
        return log.read_text()

    return run


def executable(chromium: "BrowserType", names: list[str]) -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    bundled = chromium.executable_path
    if found or Path(bundled).exists():
        return found or bundled
    reason = "No Chromium: install one, name it in CHROMIUM, or run `playwright install chromium`."
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
