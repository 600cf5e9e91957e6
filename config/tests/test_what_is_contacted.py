"""What the product contacts by itself: nothing. It starts, embeds, searches, imports and reads a file, with an empty HOME.

strace sees each name that is asked, each address, and each file that is written, by native code too. Without it the
sockets of all processes are looked at as often as possible.
"""

import re
import shutil
import subprocess
import sys
import threading
import time

import httpx2
import psutil
import pytest

from config.stack.paths import BASE_DIR, servers_dir, socket_dir
from config.stack.processes import find_marked
from config.tests.test_up import STACK, begin_with, environment, free_port, stack
from core.telemetry import SWITCHES
from imports.tests.exports import chatgpt, write_chatgpt
from intake.llm.model_servers import USUAL_PORTS
from testing import files

pytestmark = pytest.mark.extended

CALLS = "connect,sendto,sendmsg,sendmmsg,openat,?open,?creat"
PERSON = """
from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from intake.models import User
print(create_token(user=User.objects.create_user("ana@example.com", "a password of a test"), name="", scopes=TokenScope, days=1).secret)
"""
LOOPBACK = ("127.0.0.1", "::1")
# Answers names in place of DNS.
RESOLVERS = re.compile(r'sun_path="[^"]*(?:resolve|mdns|avahi)[^"]*"')
ADDRESS = re.compile(r'port=htons\((\d+)\).*?(?:inet_addr\(|inet_pton\(AF_INET6, )"([^"]+)"')
WRITTEN = re.compile(r"O_(?:WRONLY|RDWR|CREAT)\b.* = \d+<(/[^>]*)>$")


class Watch:
    """Runs commands and knows whom they, and all that they start, have contacted, and which files they have written."""

    def __init__(self, folder, var):
        self._folder, self._var = folder, var
        self._sockets, self._is_over = set(), threading.Event()
        strace = ["strace", "-ff", "--seccomp-bpf", "-yqq", "-s", "0", "-e", f"trace={CALLS}", "-o", folder / "trace"]
        self.prefix = strace if _works([*strace, "true"]) else []

    def __enter__(self):
        if not self.prefix:
            threading.Thread(target=self._look).start()
        return self

    def __exit__(self, *failure):
        self._is_over.set()

    def contacted(self):
        """`(address, port)` of each, and the sockets of programs that answer names."""
        lines = [line for line in self._lines() if line.startswith(("connect", "send"))]
        found = {(address, int(port)) for line in lines for port, address in ADDRESS.findall(line)}
        return found | self._sockets | {line for line in lines if RESOLVERS.search(line)}

    def written(self):
        return {found[1] for line in self._lines() if (found := WRITTEN.search(line))}

    def _lines(self):
        return [line for file in self._folder.iterdir() for line in file.read_text(errors="replace").splitlines()]

    def _look(self):
        while not self._is_over.wait(0.02):
            for process in find_marked(self._var):
                try:
                    self._sockets |= {
                        (each.raddr.ip, each.raddr.port) for each in process.net_connections() if each.raddr
                    }
                except psutil.Error:
                    continue


def _works(command):
    return bool(shutil.which(command[0])) and not subprocess.run(command, check=False, capture_output=True).returncode


def wait_for(is_so, seconds=120):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def used(begin_migrated, tmp_path):
    """The product, after it has done everything once: whom it has contacted, what it has written, and where it may."""
    var, home, temporary, state, traces = (tmp_path / name for name in ("var", "home", "tmp", "state", "traces"))
    for folder in (home, temporary, traces):
        folder.mkdir()
    begin_with(begin_migrated, servers_dir(var))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    own = environment(var, HOME=str(home), TMPDIR=str(temporary), RECOLLECT_URL=address, XDG_STATE_HOME=str(state))
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", *SWITCHES):
        own.pop(name, None)

    with Watch(traces, var) as watch:

        def run(*command):
            watched = [*watch.prefix, sys.executable, *command]
            done = subprocess.run(watched, cwd=BASE_DIR, env=own, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        log = tmp_path / "output"
        with log.open("w") as output:
            product = subprocess.Popen(
                [*watch.prefix, *STACK, "up", "--port", str(port)], cwd=BASE_DIR, env=own, stdout=output, stderr=output
            )
        try:
            wait_for(lambda: "Recollect answers at" in log.read_text() or product.poll() is not None)
            assert product.poll() is None, log.read_text()
            own |= dict(line.split("=", 1) for line in (var / "env").read_text().splitlines())
            own["RECOLLECT_TOKEN"] = run("manage.py", "shell", "--no-imports", "-c", PERSON).strip()
            with httpx2.Client(
                base_url=f"{address}/api/v1/", headers={"Authorization": f"Bearer {own['RECOLLECT_TOKEN']}"}
            ) as client:
                run("-m", "recollect_cli", "add", "We take the oak worktop, 40 mm thick.")
                run(
                    "-m",
                    "recollect_cli",
                    "import",
                    str(write_chatgpt(tmp_path / "export.zip", chatgpt(conversations=1))),
                )
                made = client.post("attachments/", files={"file": ("lease.pdf", files.pdf(["The lease ends in May."]))})
                one = f"attachments/{made.json()['id']}/"
                wait_for(lambda: client.get(one).json()["state"] != "waiting")
                assert client.get(one).json()["state"] == "read"
                wait_for(lambda: client.get(f"{address}/healthz").json()["behind"]["passages"] == 0)
            assert "oak worktop" in run("-m", "recollect_cli", "search", "counter of wood")
        finally:
            stack("down", var=var)
            product.wait(60)
    own_folders = [var, servers_dir(var), socket_dir(servers_dir(var)), temporary, state]
    yield watch, port, home, own_folders
    shutil.rmtree(servers_dir(var), ignore_errors=True)


def test_the_product_contacts_nobody_by_itself_and_leaves_nothing_elsewhere(used):
    watch, port, home, own_folders = used
    own = {(host, each) for host in LOOPBACK for each in (port, *USUAL_PORTS)}
    assert watch.contacted() - own == set()
    assert list(home.rglob("*")) == []
    own = (*map(str, own_folders), "/dev/", "/proc/")
    # What Python has compiled lies beside the code.
    assert {path for path in watch.written() if not path.startswith(own) and "/__pycache__/" not in path} == set()
