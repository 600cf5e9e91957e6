"""A whole product of its own with its people: web and worker as `make up` runs them, on throw-away servers.

A program that dies is started again, as by a supervisor. With a product that runs beside it this one shares nothing
but the embedding model's files.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from django.conf import settings

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from evals.client import Client
from evals.processes import (
    BEYOND_REACH,
    WORKER,
    Environment,
    ModuleProcess,
    call,
    free_port,
    is_healthy,
    logging_in,
    worker_answers,
)
from evals.scratch import ending_by_exception
from intake.models import User
from testing.servers import ADDRESSES, ThrowawayServers

CHAT = "/api/v1/intake/chat"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with an account and a token."""

    user_id: int
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Token {self.token}"}


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody without an account, who has said something."""

    cookie: str
    csrf: str
    conversation_id: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": self.cookie, "X-CSRFToken": self.csrf}


def make_people(*, count: int) -> list[tuple[int, str]]:
    """Runs in a process of the product's: each one's id and token."""
    group = secrets.token_hex(4)
    people = [User.objects.create_user(f"person-{group}-{number}@evals.invalid") for number in range(count)]
    return [(user.pk, create_token(user=user, scopes=list(TokenScope)).secret) for user in people]


def new_visitor(address: str, message: str) -> Visitor:
    """Comes as a browser does: a page, its cookie, and then the first words, which log the visitor in."""
    with Client(address) as client:
        cookies = client.ask("GET", "/").cookies
        csrf = cookies["csrftoken"]
        headers = {"Cookie": f"csrftoken={csrf}", "X-CSRFToken": csrf}
        answer = client.ask("POST", CHAT, {"message": message}, headers)
    if not answer.is_ok or answer.events[-1].name != "done":
        raise RuntimeError(f"A visitor's chat was answered {answer}")
    cookies |= answer.cookies
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    return Visitor(cookie, cookies["csrftoken"], answer.events[-1].data["conversationId"])


class Product:
    """A running product: its servers, its programs, and the addresses of its web processes by their names."""

    def __init__(
        self,
        servers: ThrowawayServers,
        given: Environment,
        programs: dict[str, ModuleProcess],
        addresses: dict[str, str],
    ) -> None:
        self.servers, self.programs, self.addresses = servers, programs, addresses
        # Of a process with the web process's login.
        self.environment = logging_in(given, "DATABASE_URL")

    @property
    def address(self) -> str:
        """Of the first web process."""
        return self.addresses["web"]

    def people(self, count: int) -> list[Person]:
        """So many new people, each with a token."""
        return [Person(*made) for made in call(make_people, self.environment, count=count)]


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
        addresses = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        ready: dict[str, Callable[[], bool]] = {
            **{name: partial(is_healthy, address) for name, address in addresses.items()},
            "worker": lambda: worker_answers(servers.urls["REDIS_URL"].replace("unix://", "redis+socket://", 1)),
        }
        commands = {
            **{name: (["config.serving", "127.0.0.1", str(port), "up"], given) for name, port in ports.items()},
            "worker": ([*WORKER, "--loglevel=WARNING", *worker_options], {**given, "DATABASE_OWNER_URL": ""}),
        }
        programs = {
            name: ModuleProcess(name, command, environment, log=folder / f"{name}.log")
            for name, (command, environment) in commands.items()
        }
        # The tables are made by the first, and the others need them.
        first, *others = programs
        for together in ([first], others):
            for name in together:
                cleanup.enter_context(programs[name])
            for name in together:
                programs[name].wait_until(ready[name])
        yield Product(servers, given, programs, addresses)


def _keep_logs(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, target)


def _environment(servers: ThrowawayServers, folder: Path) -> Environment:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE_", "CELERY_", "LLM_"))}
    return {
        **kept,
        **{name: servers.urls[name] for name in ADDRESSES},
        # Neither a running product's servers nor its keys are this one's.
        "IGNORE_ENV_FILES": "1",
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "SECRET_KEY": secrets.token_urlsafe(50),
        "RECOLLECT_VAR": str(folder),
        "MODEL_CACHE_DIR": str(settings.MODEL_CACHE_DIR),
        "LOG_LEVEL": "WARNING",
        **BEYOND_REACH,
    }
