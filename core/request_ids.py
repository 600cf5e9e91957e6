"""Gives each request an id that appears in the web process's log, in a worker's, and in the database's sessions.

The outermost layer of the web process sets the id, tasks inherit it with their message, and every transaction of a user
sends it to the database as `application_name`.
"""

import re
import secrets
from contextvars import ContextVar

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
