"""Private names of dependencies, retired words, undeclared imports, and exceptions from the security rules."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# The extras of pyproject.toml that are installed where the modules of a folder run.
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
    "chat": SERVER,
    "recollect_cli": ("cli",),
    "config": ON_ONE_MACHINE,
    "evals": MEASURED,
    "testing": FOR_TESTS,
    "docs": FOR_TESTS,
}
NOT_SHIPPED = {"evals", "testing", "docs"}

# Private names that are documented in spite of the underscore.
DOCUMENTED = {"_meta", "_state", "_asdict", "_replace", "_fields", "_make", "_exit", "_default_manager"}
# By file: the private names that it uses, and why. At most one file for each dependency.
PRIVATE_EXCEPTIONS = {
    # Django says nowhere else how to empty the database after a test; `test_emptying.py` fails when the name goes away.
    "conftest.py": {"_fixture_teardown"},
}
# `compression` is in the standard library from Python 3.14 on.
STANDARD = sys.stdlib_module_names | {"compression"}
DISTRIBUTIONS = packages_distributions() | {"backports": ["backports.zstd"]}

# Words that once stood for a term of the field, and the term (the few names in which they mean what they say).
RETIRED = {
    "leg": "retriever", "unposted": "pending", "nudge": "wake", "door": "endpoint", "standing": "revocation",
    "storable": "pg_text", "given": "the thing's own name", "told": "the thing's own name", "keeper": "saver",
    "fence": "untrusted data", "rounds": "tool budget", "halves": "halfvec", "patience": "deadline",
    "prepared": "statements", "rehearsal": "dry run", "rehearse": "dry run", "people": "users",
    "said": "user", "answered": "assistant",
}  # fmt: skip
KEPT_WORDS = {
    # Columns of the turns and of the index, which the statements of `memory/index` name.
    "said_at", "said", "answered", "said_length", "answered_length", "said_lengths", "answered_lengths", "said_score",
    # Markdown's own.
    "fence", "fences", "is_fence", "open_fences", "_FENCE", "_FENCES", "_FENCE_END",
}  # fmt: skip

SECURITY_EXCEPTION = re.compile(r"#\s*noqa:\s*(?P<rules>[A-Z0-9, ]*\bS\d+[A-Z0-9, ]*)(?P<reason>.*)")
# Tests and what only tests run; and what starts the embedded servers by fixed commands.
MAY_LEAVE_OUT = {"testing/**", "**/tests/**", "config/settings/test.py", "config/stack/*", "config/ops/backup.py"}


@pytest.fixture(scope="module")
def modules():
    """What each module holds, read in one pass; its tree is not kept."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [module(path) for path in (*paths, ROOT / "conftest.py")]


def module(path):
    """`own`: the names that the project itself gives; `named`: of these, with its arguments, what is new in this
    module; `private`: the private names that it reads from objects and modules; `imported`: packages.
    """
    text, name = path.read_text(), path.relative_to(ROOT).as_posix()
    found = SimpleNamespace(name=name, own=set(), named=set(), private=set(), imported=set(), text=text)
    found.folder, found.is_test = name.split("/", 1)[0], "tests" in name.split("/") or name == "conftest.py"
    found.is_shipped = not (found.is_test or found.folder in NOT_SHIPPED or "/migrations/" in name)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.own.add(node.name)
            found.named.add(node.name)
        elif isinstance(node, ast.arg):
            found.named.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.own.add(node.id)
            found.named.add(node.id)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                found.named.add(node.attr)
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    found.own.add(node.attr)
            found.private.add(node.attr)
        elif isinstance(node, ast.Import):
            found.imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.private.update((node.module or "").split("."), (alias.name for alias in node.names))
            if node.level == 0:
                found.imported.add(node.module)
        elif isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            # Also as the text of `patch` and `setattr`.
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in ("getattr", "setattr", "hasattr", "delattr") and isinstance(node.args[1].value, str):
                found.private.update(node.args[1].value.split("."))
    return found


def test_no_module_uses_a_private_name_of_a_dependency(modules):
    """One that begins with an underscore may be gone in the next release."""
    ours = set().union(*(each.own for each in modules))
    used = {
        each.name: {name for name in each.private - ours - DOCUMENTED if re.match(r"_(?!_)", name)} for each in modules
    }
    assert {name: foreign for name, foreign in used.items() if foreign} == PRIVATE_EXCEPTIONS


def test_no_name_has_a_word_that_the_field_has_a_term_for(modules):
    found = {
        f"{each.name}: {name} ({RETIRED[word.lower()]})"
        for each in modules
        if each.is_shipped
        for name in each.named - KEPT_WORDS
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
        if word.lower() in RETIRED
    }
    assert sorted(found) == []


def test_each_package_that_a_module_imports_is_declared(modules):
    def canonical(name):
        return re.sub(r"[-_.]+", "-", name).lower()

    declared = {
        extra: {canonical(re.match(r"[\w.-]+", line)[0]) for line in lines}
        for extra, lines in PYPROJECT["project"]["optional-dependencies"].items()
    }
    missing = set()
    for each in modules:
        extras = FOR_TESTS if each.is_test else FOLDERS[each.folder]
        known = set().union(*(declared[extra] for extra in extras))
        for package in {name.split(".")[0] for name in each.imported} - {*FOLDERS, "conftest", "manage"} - STANDARD:
            if not known & {canonical(name) for name in DISTRIBUTIONS.get(package, [package])}:
                missing.add(f"{each.name} imports {package}")
    assert sorted(missing) == []


def test_no_lock_names_a_registry():
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text()
        assert "--index" not in lock.read_text()


def test_the_security_rules_are_on_and_only_known_files_are_left_out():
    lint = PYPROJECT["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert not [rule for rule in lint["ignore"] if re.match(r"S\d", rule)]
    left_out = {
        path for path, rules in lint["per-file-ignores"].items() if any(re.match(r"S\d*$", rule) for rule in rules)
    }
    assert left_out <= MAY_LEAVE_OUT


def test_every_exception_from_a_security_rule_says_why(modules):
    found = {
        f"{each.name}:{number}": match["reason"].strip(" -")
        for each in modules
        if each.is_shipped
        for number, line in enumerate(each.text.splitlines(), 1)
        if (match := SECURITY_EXCEPTION.search(line))
    }
    assert len(found) >= 8
    assert [place for place, reason in found.items() if len(reason) < 10] == []
