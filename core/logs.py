"""Formats log lines as text or as JSON, both with the id of the request, and without what a user wrote.

An exception's message may quote the value that it is about: pydantic's an input, the database's a row, Django's the
arguments of an address. So a line says an exception's type and where it was raised, and not its message. A request is
logged by its route, because the path of a missing page can hold any text that a visitor typed.
"""

import json
import logging
import re
import secrets
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from datetime import UTC, datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any

from django.core import checks
from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, connections
from django.db import OperationalError as DatabaseUnavailable
from django.db.backends.base.base import BaseDatabaseWrapper

from core.errors import RecollectError

# The outermost layer of the web process sets the id, tasks inherit it with their message, and every transaction of a
# user sends it to the database as `application_name`.

# The application's name for PostgreSQL, followed by the request's id.
APPLICATION = "recollect"
HEADER = "X-Request-ID"
# Short enough to read in a log and to fit into PostgreSQL's 63 bytes after the application's name.
SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{3,47}")

# Empty outside a request, and for a task without a request.
request_id: ContextVar[str] = ContextVar("request_id", default="")


def sane(text: str) -> str:
    """The text if it is a valid request id; otherwise an empty one."""
    return text if SANE.fullmatch(text) else ""


def named(text: str) -> str:
    """The sender's own request id, or a new one."""
    return sane(text) or secrets.token_hex(8)


ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
# What Celery says about a task besides its name and id: its arguments, its result and its exception.
_OF_A_TASK = ("exc", "traceback", "args", "kwargs", "return_value")


class OneLine(logging.Filter):
    """Turns an expected failure outside a view, and a request that Django refuses, into one warning without traceback.

    A stranger can cause each of these as often as wanted.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, SuspiciousOperation | DatabaseUnavailable | InterfaceError | RecollectError):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.msg, record.args = "A request was refused (%s)", (type(error).__name__,)
            record.exc_info = record.exc_text = None
        return True


class LineFormatter(logging.Formatter):
    """`2026-02-25 17:20:30,123 WARNING memory.index.writer [3f2a…]: No worker could be woken`."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}{about}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        # A copy, because other handlers format the same record.
        record = copy(record)
        record.msg, record.args = _message(record), None
        record.exc_text = None
        name = request_id.get()
        record.about = f" [{name}]" if name else ""
        return super().format(record)

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the library's name
        return "\n".join(_described(ei[1])) if ei[1] is not None else ""


class JsonFormatter(LineFormatter):
    """Writes one object per line: `time` (UTC), `level`, `logger`, `message`, optionally `request_id`, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        if name := request_id.get():
            line["request_id"] = name
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _message(record: logging.LogRecord) -> str:
    request: Any = getattr(record, "request", None)
    status = getattr(record, "status_code", None)
    if record.name.startswith("django.") and hasattr(request, "resolver_match"):
        return f"{_reason(status)}: {request.method} {_route(request)}"
    args: Any = record.args
    if isinstance(args, Mapping):
        kept = {name: "" if name in _OF_A_TASK else _without_message(value) for name, value in args.items()}
        return (str(record.msg) % kept).strip()
    if isinstance(record.msg, BaseException):
        return type(record.msg).__name__
    return str(record.msg) % tuple(map(_without_message, args)) if args else str(record.msg)


def _without_message(value: Any) -> Any:
    return _name(value) if isinstance(value, BaseException) else value


def _reason(status: object) -> str:
    try:
        return f"{status} {HTTPStatus(int(str(status))).phrase}"
    except ValueError:
        return "Request"


def _route(request: Any) -> str:
    match = request.resolver_match
    return "/" + match.route if match is not None else "an address without a page"


def _described(error: BaseException | None) -> Iterator[str]:
    """The exception and those before it, the first last: type and frames."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield _name(error)
        for frame in traceback.extract_tb(error.__traceback__):
            yield f"  {frame.filename}:{frame.lineno} in {frame.name}"
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _described(inner)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Django sends statements with their values in them, so a logged statement is a logged text. `manage.py check --database
# default` reports wrong settings, and a web process reports them when it starts.

logger = logging.getLogger(__name__)

# By setting: the allowed values, and the value to set. The first four are PostgreSQL's defaults in other words.
SILENT: dict[str, tuple[set[str], str]] = {
    "log_statement": ({"none", "ddl"}, "none"),
    "log_min_duration_statement": ({"-1"}, "-1"),
    "log_min_duration_sample": ({"-1"}, "-1"),
    "log_transaction_sample_rate": ({"0"}, "0"),
    # A failed statement, its values, and the row that a constraint refused.
    "log_min_error_statement": ({"log", "fatal", "panic"}, "panic"),
    "log_parameter_max_length": ({"0"}, "0"),
    "log_parameter_max_length_on_error": ({"0"}, "0"),
    "log_error_verbosity": ({"terse"}, "terse"),
}


@checks.register(checks.Tags.database)
def check_database_logs(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    return [found for alias in databases or () for found in problems(connections[alias])]


def warn_of_texts_in_logs() -> None:
    """Log one line, so that an operator sees it without running the check."""
    for found in problems(connections["default"]):
        logger.warning("%s: %s %s", found.id, found.msg, found.hint)


def problems(connection: BaseDatabaseWrapper) -> list[checks.CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name", [[*SILENT]])
        talkative = [name for name, value in cursor.fetchall() if value not in SILENT[name][0]]
        cursor.execute("SELECT current_database()")
        (database,) = cursor.fetchone()
    if not talkative:
        return []
    lines = " ".join(f"ALTER DATABASE {database} SET {name} = '{SILENT[name][1]}';" for name in talkative)
    return [
        checks.Warning(
            f"PostgreSQL may write what people said into its log, by {', '.join(talkative)}.",
            hint=f"As a superuser: {lines} See docs/operations.md.",
            id="core.W006",
        )
    ]
