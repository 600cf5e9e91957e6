"""A server that a person gave: the roles are made there once, and what is in the way comes as one sentence."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from config.stack import StackError
from config.stack.paths import temporary_servers_dir
from config.stack.preflight import addresses, as_worker, migrations_apart, roles_named
from config.stack.servers import EmbeddedPostgres
from config.tests.keep_data import run_all
from core.isolation.checks import problems
from core.isolation.connecting import parameters
from core.isolation.roles import Roles, make_roles
from testing.plugin import NAMES

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def given_server(tmp_path_factory):
    """A server of somebody's, with a superuser and an owner who may make nobody."""
    root = temporary_servers_dir()
    postgres = EmbeddedPostgres(root, log=tmp_path_factory.mktemp("given") / "log", durable=False)
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.stop()
        shutil.rmtree(root)


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "passwords"


@pytest.fixture
def superuser(given_server):
    parts = urlsplit(given_server.superuser_url)
    return parts._replace(path="/recollect").geturl()


def current_user(url):
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT current_user, current_database()").fetchone()


def test_a_superusers_address_alone_makes_a_safe_set_up(superuser, kept):
    roles = Roles("alone")
    made = addresses({"DATABASE_URL": superuser}, roles, kept=kept)
    assert current_user(made["DATABASE_URL"]) == ("alone_web", "recollect")
    assert current_user(made["DATABASE_WORKER_URL"]) == ("alone_worker", "recollect")
    assert made["DATABASE_OWNER_URL"] == superuser
    assert kept.stat().st_mode & 0o777 == 0o600


def test_the_next_start_finds_the_roles_and_their_passwords(superuser, kept):
    roles = Roles("again")
    first = addresses({"DATABASE_URL": superuser}, roles, kept=kept)
    assert addresses({"DATABASE_URL": superuser}, roles, kept=kept) == first


def test_roles_of_another_installation_are_left_alone(superuser, kept, tmp_path):
    roles = Roles("other")
    theirs = addresses({"DATABASE_URL": superuser}, roles, kept=kept)
    with pytest.raises(StackError, match=r"has the role other_web already .* DATABASE_ROLE_PREFIX"):
        addresses({"DATABASE_URL": superuser}, roles, kept=tmp_path / "others-passwords")
    assert current_user(theirs["DATABASE_URL"]) == ("other_web", "recollect")


def test_an_owner_who_may_make_no_roles_is_told_what_to_do(given_server, kept):
    with pytest.raises(StackError, match=r"The role recollect may not make or change new_web.*docs/isolation\.md"):
        addresses({"DATABASE_URL": given_server.owner_url}, Roles("new"), kept=kept)


def test_all_three_addresses_are_taken_as_they_are(given_server, kept):
    assert addresses(given_server.addresses, Roles(), kept=kept) == {}
    assert not kept.exists()


@pytest.mark.parametrize("missing", ["DATABASE_WORKER_URL", "DATABASE_OWNER_URL"])
def test_the_web_roles_address_without_the_others_is_not_enough(given_server, kept, missing):
    given = {name: url for name, url in given_server.addresses.items() if name != missing}
    with pytest.raises(StackError, match=f"DATABASE_URL names the web role, and {missing}"):
        addresses(given, Roles(), kept=kept)


def test_an_address_that_does_not_answer_is_named_by_its_variable(given_server, kept):
    given = given_server.addresses | {"DATABASE_WORKER_URL": "postgres://recollect_worker:x@127.0.0.1:1/recollect"}
    with pytest.raises(StackError, match="The database in DATABASE_WORKER_URL does not answer"):
        addresses(given, Roles(), kept=kept)


def test_a_prefix_that_is_no_name_is_one_sentence():
    with pytest.raises(StackError, match="DATABASE_ROLE_PREFIX is 'Two Words'"):
        roles_named({"DATABASE_ROLE_PREFIX": "Two Words"})


def test_a_worker_is_given_its_two_addresses_and_no_other(given_server):
    environment = as_worker({**given_server.addresses, "SECRET_KEY": "x"})
    assert (environment["DATABASE_URL"], environment["DATABASE_WORKER_URL"]) == (
        given_server.url,
        given_server.worker_url,
    )
    assert environment["SECRET_KEY"] == "x"
    assert environment["DATABASE_OWNER_URL"] == environment["DATABASE_BACKUP_URL"] == ""


def test_many_at_once_make_the_same_roles(superuser):
    roles = Roles("race")

    def make(_):
        with psycopg.connect(superuser, autocommit=True) as server:
            make_roles(server, roles, passwords={roles.web: "same", roles.worker: "same"})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(16)))
    with psycopg.connect(superuser) as server:
        count = server.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'race%'").fetchone()
    # Of the web, the worker, staff, and callers who are bound to a project.
    assert count == (4,)


@pytest.mark.parametrize("might", ["SUPERUSER", "BYPASSRLS", "CREATEROLE"])
def test_a_role_that_is_there_and_may_too_much_is_refused(superuser, might):
    roles = Roles(f"mighty_{might.lower()}")
    with psycopg.connect(superuser, autocommit=True) as server:
        server.execute(f"CREATE ROLE {roles.worker} LOGIN {might}")
        with pytest.raises(
            ImproperlyConfigured, match=f"{roles.worker} may do too much: as a superuser, run ALTER ROLE"
        ):
            make_roles(server, roles, passwords={})


def manage(*commands, **variables):
    """What each of the commands does in one process of such an installation."""
    others = dict.fromkeys(NAMES)
    settings = {"DJANGO_SETTINGS_MODULE": "config.settings.local", "SECRET_KEY": "x", "IGNORE_ENV_FILES": "1"}
    return run_all(commands, others | settings | variables)


@pytest.fixture
def complaints(django_db_blocker, settings):
    """The ids of what `check --database=default` says of the role of an address, without a process for each."""

    def complaints(url, roles):
        settings.DATABASE_ROLES = roles
        other = type(connections["default"])(parameters(url, name=urlsplit(url).path[1:]), "default")
        with django_db_blocker.unblock(), closing(other):
            return {found.id for found in problems(other, roles=(roles.web, roles.worker))}

    return complaints


def test_the_commands_for_a_server_of_ones_own_lead_to_one_that_passes_its_checks(given_server, superuser, complaints):
    with psycopg.connect(superuser, autocommit=True) as server:
        server.execute("CREATE ROLE theirs LOGIN CREATEROLE PASSWORD 'secret'")
        server.execute("CREATE DATABASE theirs OWNER theirs")
    host = urlsplit(superuser)
    owner = host._replace(netloc="theirs:secret@", path="/theirs").geturl()
    common = {"DATABASE_OWNER_URL": owner, "DATABASE_ROLE_PREFIX": "theirs"}

    early, made = manage(["migrate"], ["create_roles"], **common)
    assert "run `manage.py create_roles` first" in early.stderr
    assert made.returncode == 0, made.stderr
    printed = dict(line.split("=", 1) for line in made.stdout.splitlines() if line.startswith("DATABASE_"))
    assert printed.keys() == {"DATABASE_URL", "DATABASE_WORKER_URL"}
    again, migrated = manage(["create_roles"], ["migrate", "--verbosity=0"], **common, **printed)
    assert (again.returncode, "DATABASE_" in again.stdout) == (0, False)
    assert migrated.returncode == 0, migrated.stderr
    web = {"DATABASE_URL": printed["DATABASE_URL"], "DATABASE_ROLE_PREFIX": "theirs"}
    (checked,) = manage(["check", "--database=default"], **web)
    assert checked.returncode == 0, checked.stderr
    roles = Roles("theirs")
    assert complaints(printed["DATABASE_WORKER_URL"], roles) == set()
    assert complaints(owner, roles) == {"core.E002"}
    assert "core.E001" in complaints(host._replace(path="/theirs").geturl(), roles)


def test_data_of_another_version_are_told_by_their_migrations(given_server, superuser):
    settings = {"DATABASE_OWNER_URL": superuser}
    assert migrations_apart(settings) == ([], [])
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("CREATE TABLE django_migrations (app text, name text)")
        try:
            assert migrations_apart(settings) == ([], [])
            for app, name in MigrationLoader(None).disk_migrations:
                connection.execute("INSERT INTO django_migrations VALUES (%s, %s)", [app, name])
            assert migrations_apart(settings) == ([], [])
            connection.execute("DELETE FROM django_migrations WHERE name = '0005_attachments'")
            connection.execute("INSERT INTO django_migrations VALUES ('memory', '9999_later'), ('auth', '9999_other')")
            assert migrations_apart(settings) == (["intake.0005_attachments"], ["memory.9999_later"])
        finally:
            connection.execute("DROP TABLE django_migrations")
