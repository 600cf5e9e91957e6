"""Pytest fixtures for every app: the served application, and an HTTP client with a browser's cookies."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any

import httpx2
import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client as DjangoClient
from django.utils.module_loading import import_string
from starlette.applications import Starlette
from starlette.routing import Mount

from core import rate_limits
from testing import ZONE_OF_PEOPLE
from testing.logs import Everything
from testing.model_server import ScriptedModel, Step
from testing.serving import serving
from testing.sse_client import Event, read_events


class Client(httpx2.Client):
    """An HTTP client that keeps cookies and sends the CSRF token, like a browser."""

    def chat(self, message: Any = None, **fields: Any) -> httpx2.Response:
        body = fields if message is None else {"message": message, **fields}
        return self.post("/api/v1/intake/chat", json=body, headers=self._csrf())

    def events(self, message: str | None = None, **fields: Any) -> list[Event]:
        """Send a message, or a command about a turn, and read the complete answer."""
        body = fields if message is None else {"message": message, **fields}
        with self.stream("POST", "/api/v1/intake/chat", json=body, headers=self._csrf()) as response:
            if response.status_code != 200:
                response.read()
                raise AssertionError(f"{response.status_code}: {response.text}")
            return list(read_events(response.iter_lines()))

    def submit(self, path: str, **form: str) -> httpx2.Response:
        self.get(path)
        return self.post(path, data=form, headers=self._csrf())

    def _csrf(self) -> dict[str, str]:
        """Any 32 letters are a token, if the cookie has them too: no page has to be asked for one."""
        if "csrftoken" not in self.cookies:
            self.keep_cookie("csrftoken", secrets.token_hex(16))
        return {"X-CSRFToken": self.cookies["csrftoken"]}

    def keep_cookie(self, name: str, value: str) -> None:
        """Under the host's name, so that the server's own takes its place."""
        self.cookies.set(name, value, domain=self.base_url.host)


@pytest.fixture(scope="session")
def _running_server(django_db_setup: None, django_db_blocker: Any) -> Iterator[str]:
    """One server for all tests: its only state is the connections, which it closes at the end."""
    with ExitStack() as stack:
        with django_db_blocker.unblock():
            address = stack.enter_context(serving(import_string(settings.ASGI_APPLICATION)))
        yield address


@pytest.fixture
def server(_running_server: str, transactional_db: None) -> str:
    """The address of the complete application under uvicorn, on the test database."""
    return _running_server


@pytest.fixture
def new_client(server: str) -> Iterator[Callable[[], Client]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Client(base_url=server, follow_redirects=True, timeout=60))


@pytest.fixture
def visitor(new_client: Callable[[], Client]) -> Client:
    return new_client()


@pytest.fixture
def log_in(new_client: Callable[[], Client]) -> Callable[[Any], Client]:
    """A separate client, logged in as this user, with a token against CSRF.

    The log-in page has tests of its own, and costs as much as three pages.
    """

    def log_in(user: Any) -> Client:
        client, session = new_client(), DjangoClient()
        session.force_login(user)
        client.keep_cookie(settings.SESSION_COOKIE_NAME, session.cookies[settings.SESSION_COOKIE_NAME].value)
        client._csrf()
        return client

    return log_in


@pytest.fixture
def person(transactional_db: None) -> Any:
    return get_user_model().objects.create_user("person@example.com", "password", time_zone=ZONE_OF_PEOPLE)


@pytest.fixture
def stranger(transactional_db: None) -> Any:
    return get_user_model().objects.create_user("stranger@example.com", "password", time_zone=ZONE_OF_PEOPLE)


@pytest.fixture(scope="session")
def _model_server() -> Iterator[Callable[[ScriptedModel], AbstractContextManager[str]]]:
    """One server for the models of all tests: ending one takes a fifth of a second.

    Each model has a path of its own, because the application keeps what it knows of a model by its address.
    """
    models, numbers = Starlette(), count(1)
    with serving(models) as address:

        @contextmanager
        def serve(model: ScriptedModel) -> Iterator[str]:
            application, end_requests = _ending(model.application)
            mount = Mount(f"/{next(numbers)}", application)
            models.router.routes.append(mount)
            try:
                yield f"{address}{mount.path}"
            finally:
                models.router.routes.remove(mount)
                end_requests()

        yield serve


def _ending(application: Any) -> tuple[Any, Callable[[], None]]:
    """The application, and a function that ends its running requests, as the end of its server would."""
    running: set[asyncio.Task[Any]] = set()

    async def handle(scope: Any, receive: Any, send: Any) -> None:
        if task := asyncio.current_task():
            running.add(task)
            task.add_done_callback(running.discard)
        await application(scope, receive, send)

    async def cancel(tasks: list[asyncio.Task[Any]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    def end() -> None:
        if tasks := list(running):
            asyncio.run_coroutine_threadsafe(cancel(tasks), tasks[0].get_loop()).result(timeout=10)

    return handle, end


@pytest.fixture
def serve_model(_model_server: Any) -> Iterator[Callable[[ScriptedModel], str]]:
    """Serves a model until the end of the test, and returns its address, such as `http://127.0.0.1:40123/7`."""
    with ExitStack() as stack:
        yield lambda model: stack.enter_context(_model_server(model))


@pytest.fixture
def language_model(settings: Any, serve_model: Callable[[ScriptedModel], str]) -> Callable[..., ScriptedModel]:
    """Makes the chat use a model server that follows this script."""

    def follow(*script: Step) -> ScriptedModel:
        model = ScriptedModel(*script)
        settings.LLM_MODEL = "scripted"
        settings.LLM_BASE_URL = serve_model(model) + "/v1"
        return model

    return follow


@pytest.fixture
def limited(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets limits in place of all others: rates such as `api="1/hour"`, and how many at once, such as `calls=2`."""

    def limited(**most: Any) -> None:
        settings.RATE_LIMITS = 1
        monkeypatch.setattr(rate_limits, "RATES", most)
        monkeypatch.setattr(rate_limits, "AT_ONCE", most)
        monkeypatch.setattr(rate_limits, "_refused_until", {})

    return limited


@pytest.fixture
def logged() -> Iterator[Everything]:
    """Captures the log of this project from DEBUG on and of its dependencies from INFO on, formatted as in the
    settings.
    """
    handler, root = Everything(), logging.getLogger()
    levels = dict.fromkeys(
        ("config", "evals", "chat", "agent_tools", "imports", "memory", "intake", "core"), logging.DEBUG
    )
    loggers = {logging.getLogger(name): level for name, level in levels.items()} | {root: logging.INFO}
    kept = {logger: logger.level for logger in loggers}
    for logger, level in loggers.items():
        logger.setLevel(level)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for logger, level in kept.items():
        logger.setLevel(level)
