"""Who logs in where on a server that a person gave: the roles are made if need be, and each part gets its own."""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

from config.stack.errors import StackError
from config.stack.given import check_database, connected
from config.stack.places import write_secret
from core.isolation.roles import DEFAULT_PREFIX, RoleRefused, Roles, existing, make_roles


def roles_named(given: Mapping[str, str]) -> Roles:
    try:
        return Roles(given.get("DATABASE_ROLE_PREFIX") or DEFAULT_PREFIX)
    except ValueError as error:
        raise StackError(str(error)) from error


def addresses(given: Mapping[str, str], roles: Roles, *, kept: Path) -> dict[str, str]:
    """The three addresses. Raises StackError when the server cannot be used, or the roles neither made nor taken.

    Where the web role's and the worker's are given they are taken as they are. A lone DATABASE_URL of another role is
    its owner's: the roles are made by it, with passwords that are kept in `kept`.
    """
    if urlsplit(given["DATABASE_URL"]).username == roles.web:
        return _taken(given)
    owner = given.get("DATABASE_OWNER_URL") or given["DATABASE_URL"]
    check_database(owner)
    passwords = _made(owner, roles, kept)
    return {
        "DATABASE_URL": _with_login(owner, roles.web, passwords[roles.web]),
        "DATABASE_WORKER_URL": _with_login(owner, roles.worker, passwords[roles.worker]),
        "DATABASE_OWNER_URL": owner,
    }


def as_worker(environment: dict[str, str]) -> dict[str, str]:
    """For a process that does a worker's work and has no other's address."""
    others = ("DATABASE_OWNER_URL", "DATABASE_WORKER_URL")
    kept = {name: value for name, value in environment.items() if name not in others}
    # Empty rather than absent, which would have them read from a file.
    return kept | {"DATABASE_URL": environment["DATABASE_WORKER_URL"]} | dict.fromkeys(others, "")


def _taken(given: Mapping[str, str]) -> dict[str, str]:
    for name, purpose in (("DATABASE_WORKER_URL", "workers"), ("DATABASE_OWNER_URL", "migrations")):
        if not given.get(name):
            raise StackError(
                f"DATABASE_URL names the web role, and {name}, for {purpose}, is missing: give all three addresses, or "
                "the owner's alone in DATABASE_URL."
            )
        with connected(given[name], name=name):
            pass
    check_database(given["DATABASE_URL"])
    return {}


def _made(owner: str, roles: Roles, kept: Path) -> dict[str, str]:
    passwords = _kept_passwords(kept)
    logins = {roles.web, roles.worker}
    with connected(owner) as server:
        foreign = sorted((existing(server, roles) & logins) - passwords.keys())
        if foreign:
            raise StackError(
                f"The server has the role {foreign[0]} already and its password is not known here: give its address in "
                "DATABASE_URL and the others' beside it, or choose other names by DATABASE_ROLE_PREFIX."
            )
        passwords = {name: secrets.token_urlsafe(24) for name in sorted(logins)} | passwords
        write_secret(kept, "".join(f"{name} {password}\n" for name, password in passwords.items()))
        try:
            make_roles(server, roles, passwords={name: passwords[name] for name in logins})
        except RoleRefused as error:
            raise StackError(f"{error} Then give their addresses too (docs/isolation.md).") from error
    return passwords


def _kept_passwords(kept: Path) -> dict[str, str]:
    with suppress(FileNotFoundError):
        return dict(line.split() for line in kept.read_text().splitlines())
    return {}


def _with_login(url: str, name: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(name)}:{quote(password, safe='')}@{host}").geturl()
