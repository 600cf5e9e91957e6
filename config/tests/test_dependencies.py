"""Each package that a module imports is declared in pyproject.toml, in an extra that is there where the module runs."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
# `compression` is in the standard library from Python 3.14 on.
STANDARD = sys.stdlib_module_names | {"compression"}
OURS = {
    "config",
    "core",
    "intake",
    "memory",
    "imports",
    "agent_tools",
    "evals",
    "testing",
    "recollect_cli",
    "docs",
    "conftest",
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SERVER = ("server",)
ON_ONE_MACHINE = ("server", "installer", "local")
MEASURED = (*ON_ONE_MACHINE, "peers")
FOR_TESTS = (*MEASURED, "dev")
FOLDERS = {
    "core": SERVER,
    "intake": SERVER,
    "memory": SERVER,
    "imports": SERVER,
    "agent_tools": SERVER,
    "recollect_cli": ("cli",),
    "config": ON_ONE_MACHINE,
    "evals": MEASURED,
    "testing": FOR_TESTS,
    "docs": FOR_TESTS,
}
DISTRIBUTIONS = packages_distributions() | {"backports": ["backports.zstd"]}


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(extras):
    return {canonical(re.match(r"[\w.-]+", line)[0]) for extra in extras for line in EXTRAS[extra]}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


def is_test(path):
    return "tests" in path.relative_to(ROOT).parts


def undeclared(paths, extras):
    known = declared(extras)
    for path in paths:
        packages = {name.split(".")[0] for name in imported(path)} - OURS - STANDARD
        for package in packages:
            if not known & {canonical(name) for name in DISTRIBUTIONS.get(package, [package])}:
                yield f"{path.relative_to(ROOT)} imports {package}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_import_of_the_product_is_declared(folder):
    modules = [path for path in (ROOT / folder).rglob("*.py") if not is_test(path)]
    assert modules
    assert list(undeclared(modules, FOLDERS[folder])) == []


def test_each_import_of_the_tests_is_declared():
    modules = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if is_test(path)]
    assert list(undeclared([*modules, ROOT / "conftest.py"], FOR_TESTS)) == []


def test_no_lock_names_a_registry():
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text()
        assert "--index" not in lock.read_text()


@pytest.mark.parametrize(
    ("found", "said", "status", "sentence"),
    [
        ("", "No known vulnerabilities found", 0, ""),
        (
            "Name Version ID\nnothing 1.0 PYSEC-1",
            "Found 1 known vulnerability in 1 package",
            1,
            "has a known vulnerability",
        ),
        ("", "Traceback\nConnectionError: no route to the database", 1, "could not all be looked up"),
    ],
)
def test_the_audit_tells_a_vulnerability_from_a_database_that_cannot_be_asked(tmp_path, found, said, status, sentence):
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\nprintf '%s' '{found}'\nprintf '%s\\n' '{said}' >&2\nexit {status}\n")
    uv.chmod(0o755)
    command = [ROOT / "requirements/audit.sh"]
    ran = subprocess.run(command, env={**os.environ, "UV": str(uv)}, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    lines = ran.stderr.splitlines()
    assert [line for line in lines if sentence in line] == lines[-1:]
    assert "Traceback" not in ran.stderr
    assert found in ran.stdout and ("No known" in ran.stdout) is (status == 0)
