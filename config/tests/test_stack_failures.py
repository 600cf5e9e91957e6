"""What `make up` does when something around it fails: a full disk, a second copy, a clock, another user's folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import psycopg
import pytest
from django.core.management import CommandError, call_command

from config.serving import _listen
from config.stack import RUN, StackError, paths
from config.stack.paths import BASE_DIR, refuse_another_data_folder, remember_data_folder, servers_dir
from config.stack.preflight import check_port
from config.stack.processes import LogReader, Watch, find_marked, find_servers
from config.stack.supervisor import Address, HealthAnswer, Listening, RunPaths, Supervisor, ask
from config.tests.test_up import assert_one_sentence, begin_with, environment, free_port, stack

pytestmark = pytest.mark.extended

ROOT = os.geteuid() == 0
MOUNTED = 400
# Less than a start asks for.
TINY = 1
# With two signals: from the first on a web process is started again soon, and from the second on as late as usual.
SUPERVISOR = """
import signal
from config.stack import supervisor
from config.stack.__main__ import main
usual = supervisor.ASK_SECONDS, supervisor.HANGS_SECONDS
def wait(number, frame):
    supervisor.ASK_SECONDS, supervisor.HANGS_SECONDS = (1, 1) if number == signal.SIGUSR1 else usual
signal.signal(signal.SIGUSR1, wait)
signal.signal(signal.SIGUSR2, wait)
main()
"""


@contextmanager
def small_disk(megabytes):
    """A disk of its own, which the servers' account can enter. Yields None where none can be mounted."""
    folder = Path("/tmp") / f"recollect-test-disk-{os.getpid()}-{megabytes}"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder]
    if not ROOT or subprocess.run(command, capture_output=True, check=False).returncode:
        folder.rmdir()
        yield None
        return
    folder.chmod(0o755)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)
    folder.rmdir()


NO_DISK = "a disk of its own needs root's rights"


@contextmanager
def running(var, output, **others):
    """Yields the process that supervises the others, and its address."""
    port = free_port()
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, "up", "--port", str(port)],
            cwd=BASE_DIR,
            # The smaller of the built-in models.
            env=environment(var, **others),
            stdout=file,
            stderr=file,
        )
    try:
        wait_until(lambda: "answers at" in output.read_text() or process.poll() is not None, 200)
        assert process.poll() is None, output.read_text()
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        stack("down", var=var)


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def fill(disk):
    with suppress_full(), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**20))


@contextmanager
def suppress_full():
    try:
        yield
    except OSError as error:
        assert error.strerror == "No space left on device"


def status(address, **headers):
    try:
        with urlopen(Request(address, headers=headers), timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        # Between two processes.
        return 0, str(error)


def superuser(folder):
    """A connection as the superuser of an embedded server."""
    passwords = dict(line.split() for line in (folder / "postgres-passwords").read_text().splitlines())
    socket = paths.socket_dir(folder)
    return psycopg.connect(
        host=str(socket), user="postgres", password=passwords["postgres"], dbname="recollect", autocommit=True
    )


def need_another_file_of_the_log(connection):
    """Write until PostgreSQL has to make a file of its write-ahead log, and stops for want of room."""
    for _ in range(400):
        # Into the log alone: a table that cannot grow only fails its own transaction.
        connection.execute("SELECT pg_logical_emit_message(true, 'test', repeat('x', 1000000))")


@dataclass
class Product:
    """What `make up` has started, its data on a small disk if there can be one."""

    var: Path
    data: Path
    disk: Path | None
    output: Path
    supervisor: subprocess.Popen
    address: str
    said_at_start: str

    @property
    def text(self):
        return self.output.read_text()

    @property
    def web(self):
        (web,) = [each for each in find_marked(self.var) if "config.serving" in each.cmdline()]
        return web


@pytest.fixture(scope="module")
def product(begin_migrated, tmp_path_factory):
    """One for the tests below, each of which leaves it whole. Its broker could not start when everything else did."""
    folder = tmp_path_factory.mktemp("product")
    var, output = folder / "var", folder / "output"
    with small_disk(MOUNTED) as disk:
        var.mkdir()
        if disk:
            (var / "data-folder").write_text(f"{disk / 'servers'}\n")
        data = servers_dir(var)
        begin_with(begin_migrated, data)
        broker = data / "broker"
        shutil.rmtree(broker, ignore_errors=True)
        broker.mkdir()
        broker.chmod(0o755)
        try:
            with running(var, output) as (supervisor, address):
                said = output.read_text()
                broker.rmdir()
                yield Product(var, data, disk, output, supervisor, address, said)
        finally:
            shutil.rmtree(data, ignore_errors=True)


def test_a_full_disk_is_said_and_everything_returns_with_room_on_it(product):
    if not (disk := product.disk):
        pytest.skip(NO_DISK)
    web, address, before = product.web, product.address, len(product.text)
    # On a full disk PostgreSQL accepts no new connection.
    with superuser(product.data) as connection:
        fill(disk)
        with pytest.raises(psycopg.OperationalError):
            need_another_file_of_the_log(connection)
    wait_until(lambda: "postgres cannot start and is tried again: The disk is full" in product.text, 60)
    code, page = status(f"{address}/login/", Cookie="sessionid=abcdefgh12345678")
    assert (code, "The disk is full" in page) == (503, True), page
    code, problem = status(f"{address}/api/v1/conversations/", Cookie="sessionid=abcdefgh12345678")
    assert (code, json.loads(problem)["code"]) == (503, "unavailable")
    assert "The disk is full" in json.loads(problem)["detail"]
    assert web.is_running() and status(f"{address}/healthz")[0] == 503
    (disk / "filler").unlink()
    wait_until(lambda: status(f"{address}/healthz")[0] == 200, 90)
    assert web.is_running()
    text = product.text[before:]
    assert text.count("postgres cannot start") == 1
    assert "Traceback" not in text


def test_on_a_full_disk_starting_and_stopping_end_in_a_sentence(tmp_path):
    with small_disk(TINY) as disk:
        if not disk:
            pytest.skip(NO_DISK)
        var = disk / "var"
        (var / "run").mkdir(parents=True, mode=0o700)
        (var / "run" / "lock").touch()
        (disk / "filler").touch()
        fill(disk)
        assert_one_sentence(stack("up", "--port", str(free_port()), var=var), "The disk is full: ")
        stopped = stack("down", var=var)
        assert stopped.returncode == 0 and "The disk is full: " in stopped.stdout and not stopped.stderr


def test_a_second_copy_is_refused_the_address_of_the_first(product, tmp_path):
    port = product.address.rpartition(":")[2]
    found = ask(Address("127.0.0.1", int(port)), {RUN: "of another copy"})
    assert found.run and not found.is_healthy and found.program == "web"
    assert_one_sentence(stack("up", "--port", port, var=tmp_path / "other"), "is taken")


def test_a_web_process_that_hangs_is_started_again(product):
    web = product.web
    web.send_signal(signal.SIGSTOP)
    product.supervisor.send_signal(signal.SIGUSR1)
    wait_until(lambda: "web has not answered for 1 s and is started again" in product.text, 120)
    # It takes longer than a second to start.
    product.supervisor.send_signal(signal.SIGUSR2)
    wait_until(lambda: status(f"{product.address}/login/")[0] == 200, 120)
    assert not psutil.pid_exists(web.pid)


def test_a_broker_that_cannot_start_is_said_and_holds_nothing_up(product):
    assert "redis cannot start and is tried again" in product.said_at_start
    assert "answers at" in product.said_at_start
    wait_until(lambda: find_servers("valkey-server", product.data / "broker"), 60)


def test_a_disk_that_fills_while_everything_runs_is_said_once(tmp_path, monkeypatch, capsys):
    free = [10**9, 10**6, 0, 10**9, 0]
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free[0]))
    supervisor = Supervisor(RunPaths(tmp_path), Address("127.0.0.1", 8000))
    seen = []
    while free:
        supervisor._look_at_the_disk()
        seen.append(capsys.readouterr().out.partition(":")[0])
        free.pop(0)
    assert seen == ["", "The disk is full", "", "", "The disk is full"]


def test_a_part_that_cannot_start_is_said_once_and_tried_again(tmp_path):
    class Stubborn:
        name, log, is_running = "redis", tmp_path / "log", False

        def start(self):
            if not (tmp_path / "mended").exists():
                raise StackError("Its folder has another mode.")
            self.is_running = True

    watch = Watch(Stubborn())
    assert watch.start_or_wait() == "redis cannot start and is tried again: Its folder has another mode."
    for _ in range(2):
        watch._start_at = time.monotonic() - 1
        assert watch.tend() == ""
        assert watch._start_at > time.monotonic()
    (tmp_path / "mended").touch()
    watch._start_at = time.monotonic() - 1
    assert watch.tend() == ""
    assert watch.service.is_running


def test_an_address_that_another_copy_has_bound_is_taken_at_once():
    port = free_port()
    with _listen("127.0.0.1", port, shares_address=False):
        with pytest.raises(StackError, match="is taken"):
            check_port("127.0.0.1", port)
        with pytest.raises(SystemExit):
            _listen("127.0.0.1", port, shares_address=False)


def test_a_worker_to_which_no_task_comes_is_started_again(tmp_path, monkeypatch):
    class Worker:
        name, is_running = "worker", True

    watch, listening = Watch(Worker()), Listening(tmp_path / "tasks")
    watch.started_at = time.monotonic()
    assert listening.complaint(watch) == ""
    (tmp_path / "tasks").touch()
    assert listening.complaint(watch) == ""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 200)
    assert "No task has come for 180 s" in listening.complaint(watch)
    assert listening.complaint(watch) == ""
    os.utime(tmp_path / "tasks", (0, 0))
    monkeypatch.setattr(time, "monotonic", lambda: now + 390)
    assert listening.complaint(watch) == ""


def test_one_web_process_of_several_that_hangs_is_told_from_the_others(tmp_path, monkeypatch):
    class Web:
        is_running = True

        def __init__(self, name):
            self.name = name

    watches, listening = [Watch(Web("web")), Watch(Web("web-2"))], Listening(tmp_path / "tasks")
    now = time.monotonic()
    answers = iter([HealthAnswer("", True, "run", "web"), HealthAnswer("timed out"), HealthAnswer("timed out")] * 3)
    monkeypatch.setattr("config.stack.supervisor.ask", lambda *_: next(answers))
    for step in range(1, 10):
        monkeypatch.setattr(time, "monotonic", lambda step=step: now + 11 * step)
        listening.ask_now_and_then(None, {RUN: "run"})
        listening._answer.result()
        listening.ask_now_and_then(None, {RUN: "run"})
    for watch in watches:
        watch.started_at = now
    assert [bool(listening.complaint(watch)) for watch in watches] == [False, True]


def test_a_pause_of_the_supervisor_itself_is_not_the_silence_of_the_web(tmp_path, monkeypatch):
    """As on a machine that slept: two questions failed before, and nothing was asked for an hour."""

    class Web:
        name, is_running = "web", True

    watch, listening, now = Watch(Web()), Listening(tmp_path / "tasks"), time.monotonic()
    watch.started_at = now
    answers = iter([HealthAnswer("", True, "run", "web"), *[HealthAnswer("timed out")] * 9])
    monkeypatch.setattr("config.stack.supervisor.ask", lambda *_: next(answers))

    def look(seconds):
        monkeypatch.setattr(time, "monotonic", lambda: now + seconds)
        listening.ask_now_and_then(None, {RUN: "run"})
        listening._answer.result()
        listening.ask_now_and_then(None, {RUN: "run"})
        return bool(listening.complaint(watch))

    assert [look(seconds) for seconds in (11, 22, 33)] == [False, False, False]
    assert [look(seconds) for seconds in (3633, 3644, 3655)] == [False, False, False]
    assert [look(seconds) for seconds in range(3666, 3706, 11)][-1]


def test_a_log_is_turned_over_by_its_size_and_its_program_goes_on_writing(tmp_path):
    log = tmp_path / "web.log"
    with log.open("ab", buffering=0) as program:
        reader = LogReader(log)
        program.write(b"2026-03-14 10:00:00 ERROR first\n")
        assert reader.new_errors() == ["ERROR first"]
        reader.turn_over(1_000)
        assert not (tmp_path / "web.log.1").exists()
        program.write(b"x" * 1_000 + b"\n")
        reader.turn_over(1_000)
        program.write(b"2026-03-14 10:00:01 ERROR second\n")
        assert reader.new_errors() == ["ERROR second"]
    assert log.read_bytes() == b"2026-03-14 10:00:01 ERROR second\n"
    assert (tmp_path / "web.log.1").stat().st_size > 1_000


@pytest.fixture
def as_root(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(paths, "SYSTEM_DIR", tmp_path / "system")
    return monkeypatch


def a_product(var):
    (servers_dir(var) / "data").mkdir(parents=True)
    var.mkdir(exist_ok=True)
    (var / "env").write_text("DATABASE_URL=postgres://x:y@/recollect?host=%2Fsomewhere\n")
    remember_data_folder(var)


def test_a_renamed_checkout_keeps_its_data_and_a_copied_one_is_refused(as_root, tmp_path):
    old, new, copy = tmp_path / "old" / "var", tmp_path / "new" / "var", tmp_path / "copy" / "var"
    old.parent.mkdir()
    a_product(old)
    data = servers_dir(old)
    shutil.copytree(old.parent, copy.parent)
    with pytest.raises(StackError, match=f"belongs to {old}"):
        refuse_another_data_folder(copy)
    old.parent.rename(new.parent)
    refuse_another_data_folder(new)
    assert servers_dir(new) == data
    remember_data_folder(new)
    shutil.rmtree(data)
    with pytest.raises(StackError, match="belong to a database that is not in"):
        refuse_another_data_folder(new)
    (new / "env").unlink()
    (new / "data-folder").unlink()
    refuse_another_data_folder(new)


def test_settings_of_an_earlier_run_without_their_database_are_refused(as_root, tmp_path):
    var = tmp_path / "var"
    a_product(var)
    (var / "data-folder").unlink()
    as_root.setattr(paths, "BASE_DIR", tmp_path / "renamed")
    with pytest.raises(StackError, match="write the former folder"):
        refuse_another_data_folder(var)


def test_root_does_not_begin_anew_beside_a_users_data_nor_a_user_beside_roots(as_root, tmp_path):
    var = tmp_path / "var"
    (var / "servers" / "data").mkdir(parents=True)
    with pytest.raises(StackError, match="run `make up` as that user"):
        refuse_another_data_folder(var)
    roots = tmp_path / "roots"
    a_product(roots)
    as_root.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StackError, match="go on with `sudo make up`"):
        refuse_another_data_folder(roots)


@pytest.mark.parametrize("command", ["backup", "restore", "verify_backup"])
def test_a_folder_as_a_backup_file_gets_a_sentence(command, tmp_path):
    with pytest.raises(CommandError, match="is a folder: name"):
        call_command(command, tmp_path)


def test_a_locale_that_is_not_utf8_changes_nothing(tmp_path):
    strange = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    assert_one_sentence(stack("up", "--port", "ü…", var=tmp_path, **strange), "is not a port")
    listed = subprocess.run(
        [sys.executable, "manage.py", "help"],
        cwd=BASE_DIR,
        env=environment(tmp_path, **strange),
        capture_output=True,
        check=False,
    )
    assert listed.returncode == 0 and b"Traceback" not in listed.stderr


AS_NAMELESS = """
import os, sys
from pathlib import Path
from config.stack import StackError
from config.stack.servers import EmbeddedPostgres
root = Path(sys.argv[1])
os.setgroups([]); os.setgid(54321); os.setuid(54321)
try:
    EmbeddedPostgres(root / "servers", log=root / "log").start()
except StackError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(not ROOT, reason="another user needs root's rights")
def test_a_user_without_an_entry_gets_a_sentence():
    home = Path("/tmp") / f"recollect-test-nameless-{os.getpid()}"
    home.mkdir()
    os.chown(home, 54321, 54321)
    try:
        command = [sys.executable, "-c", AS_NAMELESS, home]
        done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(home)
    assert_one_sentence(done, "The user with the number 54321 has no entry in /etc/passwd")


@pytest.mark.skipif(not ROOT, reason="a read-only folder needs root's rights")
def test_a_read_only_checkout_loses_nothing_and_gets_a_sentence(tmp_path):
    shutil.copytree(BASE_DIR / "requirements", tmp_path / "requirements")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "kept").touch()
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", tmp_path], check=True)
    try:
        done = subprocess.run(
            [tmp_path / "requirements" / "install.sh", sys.executable, "local"],
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert done.returncode == 1 and "cannot be written by this user" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / ".venv" / "kept").exists()
