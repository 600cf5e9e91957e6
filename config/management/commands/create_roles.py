"""`manage.py create_roles`: creates the roles of the application and its workers on your own server."""

import secrets
from typing import Any
from urllib.parse import quote, urlsplit

import environ
import psycopg
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import BaseCommand, CommandError
from django.db import connection

from core.isolation.connecting import connected_as_owner
from core.isolation.roles import Roles, existing, make_roles


class Command(BaseCommand):
    help = (
        "Make the web, worker and staff roles on the database server, as the role in DATABASE_OWNER_URL, which needs "
        "CREATEROLE. Run it once before `migrate`; running it again changes nothing. Passwords are taken from "
        "DATABASE_URL and DATABASE_WORKER_URL where those name the roles; others are made up and shown this once."
    )
    # Django's own checks need tables, which do not exist yet.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        roles: Roles = settings.DATABASE_ROLES
        with connected_as_owner():
            server = _server()
        with server:
            known = existing(server, roles)
            from_settings = _passwords_from_settings(roles)
            made_up = {
                name: secrets.token_urlsafe(24)
                for name in (roles.web, roles.worker)
                if name not in known | from_settings.keys()
            }
            try:
                make_roles(server, roles, passwords=from_settings | made_up)
            except ImproperlyConfigured as error:
                raise CommandError(str(error)) from error
        self.stdout.write(f"The roles {', '.join(roles.all)} are there.")
        for name, variable in ((roles.web, "DATABASE_URL"), (roles.worker, "DATABASE_WORKER_URL")):
            if name in made_up:
                self.stdout.write(f"{variable}={_address(name, made_up[name])}")


def _server() -> psycopg.Connection[Any]:
    requested = {**connection.get_connection_params(), "autocommit": True}
    requested.pop("cursor_factory", None)
    return psycopg.connect(**requested)


def _passwords_from_settings(roles: Roles) -> dict[str, str]:
    """By role, from the addresses that contain one."""
    database = settings.DATABASES["default"]
    worker = environ.Env.db_url_config(settings.DATABASE_WORKER_URL) if settings.DATABASE_WORKER_URL else {}
    logins: dict[Any, Any] = {
        database.get("USER"): database.get("PASSWORD"),
        worker.get("USER"): worker.get("PASSWORD"),
    }
    return {name: logins[name] for name in (roles.web, roles.worker) if logins.get(name)}


def _address(name: str, password: str) -> str:
    """The owner's address with another login."""
    parts = urlsplit(settings.DATABASE_OWNER_URL or "postgres://localhost/recollect")
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{quote(name)}:{quote(password)}@{host}").geturl()
