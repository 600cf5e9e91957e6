"""Formats log lines as text or as JSON, both with the id of the request, and without what a user wrote.

An exception's message may quote the value that it is about: pydantic's an input, the database's a row, Django's the
arguments of an address. So a line says an exception's type and where it was raised, and not its message. A request is
said by its route, because the path of a missing page is whatever somebody typed.
"""

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from copy import copy
from datetime import UTC, datetime
from http import HTTPStatus
from types import TracebackType
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError
from django.db import OperationalError as DatabaseUnavailable

from core.errors import RecollectError
from core.request_ids import request_id

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


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        # A copy, because other handlers format the same record.
        record = copy(record)
        record.msg, record.args = _message(record), None
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the library's name
        return "\n".join(_described(ei[1])) if ei[1] is not None else ""


class LineFormatter(_Formatter):
    """`2026-02-25 17:20:30,123 WARNING memory.wake [3f2a…]: No worker could be woken`."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}{about}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        name = request_id.get()
        record.about = f" [{name}]" if name else ""
        return super().format(record)


class JsonFormatter(_Formatter):
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
