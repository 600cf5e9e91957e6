"""Formats log lines as text or as JSON, both with the id of the request."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError
from django.db import OperationalError as DatabaseUnavailable

from core.errors import RecollectError
from core.request_ids import request_id


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
    """`2026-02-25 17:20:30,123 WARNING memory.wake [3f2a…]: No worker could be woken`."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}{request}: {message}", style="{")

    def format(self, record: logging.LogRecord) -> str:
        name = request_id.get()
        record.request = f" [{name}]" if name else ""
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """Writes one object per line: `time` (UTC), `level`, `logger`, `message`, optionally `request_id`, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if name := request_id.get():
            line["request_id"] = name
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
