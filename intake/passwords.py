"""Hashes passwords one after the other, at a low priority, without holding a database connection.

`User.check_password` and `User.set_password` use it, so every page, endpoint and command does. A hash is expensive on
purpose: a burst of log-ins would take every core. How many wait here is bounded by the turns of core/gate.py.
"""

from concurrent.futures import ThreadPoolExecutor

from django.contrib.auth.hashers import (
    UNUSABLE_PASSWORD_PREFIX,
    Argon2PasswordHasher,
    check_password,
    make_password,
)
from django.core.exceptions import ValidationError

from core.priority import step_back
from core.resilience import give_connections_back as give_connections_back  # noqa: PLC0414 - exports it
from core.validation import LONGEST_PASSWORD

# Fewer threads than a machine has cores.
pool = ThreadPoolExecutor(1, thread_name_prefix="passwords", initializer=step_back)


class Argon2idHasher(Argon2PasswordHasher):
    """Argon2id with the parameters of OWASP's Password Storage Cheat Sheet: 19 MiB, two passes, one lane.

    Django's default is eight lanes, each of which is a thread: one log-in would take every core.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1


class MaximumLengthValidator:
    """One of `AUTH_PASSWORD_VALIDATORS`, for every form with a new password."""

    def validate(self, password: str, user: object = None) -> None:
        if len(password) > LONGEST_PASSWORD:
            raise ValidationError(self.get_help_text(), code="password_too_long")

    def get_help_text(self) -> str:
        return f"Your password must have at most {LONGEST_PASSWORD:,} characters."


# Stored in place of a hash: no password matches it.
NONE = UNUSABLE_PASSWORD_PREFIX


def encode(password: str) -> str:
    """A hash of the password."""
    give_connections_back()
    return pool.submit(make_password, password).result()


def verify(password: str | None, encoded: str) -> tuple[bool, bool]:
    """Whether the password is correct, and if so, whether its hash must be renewed."""
    outdated: list[str] = []
    give_connections_back()
    is_right = pool.submit(check_password, password, encoded, setter=outdated.append).result()
    return is_right, bool(outdated)
