"""`make up` and `make down` from outside: what is in the way comes as one sentence, and nothing is left running."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from urllib.request import urlopen

import psutil
import psycopg
import pytest
from django.db import OperationalError
from psycopg.errors import DiskFull

import manage
from config.stack import StackError
from config.stack.__main__ import _port, down, up
from config.stack.paths import BASE_DIR, choose_account, make_private, servers_dir
from config.stack.preflight import check_broker, check_database, check_port
from config.stack.processes import MARK, LogReader, Program, Watch, find_marked, find_servers
from config.stack.supervisor import Address, RunPaths, Supervisor
from testing.plugin import NAMES

pytestmark = pytest.mark.extended

STACK = [sys.executable, "-m", "config.stack"]


@pytest.fixture
def var(tmp_path):
    folder = tmp_path / "var"
    yield folder
    shutil.rmtree(servers_dir(folder), ignore_errors=True)


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def environment(var, **others):
    """With the smaller model and no reranker, so that a start loads little that no test asks."""
    inherited = {name: value for name, value in os.environ.items() if name not in NAMES}
    models = {
        "MODEL_CACHE_DIR": str(BASE_DIR / "var" / "models"),
        "DJANGO_SETTINGS_MODULE": "config.settings.local",
        "EMBEDDING_LANGUAGES": "english",
        "RERANK_SECONDS": "0",
    }
    return inherited | models | {"RECOLLECT_VAR": str(var)} | others


def stack(*arguments, var, **others):
    command = [*STACK, *arguments]
    settings = environment(var, **others)
    return subprocess.run(command, cwd=BASE_DIR, env=settings, capture_output=True, text=True, check=False, timeout=200)


def begin_with(migrated, data):
    """Have `up` begin with the stopped servers in a folder, in half of the time that it takes to make new ones.

    test_wheel.py makes new ones.
    """
    make_private(data, choose_account())
    # With its owners and modes, which the servers require.
    subprocess.run(["cp", "-a", f"{migrated}/.", data], check=True)


def listeners(port):
    """The processes that take connections at a port."""
    return [each.pid for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.port == port]


def assert_one_sentence(result, text):
    assert result.returncode == 1
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1", "http://localhost:8000"),
        ("localhost", "http://localhost:8000"),
        ("::1", "http://localhost:8000"),
        ("0.0.0.0", "http://localhost:8000"),
        ("192.0.2.1", "http://192.0.2.1:8000"),
    ],
)
def test_the_address_that_is_shown_has_the_name_that_passkeys_need(host, shown):
    assert Address(host, 8000).for_a_browser == shown


# Of what is in the way before anything starts, a database is tried from outside; test_stack_failures.py tries a port that
# is taken and one that is none.


def test_a_taken_port_is_named(taken_port):
    with pytest.raises(StackError, match=f"^Port {taken_port} is taken: stop what uses it, or choose another"):
        check_port("127.0.0.1", taken_port)


@pytest.mark.parametrize("port", ["0", "65536", "-1x", "http"])
def test_a_number_that_is_no_port_is_refused(port):
    with pytest.raises(StackError, match=f"^{port} is not a port"):
        _port(port)


def test_the_first_and_the_last_port_are_taken():
    assert [_port("1"), _port("65535")] == [1, 65535]


def test_a_number_of_web_processes_that_is_none_is_refused(var, monkeypatch):
    monkeypatch.setenv("WEB_PROCESSES", "two")
    with pytest.raises(StackError, match=r"^WEB_PROCESSES=two is not a number of processes"):
        Supervisor(RunPaths(var), Address("127.0.0.1", 8000)).start(demo=False)
    assert not var.exists()


def test_a_host_of_another_machine_is_refused():
    with pytest.raises(StackError, match="is not an address of this machine"):
        check_port("192.0.2.1", 8000)


def test_a_folder_that_cannot_be_made_is_named(monkeypatch):
    monkeypatch.setenv("RECOLLECT_VAR", "/dev/null/var")
    with pytest.raises(StackError, match=r"^/dev/null/var/run cannot be made"):
        up(Address("127.0.0.1", 8000), demo=False)


def test_a_database_that_does_not_answer_is_named(var):
    url = f"postgres://someone:secret@127.0.0.1:{free_port()}/none"
    result = stack("up", "--port", str(free_port()), var=var, DATABASE_URL=url)
    assert_one_sentence(result, "The database in DATABASE_URL does not answer")
    assert "secret" not in result.stderr


def test_another_kind_of_database_is_refused():
    with pytest.raises(StackError, match="does not name a PostgreSQL database"):
        check_database("mysql://someone@localhost/none")


def test_a_database_without_pgvector_is_named():
    url = os.environ["DATABASE_OWNER_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bare TEMPLATE template0")
    try:
        with pytest.raises(StackError, match="has no pgvector: install it"):
            check_database(url.replace("/recollect?", "/bare?"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP DATABASE bare")


def test_a_database_with_pgvector_passes():
    check_database(os.environ["DATABASE_OWNER_URL"])


def test_a_broker_that_does_not_answer_is_named():
    with pytest.raises(StackError, match="The broker in REDIS_URL does not answer"):
        check_broker(f"redis://127.0.0.1:{free_port()}/0")


def test_stopping_what_does_not_run_says_so(var, monkeypatch, capsys):
    monkeypatch.setenv("RECOLLECT_VAR", str(var))
    down()
    assert capsys.readouterr().out == "Nothing is running.\n"


def test_a_marked_process_is_found_and_no_other(var):
    command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {MARK: str(var)}) as ours,
        subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {MARK: f"{var}-other"}) as other,
    ):
        assert [process.pid for process in find_marked(var)] == [ours.pid]
        for process in (ours, other):
            process.kill()


def test_a_program_that_ends_is_started_again_and_later_each_time(tmp_path):
    program = Program("brief", ["timeit", "-n1", "-r1", "pass"], environment=dict(os.environ), log=tmp_path / "log")
    watch = Watch(program)
    watch.start()
    program._process.wait()
    assert watch.tend() == "brief ended and is started again."
    assert watch.tend() == ""
    program._process.wait()
    assert watch.tend() == "brief ended and is started again in 1 s."
    program.stop()


def test_errors_in_a_log_are_shown_once(tmp_path):
    reader = LogReader(tmp_path / "log")
    assert reader.new_errors() == []
    lines = "2026-01-01 00:00:00,0 INFO web: fine\n" + "2026-01-01 00:00:0{},0 ERROR web: away\n" * 2
    (tmp_path / "log").write_text(lines.format(1, 2) + "2026-01-01 00:00:03,0 ERROR web: half a li")
    assert reader.new_errors() == ["ERROR web: away"]
    assert reader.new_errors() == []


@pytest.mark.medium
def test_everything_starts_once_with_two_web_processes_and_nothing_is_left_even_by_a_kill(
    begin_migrated, var, tmp_path
):
    begin_with(begin_migrated, servers_dir(var))
    port = free_port()
    output = tmp_path / "output"
    with output.open("w") as file:
        first = subprocess.Popen(
            [*STACK, "up", "--port", str(port)],
            cwd=BASE_DIR,
            env=environment(var, WEB_PROCESSES="2", REGISTRATION="invite"),
            stdout=file,
            stderr=file,
        )
    try:
        while not (var / "run" / "lock").exists() or not (var / "run" / "lock").read_text():
            time.sleep(0.05)
        second = stack("up", "--port", str(free_port()), var=var)
        assert f"already running at http://127.0.0.1:{port}" in second.stdout, output.read_text()
        assert second.returncode == 0
        assert urlopen(f"http://127.0.0.1:{port}/healthz").status == 200
        while len(set(listeners(port))) < 2:
            time.sleep(0.05)
        assert urlopen(f"http://127.0.0.1:{port}/healthz").status == 200
        assert "manage.py createsuperuser` creates the first account" in output.read_text()
        assert (var / "env").stat().st_mode & 0o777 == 0o600
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert find_marked(var)
        assert stack("down", var=var).stdout == "Stopped.\n"
    finally:
        first.kill()
        first.wait()
        stack("down", var=var)
    assert find_marked(var) == []
    assert find_servers("postgres", servers_dir(var) / "data") == []
    assert find_servers("valkey-server", servers_dir(var) / "broker") == []


@pytest.fixture
def installing(tmp_path):
    """A project whose `uv` only notes that it was called."""
    shutil.copytree(BASE_DIR / "requirements", tmp_path / "requirements")
    uv = tmp_path / ".venv" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    uv.write_text('#!/bin/sh\necho "$@" >> calls\n')
    uv.chmod(0o755)
    version = f"{sys.version_info[0]} {sys.version_info[1]}"
    (tmp_path / ".venv" / "made-for").write_text(f"{version} {tmp_path}\n")

    def install(lock):
        command = [tmp_path / "requirements" / "install.sh", sys.executable, lock]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        calls = tmp_path / "calls"
        return len(calls.read_text().splitlines()) if calls.exists() else 0

    return install


def test_a_lock_is_installed_once(installing, tmp_path):
    assert [installing("local") for _ in range(2)] == [1, 1]
    with (tmp_path / "requirements" / "local.txt").open("a") as lock:
        lock.write("# changed\n")
    assert installing("local") == 2


def test_what_development_needs_holds_what_the_product_needs(installing):
    assert installing("dev") == 1
    assert installing("local") == 1


def test_an_interrupted_installation_is_done_again(installing, tmp_path):
    (tmp_path / ".venv" / "bin" / "uv").write_text("#!/bin/sh\nexit 1\n")
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            installing("local")


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
def test_a_python_that_is_too_old_is_named():
    command = ["make", "install", "PYTHON=/bin/false"]
    result = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)
    assert "Python 3.11 or newer is needed and /bin/false is not: install it, or name it" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_command_without_a_running_database_ends_in_a_sentence(var):
    # Without the checks, which would import everything there is.
    command = [sys.executable, "manage.py", "migrate", "--skip-checks"]
    nowhere = f"postgres://someone@127.0.0.1:{free_port()}/none"
    settings = environment(var, DATABASE_URL=nowhere, SECRET_KEY="x")
    result = subprocess.run(command, cwd=BASE_DIR, env=settings, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    # The pool may log a failure later than that.
    assert re.search("^The database does not answer .*: start it with `make up`", result.stderr, re.MULTILINE)
    assert "Traceback" not in result.stderr


def test_a_command_on_a_full_disk_says_so_and_advises_no_start(monkeypatch):
    def fill():
        raise OperationalError("could not extend file") from DiskFull()

    monkeypatch.setattr(manage, "_execute", fill)
    monkeypatch.setattr(manage.gc, "disable", lambda: None)
    monkeypatch.setattr(sys, "argv", ["manage.py", "backup", "-"])
    with pytest.raises(SystemExit, match=r"^The disk of the database is full: make room on it\.$"):
        manage.main()
