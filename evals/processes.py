"""This project's programs in processes of their own, on a scratch database and a broker of their own or elsewhere.

They are told where to work by their environment, as in production, and are ended by the process that started them.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import psutil
from celery import Celery
from django.conf import settings
from django.core.management import CommandError
from kombu import Connection
from redis import ResponseError

from evals.client import Client
from evals.scratch import database_url

START_SECONDS = 180
STOP_SECONDS = 20
LOOK_SECONDS = 0.1
# A worker that starts while the database is away ends at once; it is given a moment.
RESTART_SECONDS = 0.5
# A program that has started so often and does not answer never will.
MOST_STARTS = 3
LAST_LINES = 15
# Redis has 16 databases unless it is configured otherwise; the first is the one that a product uses.
BROKER_DATABASES = range(15, 0, -1)
CLAIM = "recollect-benchmark"
CLAIM_SECONDS = 3600
# A rate limit that counts, as in production, and is reached by nobody.
BEYOND_REACH = {"RATE_LIMITS": "10000"}
# As `make up` starts it.
WORKER = (
    *("celery", "--quiet", "-A", "config.celery", "worker", "--queues=celery,imports,people,housekeeping"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)

Environment = dict[str, str]


@contextmanager
def own_broker() -> Iterator[str]:
    """The URL of an empty database on the configured Redis, emptied again at the end: no other workers listen there."""
    for number in BROKER_DATABASES:
        url = _in_database(settings.CELERY_BROKER_URL, number)
        with Connection(url) as broker:
            client = cast(Any, broker.default_channel).client
            if _claim(client):
                try:
                    yield url
                finally:
                    client.flushdb()
                return
    raise CommandError(f"All of the broker's databases {min(BROKER_DATABASES)} to {max(BROKER_DATABASES)} are in use.")


def _in_database(url: str, number: int) -> str:
    """The same Redis, another of its databases, in the form that Celery takes."""
    parts = urlsplit(url)
    if parts.scheme.startswith("redis+socket"):
        query = {**dict(parse_qsl(parts.query)), "virtual_host": str(number)}
        # Not by `geturl`, which takes the slashes away if there is neither host nor password.
        return f"{url.partition('?')[0]}?{urlencode(query)}"
    return parts._replace(path=f"/{number}").geturl()


def _claim(client: Any) -> bool:
    """Whether the database exists, was empty, and is now this process's; a killed run's claim expires."""
    try:
        return client.dbsize() == 0 and bool(client.set(CLAIM, os.getpid(), nx=True, ex=CLAIM_SECONDS))
    except ResponseError:
        return False


def environment(*, database: str, broker: str) -> Environment:
    """For a process that shall work on these two and otherwise be configured as this one."""
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
        "DATABASE_URL": database_url(database),
        "DATABASE_WORKER_URL": database_url(database, login=settings.DATABASE_WORKER_URL),
        "DATABASE_OWNER_URL": database_url(database, login=settings.DATABASE_OWNER_URL),
        "CELERY_BROKER_URL": broker,
        "LOG_LEVEL": "WARNING",
    }


def logging_in(given: Environment, name: str) -> Environment:
    """For a process that has the login of this name and no other."""
    return {**given, "DATABASE_WORKER_URL": "", "DATABASE_OWNER_URL": "", "DATABASE_URL": given[name]}


def call(function: Callable[..., Any], given: Environment, **arguments: Any) -> Any:
    """The function's result in a fresh process. Its arguments and its result are what JSON can say."""
    (result,) = call_at_once(function, given, [arguments])
    return result


def call_at_once(function: Callable[..., Any], given: Environment, orders: Sequence[dict[str, Any]]) -> list[Any]:
    """The same in a process for each of the orders, with the results in their order. None outlives the call."""
    name = f"{function.__module__}.{function.__name__}"
    command = [sys.executable, "-m", "evals.child", *name.rsplit(".", 1)]
    with ExitStack() as running:
        children = [running.enter_context(_child(command, given, order)) for order in orders]
        return [_result(name, child) for child in children]


@contextmanager
def _child(command: Sequence[str], given: Environment, order: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(  # noqa: S603
        command, cwd=settings.BASE_DIR, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            # One that ended before it had read everything says why by its status.
            with suppress(BrokenPipeError), cast(IO[str], child.stdin) as into:
                json.dump(order, into)
            yield child
        finally:
            child.terminate()


def _result(name: str, child: subprocess.Popen[str]) -> Any:
    written = cast(IO[str], child.stdout).read()
    if status := child.wait():
        raise CommandError(f"{name} ended with status {status}; the lines above say why.")
    return json.loads(written)


def wait_until(is_so: Callable[[], bool], *, seconds: float, otherwise: Callable[[], str]) -> None:
    """Raises `CommandError`, which says `otherwise`, when it is not so by then."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise CommandError(otherwise())
        time.sleep(LOOK_SECONDS)


@contextmanager
def looking(look: Callable[[], object], *, every: float) -> Iterator[None]:
    """Within the block a thread looks, every so many seconds."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(every):
            look()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class ModuleProcess:
    """A module of this project in a process of its own, within the block.

    With a `log`, which takes all that it writes, it is started again whenever it ends. Without one its errors are
    shown, and it has ended when it ends.
    """

    def __init__(self, name: str, command: Sequence[str], given: Environment, *, log: Path | None = None) -> None:
        self.name, self.log, self.starts = name, log, 0
        self._command, self._given = [sys.executable, "-m", *command], given
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self._spawn()
        if self.log is not None:
            threading.Thread(target=self._watch, name=f"watch {self.name}", daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        """Ask it to end, as a deployment would, and kill what is left of it and its children after a while."""
        self._stopping.set()
        family = self.family()
        self._process.terminate()
        _, stubborn = psutil.wait_procs(family, timeout=STOP_SECONDS)
        for member in stubborn:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        self._process.wait()

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Raises `CommandError` when it ends before, again and again, or takes too long."""

        def is_decided() -> bool:
            if self.starts > MOST_STARTS or (self.log is None and self._process.poll() is not None):
                raise CommandError(self.failure())
            return is_ready()

        wait_until(is_decided, seconds=START_SECONDS, otherwise=self.failure)

    def family(self) -> list[psutil.Process]:
        """The process and its children, those that live."""
        try:
            main = psutil.Process(self._process.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def processor_seconds(self) -> float:
        """The processor time of its live processes so far."""
        seconds = 0.0
        for process in self.family():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                seconds += times.user + times.system
        return seconds

    def megabytes(self) -> tuple[float, float]:
        """Its memory and its children's, in MB (10^6 bytes): resident, and with shared pages counted once.

        The second needs Linux; elsewhere it is the first again.
        """
        infos = [process.memory_full_info() for process in self.family()]
        resident = sum(info.rss for info in infos)
        proportional = sum(getattr(info, "pss", info.rss) for info in infos)
        return round(resident / 1e6, 1), round(proportional / 1e6, 1)

    def failure(self) -> str:
        """A sentence, and what it wrote last."""
        if self.log is None:
            return f"{self.name} failed; the lines above say why."
        return "\n".join([f"{self.name} failed:", *self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]])

    def _spawn(self) -> None:
        with Path(os.devnull if self.log is None else self.log).open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._command,
                cwd=settings.BASE_DIR,
                env=self._given,
                stdout=output,
                stderr=None if self.log is None else subprocess.STDOUT,
            )
        self.starts += 1

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            if self._process.poll() is not None:
                if self._stopping.wait(RESTART_SECONDS):
                    return
                self._spawn()


@contextmanager
def worker(given: Environment) -> Iterator[ModuleProcess]:
    """A Celery worker that answers."""
    command = [*WORKER, "--loglevel=WARNING", f"--hostname=benchmark-{secrets.token_hex(4)}"]
    with ModuleProcess("The worker", command, {**given, "DATABASE_OWNER_URL": ""}) as program:
        program.wait_until(lambda: worker_answers(given["CELERY_BROKER_URL"]))
        yield program


@contextmanager
def web(given: Environment) -> Iterator[tuple[str, ModuleProcess]]:
    """The address of a web process that answers, and the process."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = ["config.serving", "127.0.0.1", str(port)]
    with ModuleProcess("The web process", command, logging_in(given, "DATABASE_URL")) as program:
        program.wait_until(lambda: is_healthy(address))
        yield address, program


def is_healthy(address: str) -> bool:
    with suppress(OSError), Client(address) as client:
        return client.ask("GET", "/healthz").is_ok
    return False


def worker_answers(broker: str) -> bool:
    with Celery(broker=broker, set_as_current=False) as sender:
        return bool(sender.control.ping(timeout=0.5))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
