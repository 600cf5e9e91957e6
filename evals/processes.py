"""Real processes for benchmarks: this project's worker and web server, on a scratch database and a broker of their own.

They are told where to work by their environment, as in production, and are ended by the process that started them.
"""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import psutil
from celery import Celery
from django.conf import settings
from django.core.management import CommandError
from kombu import Connection
from redis import ResponseError

from evals.scratch import database_url

START_SECONDS = 180
STOP_SECONDS = 20
# Redis has 16 databases unless it is told otherwise; the first is the one that a product uses.
BROKER_DATABASES = range(15, 0, -1)
CLAIM = "recollect-benchmark"
CLAIM_SECONDS = 3600
# As `make up` starts it.
WORKER = (
    "celery",
    "--quiet",
    "-A",
    "config.celery",
    "worker",
    "--concurrency=1",
    "--without-gossip",
    "--without-mingle",
)

Environment = dict[str, str]


@contextmanager
def own_broker() -> Iterator[str]:
    """The URL of an empty database on the configured Redis, emptied again at the end: nobody else's workers listen."""
    for number in BROKER_DATABASES:
        url = _in_database(settings.CELERY_BROKER_URL, number)
        with Connection(url) as broker:
            client = cast(Any, broker.default_channel).client
            if not _claim(client):
                continue
            try:
                yield url
            finally:
                client.flushdb()
            return
    raise CommandError(f"All of the broker's databases {min(BROKER_DATABASES)} to {max(BROKER_DATABASES)} are in use.")


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


@contextmanager
def worker(given: Environment) -> Iterator[psutil.Process]:
    """A Celery worker that answers."""
    command = [*WORKER, "--loglevel=WARNING", f"--hostname=benchmark-{secrets.token_hex(4)}"]
    with _running(command, logging_in(given, "DATABASE_WORKER_URL")) as process:
        _wait(process, "The worker", lambda: worker_answers(given["CELERY_BROKER_URL"]))
        yield process


@contextmanager
def web(given: Environment) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a web process that answers, and the process."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = ["config.serving", "127.0.0.1", str(port)]
    with _running(command, logging_in(given, "DATABASE_URL")) as process:
        _wait(process, "The web process", lambda: answers(f"{address}/healthz"))
        yield address, process


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


def memory_megabytes(process: psutil.Process) -> tuple[float, float]:
    """The memory of a process and its children, in MB (10^6 bytes): resident, and with shared pages counted once.

    The second needs Linux; elsewhere it is the first again.
    """
    family = [process, *process.children(recursive=True)]
    resident = sum(member.memory_info().rss for member in family)
    proportional = sum(getattr(member.memory_full_info(), "pss", member.memory_info().rss) for member in family)
    return round(resident / 1e6, 1), round(proportional / 1e6, 1)


@contextmanager
def _running(module: Sequence[str], given: Environment) -> Iterator[psutil.Process]:
    # Their errors are shown; standard output is for figures.
    process = psutil.Popen([sys.executable, "-m", *module], cwd=settings.BASE_DIR, env=given, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        end(process)
        process.wait()


def end(process: psutil.Process) -> None:
    """Ask a process to end, as a deployment would, and kill what is left of it and its children after a while."""
    with suppress(psutil.NoSuchProcess):
        family = [*process.children(recursive=True), process]
        process.terminate()
        _, stubborn = psutil.wait_procs(family, timeout=STOP_SECONDS)
        for member in stubborn:
            with suppress(psutil.NoSuchProcess):
                member.kill()


def _wait(process: psutil.Process, name: str, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise CommandError(f"{name} ended before it was ready; the lines above say why.")
        if is_ready():
            return
        time.sleep(0.1)
    raise CommandError(f"{name} was not ready within {START_SECONDS} s.")


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310
            return bool(response.status == 200)  # noqa: PLR2004
    except OSError:
        return False


def worker_answers(broker: str) -> bool:
    with Celery(broker=broker, set_as_current=False) as sender:
        return bool(sender.control.ping(timeout=0.5))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _in_database(url: str, number: int) -> str:
    """The same Redis, another of its databases, in the form that Celery takes."""
    parts = urlsplit(url)
    if parts.scheme.startswith("redis+socket"):
        query = {**dict(parse_qsl(parts.query)), "virtual_host": str(number)}
        return parts._replace(query=urlencode(query)).geturl()
    return parts._replace(path=f"/{number}").geturl()


def _claim(client: Any) -> bool:
    """Whether the database exists, was empty, and is now this process's; a killed run's claim expires."""
    try:
        return client.dbsize() == 0 and bool(client.set(CLAIM, os.getpid(), nx=True, ex=CLAIM_SECONDS))
    except ResponseError:
        return False
