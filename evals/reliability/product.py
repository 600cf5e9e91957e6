"""A whole product of its own: web, worker and beat as `make up` runs them, on servers that are thrown away.

What dies is started again, as a supervisor would; nothing here is shared with a product that runs beside it but the
embedding model's files.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from django.conf import settings
from django.core.management import CommandError

from agent_tools.tokens import create_token
from core.testing.throwaway_servers import ADDRESSES, ThrowawayServers
from evals.processes import WORKER, Environment, answers, call, end, free_port, logging_in, worker_answers
from evals.scratch import ending_by_exception
from intake.models import User

READY_SECONDS = 180
LOOK_SECONDS = 0.2
# A worker that starts while the database is away ends at once; it is given a moment.
RESTART_SECONDS = 0.5
BEAT = ("celery", "--quiet", "-A", "config.celery", "beat")
# Those that a run of one address and a few people would reach.
LIMITS = ("api", "api_address", "refused_address", "page", "page_address", "health_address", "chat", "chat_address")
BEYOND_REACH = "60000000/minute"
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Person:
    user_id: int
    token: str


def make_people(*, count: int) -> list[tuple[int, str]]:
    """Runs in a process of the product's: each one's id and token."""
    people = [User.objects.create_user(f"person-{number}@evals.invalid") for number in range(count)]
    return [(user.pk, create_token(user=user).secret) for user in people]


class RestartedProgram:
    """A module of this project, started again whenever it ends, until it is stopped."""

    def __init__(self, name: str, command: Sequence[str], given: Environment, *, log: Path) -> None:
        self.name, self.log = name, log
        self._command, self._given = [sys.executable, "-m", *command], given
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self.starts = 0

    def start(self) -> None:
        self._spawn()
        threading.Thread(target=self._watch, name=f"watch {self.name}", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        for process in self.family()[:1]:
            end(process)
        if self._process is not None:
            self._process.wait()

    def family(self) -> list[psutil.Process]:
        """The process and its children, those that live."""
        try:
            main = psutil.Process(self._process.pid) if self._process is not None else None
            return [main, *main.children(recursive=True)] if main and main.is_running() else []
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

    def _spawn(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603
                self._command, cwd=settings.BASE_DIR, env=self._given, stdout=output, stderr=subprocess.STDOUT
            )
        self.starts += 1

    def _watch(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            if self._process is not None and self._process.poll() is not None:
                if self._stopping.wait(RESTART_SECONDS):
                    return
                self._spawn()

    def last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])


class Product:
    """A running product: its servers, its programs, and the addresses of its web processes by their names."""

    def __init__(
        self,
        addresses: dict[str, str],
        servers: ThrowawayServers,
        given: Environment,
        programs: dict[str, RestartedProgram],
    ) -> None:
        self.addresses, self.servers, self.programs = addresses, servers, programs
        self._given = given

    @property
    def address(self) -> str:
        """Of the first web process."""
        return self.addresses["web"]

    @property
    def environment(self) -> Environment:
        """Of a process with the web process's login."""
        return logging_in(self._given, "DATABASE_URL")

    def people(self, count: int) -> list[Person]:
        """So many new people, each with a token."""
        return [Person(*made) for made in call(make_people, self.environment, count=count)]

    def workers(self) -> list[psutil.Process]:
        """The worker's processes, the parent first; waits until there are some."""
        deadline = time.monotonic() + READY_SECONDS
        # Fewer than two is a worker that has not forked yet.
        while len(family := self.programs["worker"].family()) < 2:  # noqa: PLR2004
            if time.monotonic() > deadline:
                raise CommandError(f"The worker does not start:\n{self.programs['worker'].last_lines()}")
            time.sleep(LOOK_SECONDS)
        return family


@contextmanager
def running_product(
    *,
    extra: Environment | None = None,
    worker_options: Sequence[str] = (),
    logs: Path | None = None,
    webs: Sequence[str] = ("web",),
) -> Iterator[Product]:
    """Everything answers when the block begins, and nothing is left when it ends but the logs, if a place is given.

    `webs`: the names of its web processes, the first of which is always "web".
    """
    with ending_by_exception(), ExitStack() as cleanup:
        folder = Path(tempfile.mkdtemp(prefix="recollect-product-"))
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        if logs is not None:
            cleanup.callback(_keep_logs, folder, logs)
        servers = ThrowawayServers()
        cleanup.callback(servers.stop)
        given = {**_environment(servers, folder), **(extra or {})}
        ports = {name: free_port() for name in webs}
        programs = {
            **{
                name: RestartedProgram(
                    name, ["config.stack.web", "127.0.0.1", str(port)], given, log=folder / f"{name}.log"
                )
                for name, port in ports.items()
            },
            **_background(given, folder, worker_options),
        }
        product = Product({name: f"http://127.0.0.1:{port}" for name, port in ports.items()}, servers, given, programs)
        ready: dict[str, Callable[[], bool]] = {
            **{name: partial(answers, f"{address}/healthz") for name, address in product.addresses.items()},
            "worker": lambda: worker_answers(servers.urls["REDIS_URL"].replace("unix://", "redis+socket://", 1)),
            "beat": lambda: True,
        }
        # The tables are made by the first, and the others need them.
        first, *others = ready
        for together in ([first], others):
            for name in together:
                cleanup.callback(programs[name].stop)
                programs[name].start()
            for name in together:
                _wait(programs[name], ready[name])
        yield product


def _keep_logs(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, target)


def _background(given: Environment, folder: Path, worker_options: Sequence[str]) -> dict[str, RestartedProgram]:
    as_worker = logging_in(given, "DATABASE_WORKER_URL")
    command = [*WORKER, "--loglevel=WARNING", *worker_options]
    return {
        "worker": RestartedProgram("worker", command, as_worker, log=folder / "worker.log"),
        "beat": RestartedProgram("beat", BEAT, as_worker, log=folder / "beat.log"),
    }


def _environment(servers: ThrowawayServers, folder: Path) -> Environment:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE_", "CELERY_", "LLM_"))}
    urls = {name: servers.urls[name] for name in ADDRESSES}
    return {
        **kept,
        **urls,
        # Neither a running product's servers nor its keys are this one's.
        "IGNORE_ENV_FILES": "1",
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "SECRET_KEY": secrets.token_urlsafe(50),
        "RECOLLECT_VAR": str(folder),
        "MODEL_CACHE_DIR": str(settings.MODEL_CACHE_DIR),
        "LOG_LEVEL": "WARNING",
        **{f"RATE_LIMIT_{name.upper()}": BEYOND_REACH for name in LIMITS},
        "CONCURRENT_CALLS": "1000",
        "CONCURRENT_ANSWERS": "1000",
    }


def _wait(program: RestartedProgram, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        if time.monotonic() > deadline or program.starts > 3:  # noqa: PLR2004
            raise CommandError(f"{program.name} does not start:\n{program.last_lines()}")
        time.sleep(LOOK_SECONDS)
