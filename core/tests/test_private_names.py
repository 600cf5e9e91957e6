"""No module uses a private name of a dependency: one that begins with an underscore may be gone in the next release."""

import ast
from pathlib import Path

from django.conf import settings

PACKAGES = ("config", "core", "intake", "memory", "imports", "agent_tools", "evals", "testing", "recollect_cli")
# Documented in spite of the underscore.
DOCUMENTED = {"_meta", "_state", "_asdict", "_replace", "_fields", "_make", "_exit", "_default_manager"}
# By file: the private names that it uses, and why. At most one file for each dependency.
EXCEPTIONS = {
    # Django says nowhere else how to empty the database after a test; `test_emptying.py` fails when the name goes away.
    "conftest.py": {"_fixture_teardown"},
}


def modules():
    for package in PACKAGES:
        yield from sorted((Path(settings.BASE_DIR) / package).rglob("*.py"))
    yield Path(settings.BASE_DIR) / "conftest.py"


def is_private(name):
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED


def own_names(nodes):
    """What the project itself calls by such a name: functions, classes, variables, and attributes that it sets."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            yield node.attr


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def uses(nodes):
    """The private names that a module reads from objects and modules, also as the text of `patch` and `setattr`."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (part for part in (node.module or "").split(".") if is_private(part))
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in ("getattr", "setattr", "hasattr", "delattr") and len(node.args) > 1:
                argument = node.args[1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield from (part for part in argument.value.split(".") if is_private(part))


def test_no_module_uses_a_private_name_of_a_dependency():
    ours, used = set(), {}
    for path in modules():
        # No tree is kept: a thousand of them would be searched for garbage again and again.
        nodes = list(ast.walk(ast.parse(path.read_text())))
        ours.update(own_names(nodes))
        used[str(path.relative_to(settings.BASE_DIR))] = set(uses(nodes))
    assert {path: foreign for path, names in used.items() if (foreign := names - ours)} == EXCEPTIONS
