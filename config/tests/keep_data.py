"""`python -m config.tests.keep_data NAME`: keeps a small database and a backup of this version as test data.

Run it for each release, with its date as the name. `config/tests/test_kept_data.py` migrates and restores them all.
"""

import json
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from config.ops.backup import program
from config.stack.paths import BASE_DIR
from testing.servers import ThrowawayServers

FOLDER = Path(__file__).with_name("kept")
# One row of each kind that people write; nothing is embedded.
FILL = """

from intake.models import User
from intake.tests.factories import a_turn
person = User.objects.create_user("first@example.com", "kept-data-of-a-test")
a_turn(person, "The blue kettle stands in the shed", "I keep that in mind.")
"""

# Each command as `manage.py` runs it, in one process: starting one takes longer than most of them.
SEVERAL = """
import contextlib, io, json, sys
from django.core.management import ManagementUtility
done = []
for command in json.loads(sys.argv[1]):
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            ManagementUtility(["manage.py", *command]).execute()
        except SystemExit as ended:
            status = ended.code or 0
    done.append({"returncode": status, "stdout": out.getvalue(), "stderr": err.getvalue()})
print(json.dumps(done))
"""


def main(name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    servers = ThrowawayServers()
    try:
        manage(servers, "migrate", "--verbosity=0")
        manage(servers, "shell", "--no-imports", "-c", FILL)
        with tempfile.TemporaryDirectory() as folder:
            backup, dump = Path(folder) / f"{name}.backup", Path(folder) / f"{name}.dump"
            manage(servers, "backup", str(backup))
            command = [program("pg_dump"), "--format=custom", "--compress=0", "--no-owner", "--extension=plpgsql"]
            subprocess.run([*command, f"--file={dump}", servers.urls["DATABASE_BACKUP_URL"]], check=True)
            for path in (backup, dump):
                (FOLDER / f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes(), preset=9))
    finally:
        servers.stop()


def manage(servers: ThrowawayServers, *arguments: str) -> None:
    """A command of the product on these servers; raises RuntimeError with what it wrote."""
    manage_all(servers, arguments)


def manage_all(servers: ThrowawayServers, *commands: Sequence[str]) -> None:
    """Several; the error is of the first that failed."""
    own = {name: url for name, url in servers.urls.items() if name != "SUPERUSER_URL"}
    # The factories of tests write as a role that sees every row.
    environment = {"DJANGO_SETTINGS_MODULE": "config.settings.test", "IGNORE_ENV_FILES": "1", **own}
    for command, done in zip(commands, run_all(commands, environment), strict=True):
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout}{done.stderr}")


def run_all(commands: Sequence[Sequence[str]], environment: Mapping[str, str | None]) -> list[SimpleNamespace]:
    """The status of each command, and what it wrote. Raises CalledProcessError if the process itself fails.

    A variable without a value is none of the process's, even if it is one of this process.
    """
    ran = subprocess.run(
        [sys.executable, "-c", SEVERAL, json.dumps(commands)],
        cwd=BASE_DIR,
        env={name: value for name, value in {**os.environ, **environment}.items() if value is not None},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [SimpleNamespace(**done) for done in json.loads(ran.stdout)]


if __name__ == "__main__":
    main(sys.argv[1])
