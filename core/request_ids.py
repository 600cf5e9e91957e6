"""One name for what a request caused: in the web process's log, in a worker's, and in the database's list of sessions.

The outermost layer of the web process names each request, tasks inherit the name with their message, and every
transaction of a user tells it to the database as `application_name`.
"""

import re
import secrets
from contextvars import ContextVar

# What PostgreSQL is told, with the request's name behind it.
APPLICATION = "recollect"
HEADER = "X-Request-ID"
# Also what reads well in a log and fits into PostgreSQL's 63 bytes behind the application's own name.
SANE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{3,47}")

# Empty outside a request, and for a task that nothing in particular caused.
request_id: ContextVar[str] = ContextVar("request_id", default="")


def sane(text: str) -> str:
    """The text if it may stand for a request in a log; otherwise none."""
    return text if SANE.fullmatch(text) else ""


def named(text: str) -> str:
    """The sender's own id for a request, or a new one."""
    return sane(text) or secrets.token_hex(8)
