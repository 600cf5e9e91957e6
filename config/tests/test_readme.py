"""Pastes each fenced block of the README, of install and of the API's page, in order, as a newcomer does on a fresh product."""

import re
import signal
import subprocess
import sys
import time

import pytest

from config.stack.paths import BASE_DIR, servers_dir
from config.tests.test_up import begin_with, environment, free_port, stack

pytestmark = pytest.mark.extended

PAGES = ("README.md", "docs/install.md", "docs/api.md")
ADDRESS = "http://127.0.0.1:8000"
# What a machine has and this one may not. `make` is asked what it would run: the product was started by that.
SHELL = """
make() { command make --dry-run "$@" > /dev/null; }
pipx() { [ "$1" = install ] && [ -f "$2/pyproject.toml" ]; }
recollect() {
    if [ "$1" = login ]; then set -- "$@" --token -; echo "$TOKEN" | "$PYTHON" -m recollect_cli "$@"
    else "$PYTHON" -m recollect_cli "$@" < /dev/null; fi
}
"""


def blocks(page, kind):
    return re.findall(rf"^```{kind}\n(.*?)^```$", (BASE_DIR / page).read_text(), re.MULTILINE | re.DOTALL)


def command_of(target):
    """The line with which `make` starts the product, by the Python of these tests."""
    lines = subprocess.run(["make", "--dry-run", *target], cwd=BASE_DIR, capture_output=True, text=True, check=True)
    (line,) = [line for line in lines.stdout.splitlines() if "config.stack up" in line]
    return line.replace("exec .venv/bin/python", sys.executable).split()


@pytest.fixture(scope="module")
def product(begin_migrated, tmp_path_factory):
    """The address of `make up DEMO=1`, and the environment of a shell beside it."""
    folder = tmp_path_factory.mktemp("readme")
    var, port = folder / "var", free_port()
    begin_with(begin_migrated, servers_dir(var))
    settings = environment(var, HOME=str(folder))
    with (folder / "output").open("w") as output:
        command = [word.strip('"') for word in command_of(["up", "DEMO=1", f"PORT={port}"])]
        process = subprocess.Popen(command, cwd=BASE_DIR, env=settings, stdout=output, stderr=output)
    try:
        until = time.monotonic() + 180
        while "at http" not in (folder / "output").read_text():
            assert process.poll() is None and time.monotonic() < until, (folder / "output").read_text()
            time.sleep(0.2)
        (var / "backups").mkdir(exist_ok=True)
        # `manage.py` reads this file by itself, but not in a test, where `.env` of a developer would be read too.
        own = dict(line.split("=", 1) for line in (var / "env").read_text().splitlines())
        yield f"http://127.0.0.1:{port}", settings | own
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        stack("down", var=var)


@pytest.fixture
def paste(product, tmp_path):
    """Runs the blocks in one shell, which stops at the first command that fails. Only addresses and folders are others."""
    address, settings = product
    manage = [sys.executable, "manage.py", "create_token", "demo@example.com", "--scopes", "search", "write", "import"]
    made = subprocess.run(manage, cwd=BASE_DIR, env=settings, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    own = {
        ADDRESS: address,
        ".venv/bin/python": sys.executable,
        "recollect.backup": f"{tmp_path}/recollect.backup",
        "/mnt/usb/recollect": str(tmp_path),
        " var/": f" {settings['RECOLLECT_VAR']}/",
    }

    def run(*pasted):
        script = "\n".join(pasted)
        for written, here in own.items():
            script = script.replace(written, here)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", SHELL + script],
            cwd=BASE_DIR,
            env=settings | {"TOKEN": made.stdout.strip(), "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    return run


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_work_one_after_the_other(paste, page):
    programs = "\n".join(blocks(page, "python"))
    python = [f"\"$PYTHON\" - <<'END'\n{programs}\nEND\n"] if programs else []
    pasted = paste(*blocks(page, "sh"), *python)
    assert pasted.returncode == 0, pasted.stdout + pasted.stderr
    expected = {
        "README.md": "We take the oak worktop, 40 mm thick.",
        "docs/install.md": "Nothing is wrong.",
        "docs/api.md": "The boiler is serviced each October.",
    }
    assert expected[page] in pasted.stdout


def test_a_command_that_is_broken_fails_its_page(paste):
    page = blocks("README.md", "sh")
    assert "recollect search" in page[1]
    assert paste(page[0].replace("make up", "make uup")).returncode != 0
    assert paste(page[1].replace("recollect search", "recollect serach")).returncode != 0


def test_the_only_administrator_changes_a_forgotten_password_on_the_machine(paste):
    line = ".venv/bin/python manage.py changepassword you@example.com"
    assert f"`{line}`" in (BASE_DIR / "docs/operations.md").read_text()
    typed = "printf 'A-long-new-passphrase-7\\nA-long-new-passphrase-7\\n' | "
    done = paste(typed + line.replace("you@", "demo@"))
    assert "Password changed successfully" in done.stdout, done.stderr


def test_each_kind_of_block_that_begins_with_a_command_is_pasted():
    kinds = {kind for page in PAGES for kind in re.findall(r"^```(\w+)$", (BASE_DIR / page).read_text(), re.MULTILINE)}
    assert kinds == {"sh", "python", "caddyfile", "nginx", "yaml"}
