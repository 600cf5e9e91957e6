"""Examines an installation for `manage.py doctor`: what runs in which version, what is wrong, and what to do about it.

The report is for a bug report, so it names settings and never their values, says the type of an exception and never its
message, and has no path, no host and no text of a user. Each part stands alone: with the database away, the rest is
still examined.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import celery
import django
import redis
from django.conf import settings
from django.core.checks import WARNING, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from kombu.exceptions import OperationalError as BrokerAway
from psycopg_pool import PoolTimeout

from config import VERSION
from config.settings.table import names_set, setting_of
from config.stack.daily import last_daily_backup
from config.stack.lock import RunLock
from config.stack.supervisor import RunPaths, ask_there
from core import telemetry
from core.isolation import fitting
from core.isolation.acting import acting_as_staff
from core.resilience import client
from intake.attachments.services import FREE_BYTES
from intake.llm.language_models import is_recall_mode, kept_models, opened_key
from intake.llm.windows import small_windows
from memory.backends.embedders import EmbedderError, configured_embedders, read_active_name, require_active
from memory.index.health import index_health

DATABASE_AWAY = (DatabaseError, PoolTimeout)
REDIS_AWAY = (redis.RedisError, BrokerAway, OSError)
# A worker answers one question a second.
WORKER_SECONDS = 3.0


@dataclass(slots=True)
class Report:
    facts: list[tuple[str, str]] = field(default_factory=list)
    # A fault and its remedy, in a sentence each.
    problems: list[tuple[str, str]] = field(default_factory=list)

    def say(self, label: str, text: object) -> None:
        self.facts.append((label, str(text)))

    def complain(self, what: str, remedy: str) -> None:
        self.problems.append((what, remedy))

    def as_text(self) -> str:
        width = max(len(label) for label, _ in self.facts) + 2
        lines = [f"{label:{width}}{text}".rstrip() for label, text in self.facts]
        if not self.problems:
            return "\n".join([*lines, "", "Nothing is wrong."])
        for number, (what, remedy) in enumerate(self.problems, 1):
            lines += ["", f"{number}. {what}", f"   {remedy}"]
        return "\n".join(lines)


def examine(*, now: datetime) -> Report:
    report = Report()
    _look_at_the_programs(report)
    has_database = _look_at_the_database(report)
    has_redis = _look_at_redis(report)
    _look_at_the_settings(report)
    _run_the_checks(report, has_database=has_database)
    if has_database:
        _look_at_the_schema(report)
        _look_at_the_index(report, now)
    if has_redis:
        _look_at_the_queues(report)
        _look_at_the_workers(report)
    _look_at_the_disk(report)
    _look_at_the_stack(report, now)
    _look_at_the_models(report, has_database=has_database)
    return report


def _look_at_the_programs(report: Report) -> None:
    report.say("Recollect", VERSION)
    report.say("Python", f"{platform.python_version()} ({platform.system()} {platform.machine()})")
    report.say("Django", django.get_version())
    report.say("Celery", celery.__version__)
    # Other programs of this user may have left it: that is no fault of the installation.
    if left := telemetry.queue_folder():
        name = "/".join(left.parts[-3:])
        remedy = "the next start deletes it" if telemetry.is_ours(left) else "delete it, unless it is another program's"
        report.say("Telemetry", f"off; an earlier queue of onnxruntime is left in {name}: {remedy}")
    else:
        report.say("Telemetry", "off")


def _look_at_the_database(report: Report) -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT current_setting('server_version'),"
                " (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
            )
            version, pgvector = cursor.fetchone()
    except DATABASE_AWAY as error:
        report.say("PostgreSQL", "does not answer")
        report.complain(
            f"The database does not answer ({_kind(error)}).", "Start it with `make up`, or correct DATABASE_URL."
        )
        return False
    report.say("PostgreSQL", version)
    report.say("pgvector", pgvector or "not installed")
    if not pgvector:
        report.complain("The database has no extension vector.", "Install pgvector, then run `manage.py migrate`.")
    return True


def _look_at_redis(report: Report) -> bool:
    try:
        with client(settings.REDIS_URL, seconds=2.0) as broker:
            server = broker.info("server")
    except (*REDIS_AWAY, ValueError) as error:
        report.say("Redis", "does not answer")
        report.complain(f"Redis does not answer ({_kind(error)}).", "Start it with `make up`, or correct REDIS_URL.")
        return False
    valkey = server.get("valkey_version")
    report.say("Redis", f"Valkey {valkey}" if valkey else server.get("redis_version", "of unknown version"))
    return True


def _look_at_the_settings(report: Report) -> None:
    report.say("Settings module", os.environ.get("DJANGO_SETTINGS_MODULE", ""))
    report.say("Settings set", ", ".join(names_set(os.environ)) or "none")
    if not settings.configured or not _has_a_key():
        report.complain("SECRET_KEY is empty.", "`make up` makes one; elsewhere set it, or SECRET_KEY_FILE.")


def _has_a_key() -> bool:
    try:
        return bool(settings.SECRET_KEY)
    except ImproperlyConfigured:
        return False


def _run_the_checks(report: Report, *, has_database: bool) -> None:
    try:
        found = run_checks(databases=["default"] if has_database else None)
    except (*DATABASE_AWAY, ImproperlyConfigured) as error:
        report.say("Checks", "cannot run")
        report.complain(f"Django's checks cannot run ({_kind(error)}).", "Run `manage.py check` for the whole message.")
        return
    serious = [one for one in found if one.level >= WARNING and not one.is_silenced()]
    report.say("Checks", f"{len(serious)} of them complain" if serious else "none complains")
    for one in serious:
        report.complain(f"{one.id}: {_without_values(one.msg)}", _without_values(one.hint or "See docs/operations.md."))


def _look_at_the_schema(report: Report) -> None:
    try:
        executor = MigrationExecutor(connection)
        pending = [
            f"{migration.app_label}.{migration.name}"
            for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())
        ]
        differences = [] if pending else fitting.differences()
    except DatabaseError as error:
        report.say("Migrations", "cannot be read")
        report.complain(f"The migrations cannot be read ({_kind(error)}).", "Run `manage.py migrate`.")
        return
    report.say("Migrations", f"{len(pending)} pending" if pending else "all applied")
    if pending:
        more = f" and {len(pending) - 1} more are" if len(pending) > 1 else " is"
        report.complain(f"{pending[0]}{more} not applied.", "Run `manage.py migrate`, or start `make up` again.")
    if differences:
        report.complain(
            f"The database does not fit this version: {differences[0]}.", "See docs/operations.md, Restore."
        )


def _look_at_the_index(report: Report, now: datetime) -> None:
    try:
        with acting_as_staff():
            health = index_health(now=now)
    except DatabaseError as error:
        report.say("Texts", "cannot be counted")
        report.complain(f"The index cannot be read ({_kind(error)}).", "Put the web role into DATABASE_URL.")
        return
    counts = f"{health.waiting} wait for a vector, {health.failed} of them failed, {health.quarantined} quarantined"
    report.say("Texts", counts)
    if health.slowness:
        report.complain(f"Embedding is {health.slowness}.", "See docs/operations.md, A slow embedding model.")
    # A text that waits for longer while no vector is made waits for something that is broken.
    if health.due_since and now - health.due_since > timedelta(minutes=10) and not health.last_minute.vectors:
        minutes = (now - health.due_since).total_seconds() // 60
        report.complain(
            f"A text has waited for {minutes:,.0f} minutes, and no vector was made in the last one.",
            "Look into the worker's log, and start the worker again.",
        )
    if health.quarantined.value:
        report.complain(
            f"{health.quarantined} texts have no vector after several attempts.",
            "See why in the admin, Embeddings, and embed them again there.",
        )


def _queues() -> list[str]:
    """Every queue that the product sends to."""
    routes = settings.CELERY_TASK_ROUTES.values()
    return sorted({celery.current_app.conf.task_default_queue, *(route["queue"] for route in routes)})


def queue_lengths() -> dict[str, int]:
    """The messages that wait, by queue. Raises one of `REDIS_AWAY`."""
    with client(settings.REDIS_URL, seconds=2.0) as broker:
        return {name: int(broker.llen(name)) for name in _queues()}


def _look_at_the_queues(report: Report) -> None:
    try:
        lengths = queue_lengths()
    except REDIS_AWAY as error:
        report.complain(f"The queues cannot be read ({_kind(error)}).", "Look into the log of Redis.")
        return
    report.say("Messages", ", ".join(f"{name} {length}" for name, length in lengths.items()))


def _look_at_the_workers(report: Report) -> None:
    try:
        answers = celery.current_app.control.inspect(timeout=WORKER_SECONDS).active_queues() or {}
    except REDIS_AWAY as error:
        report.complain(f"The workers cannot be asked ({_kind(error)}).", "Look into the log of Redis.")
        return
    read = {name.split("@")[0]: sorted(queue["name"] for queue in queues) for name, queues in answers.items()}
    report.say("Workers", "; ".join(f"{name} ({', '.join(queues)})" for name, queues in sorted(read.items())) or "none")
    unread = [name for name in _queues() if not any(name in queues for queues in read.values())]
    if unread:
        report.complain(
            f"No worker reads the queue{'s' if len(unread) > 1 else ''} {', '.join(unread)}.",
            "`make up` starts all workers; docker-compose.yml has the command of each.",
        )


def _look_at_the_disk(report: Report) -> None:
    folders = {"var/": settings.VAR_DIR, "the database": Path(settings.DATABASE_FOLDER or settings.VAR_DIR)}
    for name, folder in folders.items():
        if name != "var/" and folder == settings.VAR_DIR:
            continue
        there = next(each for each in (folder, *folder.parents) if each.exists())
        usage = shutil.disk_usage(there)
        free = f"{usage.free / 1024**3:,.1f} GB"
        report.say(f"Disk of {name}", f"{free} free of {usage.total / 1024**3:,.1f} GB")
        if usage.free < FREE_BYTES:
            report.complain(
                f"The disk of {name} has {free} left, less than uploads leave free.",
                "Make room: uploads are refused now, and everything else once it is full.",
            )


def _look_at_the_stack(report: Report, now: datetime) -> None:
    """What `make up` runs: its supervisor, whether the address answers, tasks, backups and logs."""
    paths = RunPaths(settings.VAR_DIR)
    if not paths.lock.exists():
        report.say("Supervisor", "none: not started by `make up`")
        return
    if RunLock(paths.lock).is_held_elsewhere():
        report.say("Supervisor", "runs")
        is_well = paths.address.exists() and ask_there(paths.address).text.startswith("200 ")
        report.say("Address", "answers" if is_well else "does not answer")
        if not is_well:
            report.complain("The web process is not well.", "Look into log/web.log, or start `make up` again.")
        _look_at_a_file(
            report,
            "Last task",
            paths.tasks,
            now,
            timedelta(minutes=5),
            "The schedule sends no task.",
            "Start `make up` again.",
        )
    else:
        report.say("Supervisor", "does not run")
        report.complain("Recollect is not running.", "Start it with `make up`.")
    last = last_daily_backup(paths.backups)
    remedy = "Look into log/backup.log, or make one with `manage.py backup`."
    _look_at_a_file(
        report, "Last backup", last, now, timedelta(days=2), "The last daily backup is over two days old.", remedy
    )
    logs = sum(each.stat().st_size for each in paths.log.iterdir())
    report.say("Logs", f"{logs / 2**20:,.1f} MB")


def _look_at_a_file(
    report: Report, label: str, path: Path | None, now: datetime, longest: timedelta, what: str, remedy: str
) -> None:
    """Say how old it is, and complain if that is too old."""
    if path is None or not path.exists():
        report.say(label, "none yet")
        return
    age = max(now - datetime.fromtimestamp(path.stat().st_mtime, tz=now.tzinfo), timedelta())
    report.say(
        label,
        f"{age // timedelta(hours=1):,} hours ago" if age > timedelta(hours=1) else f"{age.seconds // 60} minutes ago",
    )
    if age > longest:
        report.complain(what, remedy)


def _look_at_the_models(report: Report, *, has_database: bool) -> None:
    report.say("Chat", "recall mode" if is_recall_mode() else "has a language model")
    unreadable = sum(opened_key(kept["sealed"]) is None for kept in kept_models())
    if unreadable:
        report.complain(
            f"SECRET_KEY does not open {unreadable} of the keys of language models that staff have entered.",
            "Enter them again at /staff/models/, or put the former key into SECRET_KEY_FALLBACKS.",
        )
    # Its name is a setting's value.
    for sentence in small_windows():
        what, _, remedy = sentence.partition(". ")
        report.complain(f"{what}.", remedy)
    built_in = f"built-in, {settings.EMBEDDING_LANGUAGES}"
    report.say("Embedding model", "at an endpoint" if settings.EMBEDDING_BASE_URL else built_in)
    try:
        embedders = configured_embedders()
        for embedder in embedders:
            embedder.warm_up()
        if has_database:
            require_active(*(embedder.name for embedder in embedders))
            if settings.EMBEDDER_BEFORE and read_active_name() not in (None, embedders[0].name):
                report.complain(
                    "The index was made with another built-in model than EMBEDDING_LANGUAGES names, and is searched "
                    "with that one.",
                    "Run `manage.py switch_embedding_model`: everything is found meanwhile.",
                )
    except EmbedderError as error:
        report.complain(f"The embedding model is of no use: {_without_values(str(error))}", "Correct EMBEDDING_….")
    except DatabaseError as error:
        report.complain(f"The active embedding model cannot be read ({_kind(error)}).", "Run `manage.py migrate`.")


def _kind(error: BaseException) -> str:
    """The type alone: a driver's message has hosts and users in it."""
    return type(error.__cause__ or error).__name__


def _without_values(text: object) -> str:
    """A message of a check, in which a setting's value may stand, with the setting's name in its place."""
    message = str(text)
    for name, value in sorted(_values(), key=lambda each: -len(each[1])):
        message = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", f"<{name}>", message)
    return message


def _values() -> Iterator[tuple[str, str]]:
    """The value of each variable, its entries if it is a list, and the host and the login of an address."""
    for name, value in os.environ.items():
        if setting_of(name) is None:
            continue
        address = urlsplit(value) if "://" in value else None
        parts = [address.hostname, address.username, address.password] if address else value.split(",")
        for part in {value, *(part.strip() for part in parts if part)}:
            # A shorter value, such as "on", is a word like any other.
            if len(part) >= 4:
                yield name, part
