"""Lists the environment variables that the settings read, from the source of the settings modules.

The source alone says all: a run of the settings reads some variables only if others are set.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product

# Of every deployment, and what two of them change. A test run's values are its own.
OF_ALL = ("site", "accounts", "limits", "search", "base")
MODULES = (*OF_ALL, "local", "production")
TYPES = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "yes or no",
    "list": "list, by commas",
    "db": "address",
}
# Stands in a name for the part that a deployment chooses, as in LLM_…_MODEL.
CHOSEN = "…"

Binding = Mapping[str, ast.expr]


@dataclass(frozen=True, slots=True)
class Variable:
    """`default` is Python source, None where the variable must be set. `section` is the heading in the module."""

    name: str
    type: str
    default: str | None
    comment: str
    section: str
    module: str


def variables() -> list[Variable]:
    """Every variable once for each settings module, in the order in which they build on each other."""
    folder = files("config.settings")
    return [found for name in MODULES for found in _Module(name, (folder / f"{name}.py").read_text()).read()]


def names_set(environment: Mapping[str, str]) -> list[str]:
    """The names of variables that are set, directly or as a file (`X_FILE`). A part that somebody chose is left out."""
    patterns = {
        found.name: re.compile(re.escape(found.name).replace(re.escape(CHOSEN), r"[A-Z0-9_]+")) for found in variables()
    }
    return [
        f"{name}{suffix}"
        for name, pattern in patterns.items()
        for suffix in ("", "_FILE")
        if any(pattern.fullmatch(key.removesuffix(suffix)) and key.endswith(suffix) for key in environment)
    ]


class _Module:
    """The calls of `env` in one settings module."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source, self.lines = name, source, source.splitlines()
        self.tree = ast.parse(source)

    def read(self) -> list[Variable]:
        found: dict[str, Variable] = {}
        for call, ancestors in _calls(self.tree, ()):
            for variable in self._variables(call, ancestors):
                before = found.get(variable.name)
                # The reading with a default, or with a comment, is the one that describes it.
                if before is None or (before.default is None, not before.comment) > (
                    variable.default is None,
                    not variable.comment,
                ):
                    found[variable.name] = variable
        return list(found.values())

    def _variables(self, call: ast.Call, ancestors: Sequence[ast.AST]) -> Iterator[Variable]:
        statement = next(each for each in reversed(ancestors) if isinstance(each, ast.stmt))
        for number, binding in enumerate(self._bindings(ancestors)):
            default = next((each.value for each in call.keywords if each.arg == "default"), None)
            if isinstance(default, ast.Name):
                default = binding.get(default.id, default)
            # An entry of a dict that a loop goes over stands below the call.
            line = next((value.lineno for value in binding.values() if value.lineno > call.lineno), call.lineno)
            comment = self._comment_above(line)
            if number == 0 and (line != call.lineno or not comment):
                comment = self._comment_above(statement.lineno) if self._begins(statement, call) else comment
            yield Variable(
                name=_name(call.args[0], binding),
                type=TYPES[call.func.attr],  # type: ignore[attr-defined]  # `_calls` yields such calls alone
                default=None if default is None else ast.get_source_segment(self.source, default),
                comment=comment,
                section=self._section_of(call.lineno),
                module=self.name,
            )

    def _bindings(self, ancestors: Sequence[ast.AST]) -> Iterator[Binding]:
        """What the names around a call stand for: one mapping for each round of the loops that are around it."""
        loops: list[list[Binding]] = []
        for ancestor in ancestors:
            if isinstance(ancestor, ast.DictComp | ast.ListComp):
                loops += [found for each in ancestor.generators if (found := _loops(each.target, each.iter))]
            elif isinstance(ancestor, ast.FunctionDef) and ancestor.args.args:
                parameter = ancestor.args.args[0].arg
                loops.append([{parameter: argument} for argument in self._arguments(ancestor.name)])
        for chosen in product(*loops):
            yield {name: value for binding in chosen for name, value in binding.items()}

    @staticmethod
    def _begins(statement: ast.stmt, call: ast.Call) -> bool:
        """Whether the statement, and so the comment above it, is about this variable: not one deep inside a dict."""
        return call.lineno == statement.lineno or isinstance(getattr(statement, "value", None), ast.DictComp)

    def _arguments(self, function: str) -> Iterator[ast.expr]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
                yield node.args[0]

    def _comment_above(self, line: int) -> str:
        """`line` counts from 1, as in the tree."""
        above: list[str] = []
        for text in map(str.strip, reversed(self.lines[: line - 1])):
            if not text.startswith("#"):
                break
            above.insert(0, text.lstrip("# "))
        return " ".join(above)

    def _section_of(self, line: int) -> str:
        """A heading is a comment between empty lines."""
        for number in range(line - 1, 0, -1):
            around = self.lines[number - 1 : number + 2]
            if len(around) == len("#\n\n") and around[1].startswith("# ") and not around[0] and not around[2]:
                return around[1].lstrip("# ")
        return ""


def _calls(node: ast.AST, ancestors: tuple[ast.AST, ...]) -> Iterator[tuple[ast.Call, tuple[ast.AST, ...]]]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="env"), attr=method)) if method in TYPES:
            yield node, ancestors
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, (*ancestors, node))


def _loops(target: ast.expr, iterated: ast.expr) -> list[Binding]:
    """The loop's names in each round, where the source says what it goes over; nothing where it does not."""
    match target, iterated:
        case ast.Name(id=name), ast.Tuple(elts=values):
            return [{name: value} for value in values]
        case ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=name)]), ast.Call(
            func=ast.Attribute(value=ast.Dict() as each)
        ):
            pairs = zip(each.keys, each.values, strict=True)
            return [{key: left, name: right} for left, right in pairs if left is not None]
    return []


def _name(argument: ast.expr, binding: Binding) -> str:
    match argument:
        case ast.Constant(value=text):
            return str(text)
        case ast.JoinedStr(values=parts):
            return "".join(_name(part, binding) for part in parts)
        case ast.FormattedValue(value=value):
            return _name(value, binding)
        case ast.Name(id=name) if name in binding:
            return _name(binding[name], {})
        case ast.Call(func=ast.Attribute(value=value, attr="upper")):
            return _name(value, binding).upper()
    return CHOSEN
