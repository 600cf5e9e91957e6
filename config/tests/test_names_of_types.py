"""One name for one type: a search for a class finds that class and no other."""

import ast
from collections import defaultdict
from pathlib import Path

from django.conf import settings

from core.testing.module_counter import NOT_THE_PRODUCT

APPS = ["config", "evals", "agent_tools", "imports", "memory", "intake", "core", "recollect_cli"]
# Django looks for these by their name. One letter is a type variable.
NAMED_BY_DJANGO = {"Meta", "Command", "Migration"}


def test_no_two_modules_define_a_type_of_the_same_name():
    modules = defaultdict(list)
    for app in APPS:
        for path in Path(settings.BASE_DIR, app).rglob("*.py"):
            if not NOT_THE_PRODUCT & {*path.relative_to(settings.BASE_DIR).parts} and path.stem != "testing":
                for name in types_in(ast.parse(path.read_text())):
                    modules[name].append(str(path.relative_to(settings.BASE_DIR)))
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in NAMED_BY_DJANGO and len(name) > 1} == {}


def types_in(module):
    """Its classes and type aliases: what is assigned to a name in CamelCase."""
    for statement in module.body:
        match statement:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name[0].isupper() and not name.isupper():
                    yield name
