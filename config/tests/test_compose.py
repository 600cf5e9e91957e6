"""The containers of docker-compose.yml: with no right that they do not need, and with their own secrets alone, as files."""

import os
import plistlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.conf import settings
from django.db import connection

from config.settings.table import SecretFiles
from config.stack.servers import MAJOR_VERSION
from config.tests.test_headers import in_production
from core.logs import SILENT

ROOT = Path(settings.BASE_DIR)


class ComposeLoader(yaml.SafeLoader):
    """Compose's own tag takes away what another file says."""


ComposeLoader.add_constructor("!reset", lambda loader, node: None)


def read(name):
    return yaml.load((ROOT / name).read_text(), ComposeLoader)  # a safe loader with one more tag


ALONE, SCALE = read("docker-compose.yml"), read("docker-compose.scale.yml")
# Those that a file describes whole; the other file only adds to some.
WHOLE = [
    pytest.param(service, id=name)
    for file in (ALONE, SCALE)
    for name, service in file["services"].items()
    if "image" in service or "build" in service
]
OURS = ["migrate", "backups", "web", "worker"]


@pytest.mark.parametrize("service", WHOLE)
def test_a_container_writes_to_its_volumes_and_tmp_alone_and_gains_no_rights(service):
    assert service["read_only"] is True
    assert "/tmp" in service["tmpfs"]  # the container's own
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["pids_limit"] and service["mem_limit"]


@pytest.mark.parametrize("service", WHOLE)
def test_a_container_that_goes_on_is_asked_whether_it_works(service):
    assert ("healthcheck" in service) is (service["restart"] != "no")


@pytest.mark.parametrize("name", OURS)
def test_the_application_gets_no_capability_and_every_setting_that_is_in_env(name):
    service = ALONE["services"][name]
    assert "cap_add" not in service
    assert {"path": ".env", "required": False} in service["env_file"]
    # An address in .env, for `make up`, is not theirs.
    for role in ("DATABASE_WORKER_URL", "DATABASE_OWNER_URL", "DATABASE_BACKUP_URL"):
        assert service["environment"][role] == ""


def test_the_container_runs_the_postgresql_of_make_up_and_keeps_its_data():
    database = ALONE["services"]["postgres"]
    assert database["image"].endswith(f"-pg{MAJOR_VERSION}")
    # The image of 18 refuses a volume at /var/lib/postgresql/data, where earlier ones had theirs.
    assert "postgres:/var/lib/postgresql" in database["volumes"]


@pytest.mark.parametrize("file", [ALONE, SCALE])
def test_secrets_are_files_and_never_in_the_environment(file):
    said = yaml.dump(file["services"])
    assert not re.search(r"\$\{[A-Z_]*(PASSWORD|KEY|TOKEN)", said)
    for service in file["services"].values():
        for name, value in service.get("environment", {}).items():
            assert name.endswith("_FILE") or not re.search("PASSWORD|KEY", name), name
            assert not re.search(r"://[^@/]+:[^@/]+@", str(value)), name


def test_each_container_gets_the_passwords_of_its_own_role_alone():
    secrets = {name: set(service.get("secrets", ())) for name, service in ALONE["services"].items()}
    assert secrets["web"] == {"secret_key", "database_password"}
    assert secrets["backups"] == {"secret_key", "database_password", "database_backup_password"}
    assert secrets["worker"] == {"secret_key", "database_password", "database_worker_password"}
    assert "postgres_password" not in set.union(*(secrets[name] for name in OURS))
    for name in OURS:
        named = {Path(value).name for key, value in ALONE["services"][name]["environment"].items() if "_FILE" in key}
        assert named <= secrets[name]


def test_the_split_by_queues_leaves_no_queue_and_takes_none_twice(settings):
    workers = {name: SCALE["services"][name] for name in ("worker", "housekeeper", "importer")}
    taken = [queue for each in workers.values() for queue in each["environment"]["QUEUES"].split(",")]
    assert sorted(taken) == sorted(ALONE["services"]["worker"]["environment"]["QUEUES"].split(","))
    assert {route["queue"] for route in settings.CELERY_TASK_ROUTES.values()} | {"celery"} == {*taken}


@pytest.mark.django_db
def test_the_database_of_compose_logs_no_word_of_a_person():
    said = (ROOT / "deploy/make-database.sh").read_text()
    with connection.cursor() as cursor:
        for name, (allowed, value) in SILENT.items():
            cursor.execute("SELECT boot_val FROM pg_settings WHERE name = %s", [name])
            assert cursor.fetchone()[0] in allowed or f"SET {name} = {value};" in said.replace("'", ""), name


def test_one_command_makes_every_secret_and_keeps_those_that_exist(tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/postgres_password").write_text("kept")
    subprocess.run([ROOT / "deploy/make-secrets.sh", tmp_path], check=True)

    made = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert set(made) == {Path(each["file"]).name for each in ALONE["secrets"].values()}
    assert made.pop("postgres_password") == "kept"
    assert all(re.fullmatch("[A-Za-z0-9]{50}", value) for value in made.values())
    assert len(set(made.values())) == len(made)
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "secrets").iterdir()} == {0o444}


def test_secrets_are_neither_committed_nor_built_into_the_image():
    assert "secrets/" in (ROOT / ".gitignore").read_text().split()
    assert "secrets" not in COPIED


COPIED = re.findall("!(.+)", (ROOT / ".dockerignore").read_text())
# Commands that measure and test are for a folder with everything in it.
IMPORTS_ALL = """
import importlib, pkgutil
import django
django.setup()
for app in ("core", "intake", "memory", "imports", "agent_tools", "chat", "config"):
    for module in pkgutil.walk_packages([app], f"{app}."):
        if ".tests" not in module.name and ".settings" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""


@pytest.mark.medium
def test_the_image_has_every_module_that_its_programs_import(tmp_path):
    for name in COPIED:
        (tmp_path / name).symlink_to(ROOT / name)
    subprocess.run([sys.executable, "-c", IMPORTS_ALL], cwd=tmp_path, check=True)


@pytest.mark.medium
def test_the_image_of_one_container_is_no_default_and_every_program_in_it_exists():
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]
    assert [stage.partition("\n")[0].rpartition(" ")[2] for stage in stages] == ["base", "single", "server"]
    assert all("USER recollect" in stage for stage in stages[1:])
    for command in ("up", "status"):
        assert f'"config.stack", "{command}"' in stages[1]
        program = ("config.stack", command, "--help")
        shown = subprocess.run([sys.executable, "-m", *program], cwd=ROOT, check=False)
        assert shown.returncode == 0


def as_compose_runs(service, tmp_path, *command):
    """The command in the environment of a service, with what the head of .env.example asks for and no more."""
    example = (ROOT / ".env.example").read_text()
    wanted = re.search(r"Compose needs (\w+)\s+# and (\w+)", example).groups()
    given = {name: re.search(rf"^#{name}=(.*)$", example, re.MULTILINE)[1] for name in wanted}
    environment = given | {
        name: re.sub(r"\$\{(\w+):-\}", lambda found: given.get(found[1], ""), value)
        for name, value in ALONE["services"][service]["environment"].items()
    }
    for name in ALONE["secrets"]:
        (tmp_path / name).write_text("only-for-this-test-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJ")

    def here(text):
        # Its secrets and its server: nobody listens there.
        return text.replace("/run/secrets", str(tmp_path)).replace("postgres:5432", "127.0.0.1:1").replace("$$", "$")

    own = {"DJANGO_SETTINGS_MODULE": "config.settings.production", "IGNORE_ENV_FILES": "1", "RECOLLECT_VAR": tmp_path}
    return subprocess.run(
        [here(part).replace("python ", f"{sys.executable} ") for part in command],
        env={"PATH": os.environ["PATH"], **{name: here(value) for name, value in environment.items()}, **own},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.medium
@pytest.mark.parametrize("service", ["web", "worker"])
def test_what_the_example_asks_for_is_all_that_a_service_needs(service, tmp_path):
    checked = as_compose_runs(service, tmp_path, "sh", "-c", "python manage.py check --deploy --fail-level WARNING")
    assert (checked.returncode, "no issues" in checked.stdout) == (0, True), checked.stderr


@pytest.mark.medium
def test_what_the_example_asks_for_brings_the_migration_to_its_database(tmp_path):
    ran = as_compose_runs("migrate", tmp_path, *ALONE["services"]["migrate"]["command"])
    assert "SystemCheckError" not in ran.stderr and "Connection refused" in ran.stderr, ran.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_the_unit_of_systemd_is_sound_and_gives_few_rights(tmp_path):
    unit = tmp_path / "recollect.service"
    # The program need not be installed here.
    unit.write_text(
        (ROOT / "deploy/recollect.service").read_text().replace("/opt/recollect/bin/recollect", "/bin/true")
    )
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    # 2.0 of 10, where 0 is nothing at all.
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit]
    rated = subprocess.run(command, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout


def test_the_agent_of_launchd_starts_the_same_command():
    agent = plistlib.loads((ROOT / "deploy/recollect.plist").read_bytes())
    assert agent["ProgramArguments"][1:] == ["up"]
    assert "ExecStart=/opt/recollect/bin/recollect up\n" in (ROOT / "deploy/recollect.service").read_text()


def test_a_setting_may_stand_in_a_file(tmp_path):
    (tmp_path / "key").write_text("from the file\n")
    values = SecretFiles({"SECRET_KEY_FILE": str(tmp_path / "key"), "SECRET_KEY": "not this", "OTHER": "as it is"})
    assert values["SECRET_KEY"] == "from the file"
    assert values["OTHER"] == "as it is"


def test_the_password_of_the_database_may_stand_in_a_file(tmp_path):
    (tmp_path / "password").write_text("a password\n")
    show = "from django.conf import settings as s; print([d['PASSWORD'] for d in s.DATABASES.values()])"
    address = "postgres://recollect_web@db/recollect"
    done = in_production("-c", show, DATABASE_PASSWORD_FILE=str(tmp_path / "password"), DATABASE_URL=address)
    assert done.stdout.strip() == "['a password']", done.stderr
