"""`python -m config.tests.keep_data NAME`: keeps a small database and a backup of this version as test data.

Run it for each release, with its date as the name. `config/tests/test_kept_data.py` migrates and restores them all.
"""

import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

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


def manage(servers: ThrowawayServers, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command of the product on these servers; raises CalledProcessError with what it said."""
    own = {name: url for name, url in servers.urls.items() if name != "SUPERUSER_URL"}
    # The factories of tests write as a role that sees every row.
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings.test", "IGNORE_ENV_FILES": "1", **own}
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments[0]} failed: {done.stdout}{done.stderr}")
    return done


if __name__ == "__main__":
    main(sys.argv[1])
