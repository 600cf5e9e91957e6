"""Pastes the blocks of the README, in order, as a newcomer does: each one works as it stands."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import environ
import httpx2
import pytest
from django.conf import settings
from django.db import connection

from intake.tests.factories import a_person, a_turn
from memory import index

pytestmark = pytest.mark.extended

README = (Path(settings.BASE_DIR) / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
# Stands in for Claude Code, which no package registry of ours has: keeps the arguments of its call.
CLAUDE = f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open(__file__ + '.json', 'w'))\n"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "pasted", "version": "1"}},
}


def blocks(kind):
    return [text for name, text in BLOCKS if name == kind]


@pytest.fixture
def paste(server, tmp_path):
    """Runs blocks in one shell; the server has another port here, and `.venv` may be another environment."""
    claude = tmp_path / "claude"
    claude.write_text(CLAUDE)
    claude.chmod(claude.stat().st_mode | stat.S_IXUSR)
    database = connection.settings_dict["NAME"]
    inherited = {name: value.replace("/recollect?", f"/{database}?") for name, value in os.environ.items()}
    added = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DJANGO_SETTINGS_MODULE": "config.settings.test"}

    def run(*pasted):
        script = "\n".join(pasted).replace(ADDRESS, server).replace(".venv/bin/python", sys.executable)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=settings.BASE_DIR,
            env=inherited | added,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def test_each_kind_of_block_is_tried_here():
    assert {name for name, _ in BLOCKS} == {"sh", "ini", "json"}
    assert (len(blocks("ini")), len(blocks("json"))) == (1, 1)


def test_the_two_commands_are_there():
    first, *_ = blocks("sh")
    for command in [*first.splitlines(), "make up DEMO=1", "make up PORT=8001", "make down"]:
        assert subprocess.run(["make", "--dry-run", *command.split("#")[0].split()[1:]], check=False).returncode == 0


def test_the_lines_for_env_are_what_the_settings_read(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text(blocks("ini")[0])
    for name in ("LLM_MODEL", "LLM_BASE_URL", "LLM_API_KEY"):
        # Set first, so that it is as it was afterwards.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    environ.Env.read_env(tmp_path / ".env")
    read = environ.Env()
    assert read.str("LLM_MODEL") == "llama3.2"
    assert httpx2.URL(read.str("LLM_BASE_URL")).port == 11434
    assert read.str("LLM_API_KEY").isascii()


def test_the_blocks_for_a_shell_work_one_after_the_other(paste, tmp_path):
    demo = a_person("demo@example.com")
    a_turn(demo, "I'm planning a trip to Lisbon; where do I want to go in spring?")
    index.embed_pending()
    _, *rest = blocks("sh")
    pasted = paste(*rest)
    assert pasted.returncode == 0, pasted.stderr
    assert "We take the oak worktop, 40 mm thick." in pasted.stdout
    answer = json.loads(pasted.stdout[pasted.stdout.rindex('{"results"') :])
    example = json.loads(blocks("json")[0])
    assert answer.keys() == example.keys()
    assert answer["results"][0].keys() == example["results"][0].keys()
    *_, address, _, header = json.loads((tmp_path / "claude.json").read_text())
    assert_speaks_mcp(address, header)


def assert_speaks_mcp(address, header):
    name, value = header.split(": ")
    accepted = {"Accept": "application/json, text/event-stream"}
    response = httpx2.post(address, json=INITIALIZE, headers=accepted | {name: value}, timeout=20)
    assert response.status_code == 200, response.text


def test_what_the_readme_links_to_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(settings.BASE_DIR) / target).exists(), target
