"""The supervisor of `make up`: starts all parts in order, watches and restarts them, and stops them."""

import http.client
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from config import VERSION
from config.stack import DATA, PROGRAM, RUN, TASKS, WEB_PROCESSES, StackError
from config.stack.broker import EmbeddedRedis
from config.stack.daily import DAY_SECONDS, last_daily_backup
from config.stack.paths import (
    BASE_DIR,
    STOP_COMMAND,
    full_disk,
    make_private,
    remember_data_folder,
    servers_dir,
    write_secret,
)
from config.stack.preflight import (
    about_servers_of_models,
    about_the_first_person,
    addresses,
    as_worker,
    check_broker,
    check_public_url,
    migrations_apart,
    names_of,
    read_environment,
    roles_named,
)
from config.stack.processes import MARK, LogReader, Program, Service, Watch, begin_log, last_lines
from config.stack.servers import EmbeddedPostgres

LOOK_SECONDS = 1.0
# Later it is asked now and then, and started again if it has not answered for so long.
ASK_SECONDS = 10
HANGS_SECONDS = 60
# How many migrations a sentence names.
NAMED = 4
# One worker for everything. There is no other worker to exchange messages with, and the web process has run the system
# checks, which import much that it does not need.
WORKER = (
    *("celery", "--skip-checks", "-A", "config.celery", "worker", "--queues=celery,imports,people,housekeeping"),
    *("--without-gossip", "--without-mingle", "--without-heartbeat"),
)


@dataclass(frozen=True)
class Address:
    """The address of the web process."""

    host: str
    port: int

    @property
    def local_host(self) -> str:
        """A host to reach it by from this machine."""
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - compared with, not bound to

    @property
    def for_a_browser(self) -> str:
        """Passkeys, and the browser's clipboard, belong to a name: an IP address is none."""
        local = {"127.0.0.1", "::1", "localhost"}
        return f"http://localhost:{self.port}" if self.local_host in local else str(self)

    def __str__(self) -> str:
        host = f"[{self.local_host}]" if ":" in self.local_host else self.local_host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True)
class RunPaths:
    """The folders and files of one supervisor."""

    var: Path

    @property
    def run(self) -> Path:
        return self.var / "run"

    @property
    def log(self) -> Path:
        return self.var / "log"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def address(self) -> Path:
        """Contains the address while it answers."""
        return self.run / "address"

    @property
    def tasks(self) -> Path:
        """Touched by the worker with each task."""
        return self.run / "tasks"

    @property
    def environment(self) -> Path:
        """Contains generated values for missing settings; commands beside the supervisor read it too."""
        return self.var / "env"

    @property
    def passwords(self) -> Path:
        """Contains the passwords of the roles that were created on a given server."""
        return self.var / "database-passwords"

    @property
    def backups(self) -> Path:
        """Contains the daily backups, and one from before each upgrade that changed the tables."""
        return self.var / "backups"

    @property
    def upgrade(self) -> Path:
        """Names the backup of the last upgrade, and the migrations that were missing when it was made."""
        return self.backups / "upgrade.json"

    def make(self) -> None:
        for folder in (self.run, self.log):
            make_private(folder)


class Supervisor:
    """Starts every part, then keeps them running until it is stopped."""

    def __init__(self, paths: RunPaths, address: Address) -> None:
        self._paths = paths
        self._address = address
        self._watches: list[Watch] = []
        self._logs: list[tuple[str, LogReader]] = []
        self._environment: dict[str, str] = {}
        self._backup_url = ""
        self._backup: subprocess.Popen[bytes] | None = None
        # The first daily backup waits until a start is over, and one that failed is tried again.
        self._backup_due = time.monotonic() + 600
        self._has_full_disk = False
        self._run = secrets.token_urlsafe(12)
        self._listening = Listening(paths.tasks)

    def start(self, *, demo: bool) -> None:
        """Start every part and return when the address answers; raises StackError if something prevents it."""
        began, web_processes = time.monotonic(), _web_processes(read_environment())
        check_public_url(read_environment())
        self._environment = self._make_environment()
        changes = self._back_up_before_changes()
        say("Starting …")
        self._start_web("web")
        self._wait_until_it_answers()
        if changes:
            say(
                f"The data are of version {VERSION} now, which added {_listed(changes)}. CHANGELOG.md says what is new."
            )
        for number in range(2, web_processes + 1):
            self._start_web(f"web-{number}")
        # It needs the tables that the web process creates, and that one needs the processor until it answers.
        self._start_program("worker", *WORKER, environment=as_worker(self._environment))
        if demo:
            self._load_demo()
        self._paths.address.write_text(str(self._address))
        seconds = time.monotonic() - began
        address = self._environment.get("PUBLIC_URL") or self._address.for_a_browser
        say(f"Recollect answers at {address} (started in {seconds:.1f} s; Ctrl-C or `{STOP_COMMAND}` stops it).")
        if self._environment.get("REGISTRATION", "open") != "open":
            say("Registration is not open. `.venv/bin/python manage.py createsuperuser` creates the first account.")
        elif sentence := about_the_first_person(self._environment):
            say(sentence)
        for sentence in about_servers_of_models(self._environment, own_port=self._address.port, address=address):
            say(sentence)

    def watch(self) -> None:
        """Keep every part running."""
        while True:
            self._look_after()
            self._restart_the_idle()
            self._look_at_the_disk()
            self._back_up_daily()
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        """Stop the programs together, then the servers together."""
        self._paths.address.unlink(missing_ok=True)
        if self._backup is not None:
            self._backup.terminate()
        services = [watch.service for watch in self._watches]
        for kind in (True, False):
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda service: service.stop(), [s for s in services if isinstance(s, Program) is kind]))

    def _make_environment(self) -> dict[str, str]:
        """Return the environment of every program, with our own servers and a generated key for missing settings."""
        environment = {name: value for name, value in read_environment().items() if value}
        made = {"SECRET_KEY": self._kept_key()} if "SECRET_KEY" not in environment else {}
        root = servers_dir(self._paths.var)
        roles = roles_named(environment)
        if "DATABASE_URL" in environment:
            made |= addresses(environment, roles, kept=self._paths.passwords)
        else:
            postgres = EmbeddedPostgres(root, log=self._begin_log("postgres"), roles=roles)
            if not postgres.data.exists():
                say("Making the database …")
            self._start_service(postgres)
            remember_data_folder(self._paths.var)
            made |= postgres.addresses
        if "REDIS_URL" in environment:
            check_broker(environment["REDIS_URL"])
        else:
            broker = EmbeddedRedis(root, log=self._begin_log("redis"))
            # Everything but wake-up messages works without it.
            self._start_service(broker, must_start=False)
            made["REDIS_URL"] = broker.url
        if self._address.host not in ("127.0.0.1", "localhost", "::1") and "ALLOWED_HOSTS" not in environment:
            made["ALLOWED_HOSTS"] = ",".join(["localhost", "127.0.0.1", "[::1]", *names_of(self._address.host)])
        self._backup_url = (environment | made).get("DATABASE_BACKUP_URL", "")
        if "PUBLIC_URL" in environment:
            # For commands beside it, whose links lead there too.
            made["PUBLIC_URL"] = environment["PUBLIC_URL"]
        write_secret(self._paths.environment, "".join(f"{name}={value}\n" for name, value in made.items()))
        # A command makes backups: no serving process may bypass row-level security.
        own = {MARK: str(self._paths.var), "DJANGO_SETTINGS_MODULE": "config.settings.local", "DATABASE_BACKUP_URL": ""}
        own |= {RUN: self._run, DATA: str(root), TASKS: str(self._paths.tasks)}
        # The C library keeps what was freed in a part of the memory for each thread: 30 MB of a process.
        own["MALLOC_ARENA_MAX"] = environment.get("MALLOC_ARENA_MAX", "2")
        return environment | made | own

    def _kept_key(self) -> str:
        """Return the key of the previous run: a new one would end all sessions."""
        with suppress(OSError):
            for line in self._paths.environment.read_text().splitlines():
                if line.startswith("SECRET_KEY="):
                    return line.partition("=")[2]
        return secrets.token_urlsafe(50)

    def _back_up_before_changes(self) -> list[str]:
        """Make a backup of data that this version is about to change; returns its migrations.

        Raises StackError if the backup fails: nothing has been changed then.
        """
        missing, unknown = migrations_apart(self._environment)
        if unknown:
            say(f"The data are of a newer version of Recollect, which added {_listed(unknown)}: use that version.")
        if not missing:
            return []
        if not self._backup_url:
            say("The data are of an earlier version. No backup was made: DATABASE_BACKUP_URL is not set.")
            return missing
        make_private(self._paths.backups)
        if first := self._backup_of_interrupted_upgrade(missing):
            say(f'An upgrade was interrupted: it goes on. The backup from before it is {first} ("Going back").')
            return missing
        file = self._paths.backups / f"{time.strftime('%Y-%m-%d-%H%M%S')}-before-{VERSION}.backup"
        say("The data are of an earlier version. Making a backup …")
        command = [sys.executable, "manage.py", "backup", str(file)]
        environment = self._environment | {"DATABASE_BACKUP_URL": self._backup_url}
        log = self._begin_log("backup")
        with log.open("ab") as output:
            done = subprocess.run(command, cwd=BASE_DIR, env=environment, stdout=output, stderr=output, check=False)
        if done.returncode:
            say(last_lines(log))
            raise StackError(f"The backup before the upgrade failed, and nothing was changed: {log} says why.")
        self._paths.upgrade.write_text(json.dumps({"backup": file.name, "missing": missing}))
        say(f'The backup is {file}. docs/operations.md says under "Going back" how to return to it.')
        return missing

    def _backup_of_interrupted_upgrade(self, missing: Sequence[str]) -> Path | None:
        """The backup of the last upgrade if only a part of its migrations has been applied since.

        A backup of tables that are changed by half is none to go back to. One that was restored misses them all again.
        """
        try:
            upgrade = json.loads(self._paths.upgrade.read_text())
        except (OSError, ValueError):
            return None
        backup = self._paths.backups / upgrade["backup"]
        return backup if set(missing) < set(upgrade["missing"]) and backup.exists() else None

    def _load_demo(self) -> None:
        say("Loading the sample data …")
        command = [sys.executable, "manage.py", "load_demo"]
        if subprocess.run(command, cwd=BASE_DIR, env=self._environment, check=False).returncode:
            raise StackError("The sample data could not be loaded: start without DEMO=1, or see the lines above.")

    def _start_web(self, name: str) -> None:
        self._start_program(name, "config.serving", self._address.host, str(self._address.port), "up")

    def _start_program(self, name: str, *arguments: str, environment: dict[str, str] | None = None) -> None:
        log = self._begin_log(name)
        named = (environment or self._environment) | {PROGRAM: name}
        self._start_service(Program(name, arguments, environment=named, log=log))

    def _start_service(self, service: Service, *, must_start: bool = True) -> None:
        watch = Watch(service)
        self._watches.append(watch)
        if must_start:
            watch.start()
        elif sentence := watch.start_or_wait():
            say(sentence)

    def _begin_log(self, name: str) -> Path:
        path = begin_log(self._paths.log / f"{name}.log")
        self._logs.append((name, LogReader(path)))
        return path

    def _wait_until_it_answers(self) -> None:
        # The first start also builds the embedding model.
        deadline = time.monotonic() + 180
        while not (answer := ask(self._address, self._environment)).is_healthy:
            if answer.run and answer.run != self._run:
                raise StackError(
                    f"Another copy of Recollect answers at {self._address}: stop it, or choose another port."
                )
            if time.monotonic() > deadline:
                raise StackError(f"{self._address}/healthz did not become healthy (last answer: {answer.text}).")
            for watch in self._look_after():
                if isinstance(watch.service, Program) and watch.service.has_refused:
                    raise StackError(last_lines(watch.service.log).splitlines()[-1].strip())
                # During the start, a program that dies twice is given up.
                if isinstance(watch.service, Program) and watch.deaths >= 2:
                    say(last_lines(watch.service.log))
                    raise StackError(
                        f"{watch.service.name} does not start: the lines above and {watch.service.log} say why."
                    )
            time.sleep(LOOK_SECONDS / 10)

    def _restart_the_idle(self) -> None:
        """Start again the web processes that do not answer, and the worker if no task comes."""
        self._listening.ask_now_and_then(self._address, self._environment)
        for watch in self._watches:
            if sentence := self._listening.complaint(watch):
                say(sentence)
                watch.service.stop()
                if failure := watch.start_or_wait():
                    say(failure)

    def _look_at_the_disk(self) -> None:
        """Say once that it is full. The database keeps reading while its log has room, and pages refuse to write."""
        full = full_disk(self._paths.var, servers_dir(self._paths.var))
        if full and not self._has_full_disk:
            say(full)
        self._has_full_disk = bool(full)

    def _back_up_daily(self) -> None:
        """Start the backup of the day in a child that alone gets the address of the role that reads every row."""
        if self._backup is not None:
            if (code := self._backup.poll()) is None:
                return
            self._backup = None
            if code:
                why = last_lines(self._paths.log / "backup.log")
                say(f"The daily backup failed and is tried again in an hour:\n{why}")
        if not self._backup_url or time.monotonic() < self._backup_due:
            return
        self._backup_due = time.monotonic() + 3600
        last = last_daily_backup(self._paths.backups)
        if last is not None and time.time() - last.stat().st_mtime < DAY_SECONDS:
            return
        command = [sys.executable, "manage.py", "daily_backup", str(self._paths.backups)]
        environment = self._environment | {"DATABASE_BACKUP_URL": self._backup_url}
        with (self._paths.log / "backup.log").open("ab") as output:
            self._backup = subprocess.Popen(command, cwd=BASE_DIR, env=environment, stdout=output, stderr=output)

    def _look_after(self) -> list[Watch]:
        """Restart dead parts and show errors; returns the watches whose service has just died."""
        died = []
        for watch in self._watches:
            if sentence := watch.tend():
                died.append(watch)
                say(sentence)
                # Later it is restarted forever; the reason is shown once it has died this often in a row.
                if watch.deaths >= 3:
                    log = watch.service.log
                    say(f"{watch.service.name} keeps ending; {log} ends with:\n{last_lines(log)}")
        for name, reader in self._logs:
            for error in reader.new_errors():
                say(f"{name}: {error}")
            # A log is turned over when it is larger: one former log is kept.
            reader.turn_over(10 * 2**20)
        return died


@dataclass(frozen=True)
class HealthAnswer:
    """The answer of `/healthz`, or the reason why there is none."""

    text: str
    is_healthy: bool = False
    run: str = ""
    program: str = ""


def ask(address: Address, environment: Mapping[str, str]) -> HealthAnswer:
    """Query a web process."""
    hosts = [host for host in environment.get("ALLOWED_HOSTS", "").split(",") if host.strip(".*")]
    connection = http.client.HTTPConnection(address.local_host, address.port, timeout=ASK_SECONDS)
    try:
        connection.request("GET", "/healthz", headers={"Host": hosts[0].lstrip(".") if hosts else "localhost"})
        response = connection.getresponse()
        body = response.read(1000).decode(errors="replace")
        text = f"{response.status} {body[:200]}"
    except (OSError, http.client.HTTPException) as error:
        return HealthAnswer(str(error))
    finally:
        connection.close()
    try:
        named = json.loads(body)
        run, program = str(named["run"]), str(named["program"])
    except (ValueError, KeyError, TypeError):
        return HealthAnswer(text)
    is_ours = run == environment[RUN]
    return HealthAnswer(text, is_healthy=is_ours and response.status == HTTPStatus.OK, run=run, program=program)


def ask_there(file: Path) -> HealthAnswer:
    """Ask `/healthz` at the address in a supervisor's file."""
    url = urlsplit(file.read_text())
    return ask(Address(url.hostname or "127.0.0.1", url.port or 0), {**os.environ, RUN: ""})


class Listening:
    """Notices programs that run and do no work: by their answers, and by the tasks that come.

    Times are the machine's own, which no change of the clock moves.
    """

    def __init__(self, tasks: Path) -> None:
        self._tasks = tasks
        self._last: dict[str, float] = {}
        self._stamp = 0
        self._failures = 0
        self._resumed_at = 0.0
        self._looked_at = self._asked_at = time.monotonic()
        self._asking = ThreadPoolExecutor(max_workers=1)
        self._answer: Future[HealthAnswer] | None = None

    def ask_now_and_then(self, address: Address, environment: Mapping[str, str]) -> None:
        """In a thread, because an answer may take long, and several processes may share the address."""
        gap, self._looked_at = time.monotonic() - self._looked_at, time.monotonic()
        if gap > max(HANGS_SECONDS / 2, 3 * LOOK_SECONDS):
            # The supervisor itself paused, as on a machine that slept, so the web process gets a new count.
            self._failures, self._resumed_at = 0, self._looked_at
        if self._answer is None:
            if time.monotonic() - self._asked_at >= ASK_SECONDS:
                self._asked_at = time.monotonic()
                self._answer = self._asking.submit(ask, address, environment)
            return
        if self._answer.done():
            answer, self._answer = self._answer.result(), None
            if answer.run == environment[RUN]:
                self._last[answer.program] = time.monotonic()
                self._failures = 0
            else:
                self._failures += 1

    def complaint(self, watch: Watch) -> str:
        """A sentence if the program of a watch must be started again."""
        name = watch.service.name
        silent = time.monotonic() - max(watch.started_at, self._last.get(name, 0.0), self._resumed_at)
        if name.startswith("web"):
            if watch.service.is_running and silent > HANGS_SECONDS and self._failures > 1:
                self._failures = 0
                self._last[name] = time.monotonic()
                return f"{name} has not answered for {HANGS_SECONDS} s and is started again."
        elif name == "worker" and watch.service.is_running:
            stamp = self._tasks.stat().st_mtime_ns if self._tasks.exists() else 0
            if stamp != self._stamp:
                self._stamp, self._last[name] = stamp, time.monotonic()
            # Every half a minute a task is due: if none has come for so long, the worker hangs.
            elif silent > 180:
                self._last[name] = time.monotonic()
                return "No task has come for 180 s: the worker is started again."
        return ""


def say(text: str) -> None:
    # The terminal may be closed by now, which must not end the supervisor.
    with suppress(OSError):
        print(text, flush=True)


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' if len(names) > NAMED else ''}"


def _web_processes(environment: dict[str, str]) -> int:
    """The number of web processes that share the address. Raises StackError."""
    text = environment.get(WEB_PROCESSES) or "1"
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise StackError(f"{WEB_PROCESSES}={text} is not a number of processes: give a whole number from 1 on.")
    return int(text)
