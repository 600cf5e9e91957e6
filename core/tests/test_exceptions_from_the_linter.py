"""Where the product departs from a security rule of the linter (ruff's S, which is Bandit's), it says why."""

import re
import tomllib
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
PRODUCT = ("config", "core", "intake", "memory", "imports", "agent_tools", "recollect_cli")
EXCEPTION = re.compile(r"#\s*noqa:\s*(?P<rules>[A-Z0-9, ]*\bS\d+[A-Z0-9, ]*)(?P<reason>.*)")
RUFF = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
# Tests and what only tests run; and what starts the embedded servers by fixed commands.
ALLOWED = {"testing/**", "**/tests/**", "config/settings/test.py", "config/stack/*", "config/ops/backup.py"}


def exceptions():
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            if not {"tests", "testing"} & set(path.parts):
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    if found := EXCEPTION.search(line):
                        yield f"{path.relative_to(ROOT)}:{number}", found["reason"].strip(" -")


def test_the_rules_are_on_and_only_known_files_are_left_out():
    assert "S" in RUFF["select"]
    assert not [rule for rule in RUFF["ignore"] if rule.startswith("S") and rule[1:].isdigit()]
    left_out = {
        path for path, rules in RUFF["per-file-ignores"].items() if any(re.match(r"S\d*$", rule) for rule in rules)
    }
    assert left_out <= ALLOWED


def test_every_exception_says_why():
    found = dict(exceptions())
    assert len(found) >= 8
    assert [place for place, reason in found.items() if len(reason) < 10] == []
