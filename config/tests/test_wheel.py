"""The wheel of the server: built without the network, installed into an empty environment, and started from an empty folder."""

import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest

from config import VERSION
from config.ops.wheel import build
from config.stack.paths import BASE_DIR
from config.tests.test_up import environment, free_port
from recollect_cli import serving
from recollect_cli.client import Failure

# `docker build` copies these, and nothing else that is not among them.
IMAGE = {line[1:] for line in (BASE_DIR / ".dockerignore").read_text().split() if line.startswith("!")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def test_the_wheel_has_what_the_image_has_and_no_tests(wheel):
    names = names_in(wheel)
    assert wheel.name == f"recollect_server-{VERSION}-py3-none-any.whl"
    inside = {name.split("/")[1] for name in names if name.startswith("recollect_server/")}
    # The command line is a package of its own in the wheel.
    assert inside == (IMAGE | {"LICENSE"}) - {"**", "recollect_cli"}
    for needed in (
        "intake/migrations/0001_people_conversations_turns.py",
        "core/isolation/migrations.sha256",
        "intake/templates/intake/base.html",
        "intake/static/intake/chat.js",
        "locale/de/LC_MESSAGES/django.mo",
        "requirements/local.txt",
    ):
        assert f"recollect_server/{needed}" in names
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc") or ".env" in name]
    # Nothing is put beside the packages of others but these.
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"recollect_cli", "recollect_server"}


def test_two_wheels_of_one_version_are_equal_byte_for_byte(wheel, tmp_path):
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_command_line_alone_says_where_the_server_is(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "HERE", tmp_path / "recollect_cli")
    monkeypatch.setattr(serving, "IN_WHEEL", tmp_path / "recollect_server")
    with pytest.raises(Failure, match="the command line alone"):
        serving.project_folder()
    assert serving.running_at() == ""


def test_missing_packages_are_named_in_a_repository_and_need_uv_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    with pytest.raises(Failure, match="run `make up`"):
        serving.python_of(tmp_path, tmp_path)
    monkeypatch.setattr(serving, "IN_WHEEL", tmp_path)
    monkeypatch.setattr(serving.shutil, "which", lambda name: None)
    with pytest.raises(Failure, match="pip install uv"):
        serving.python_of(tmp_path, tmp_path)


def test_data_lie_where_programs_of_a_user_keep_them(monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    of_wheel = serving.IN_WHEEL
    assert serving.data_folder(of_wheel, {}) == Path("/home/alice/.local/share/recollect")
    assert serving.data_folder(of_wheel, {"XDG_DATA_HOME": "/data"}) == Path("/data/recollect")
    assert serving.data_folder(of_wheel, {"XDG_DATA_HOME": "data"}) == Path("/home/alice/.local/share/recollect")
    assert serving.data_folder(of_wheel, {"RECOLLECT_VAR": "~/var"}) == Path("/home/alice/var")
    assert serving.data_folder(BASE_DIR, {}) == BASE_DIR / "var"


def backup_url(data):
    """The running product's own; the environment of a test names another."""
    return dict(line.split("=", 1) for line in (data / "env").read_text().splitlines())["DATABASE_BACKUP_URL"]


def assert_commands_run(recollect, data, folder):
    """Those of manage.py, with a file in the present folder; not those that need the tests of a repository."""
    measured = recollect("manage", "run_evals")
    assert (measured.returncode, "only a copy of the repository has" in measured.stderr) == (1, True)
    of_product = {"IGNORE_ENV_FILES": "", "DATABASE_BACKUP_URL": backup_url(data)}
    saved = recollect("manage", "backup", "kept.backup", **of_product)
    assert saved.returncode == 0, saved.stderr
    verified = recollect("manage", "verify_backup", "kept.backup", "--file-only", **of_product)
    assert verified.stdout.startswith("Whole: ")
    (folder / "kept.backup").unlink()


@pytest.mark.extended
def test_the_wheel_starts_from_an_empty_folder_and_shows_its_home_page(wheel, tmp_path):
    folder, data, port = tmp_path / "environment", tmp_path / "share" / "recollect", str(free_port())
    # Its own packages come from the present environment: no test needs the network.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    show = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.check_output([folder / "bin/python", "-c", show], text=True).strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "present.pth").write_text(sysconfig.get_path("purelib"))
    own = environment(data, XDG_DATA_HOME=str(data.parent))
    del own["RECOLLECT_VAR"]
    empty = tmp_path / "empty"
    empty.mkdir()

    def recollect(*arguments, **others):
        command = [folder / "bin/python", "-m", "recollect_cli", *arguments]
        settings = own | others
        return subprocess.run(
            command, cwd=empty, env=settings, capture_output=True, text=True, check=False, timeout=240
        )

    command = [folder / "bin/python", "-m", "recollect_cli", "up", "--port", port]
    running = subprocess.Popen(command, cwd=empty, env=own, stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in running.stdout:
            lines.append(line)
            if "Recollect answers at" in line:
                break
        assert f"http://localhost:{port}" in "".join(lines[-1:])
        assert "`recollect down` stops it" in lines[-1]
        with urlopen(f"http://localhost:{port}/") as page:
            assert "<title>" in page.read().decode()
        style = re.search(r'href="(/static/[^"]+\.css)"', urlopen(f"http://localhost:{port}/").read().decode())[1]
        with urlopen(f"http://localhost:{port}{style}") as sheet:
            assert sheet.status == 200
        assert f"runs at http://127.0.0.1:{port}" in recollect("status").stdout
        assert f"recollect {VERSION}" in recollect("--version").stdout
        assert_commands_run(recollect, data, empty)
        stopped = recollect("down")
        assert (stopped.returncode, stopped.stdout) == (0, "Stopped.\n")
        assert running.wait(timeout=60) == 0
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
            running.wait(timeout=60)
        running.stdout.close()
        # Root's servers are outside of the folder.
        shutil.rmtree((data / "data-folder").read_text().strip(), ignore_errors=True)
    assert (data / "env").exists()
    assert list(empty.iterdir()) == []
    assert list(data.parent.iterdir()) == [data]
