"""Puts the modules that a page needs into one file when static files are collected: one request instead of twenty."""

import posixpath
import re
from collections.abc import Callable

# The source modules do not change, and only `collectstatic` runs. The bundler supports the syntax that our modules use,
# `import { a, b } from "./x.js"` and `export` before a declaration, and refuses anything else. A module becomes a
# function that runs once, in the order of the imports, so names of two modules never collide.

_IMPORT = re.compile(r'^import \{ (\w+(?:, \w+)*) \} from "(\.\.?/[\w./]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const)) (\w+)", re.MULTILINE)
# Of whole lines; one behind code stays, because to find it takes a parser.
_COMMENT = re.compile(r"^[ \t]*(?://.*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/[ \t]*)\n", re.MULTILINE)
# The text that neither of these matched.
_LEFT = re.compile(r'^(?:import\s*[{*"]|import \w|export\b).*$', re.MULTILINE)


def bundle(entry: str, read: Callable[[str], str]) -> str:
    """One script of the module `entry` and all its imports, without comments; `read` returns a module's text by its
    name, which is its path from the entry's folder.

    Raises `ValueError` for circular imports and for any other form of import or export.
    """
    written: dict[str, str] = {}
    _write(entry, read, written, on_the_way=())
    names = [found[2] for found in _EXPORT.finditer(read(entry))]
    exports = [f"export const {{ {', '.join(names)} }} = {_variable(entry)};"] if names else []
    return "\n".join([*written.values(), *exports])


def _write(name: str, read: Callable[[str], str], written: dict[str, str], *, on_the_way: tuple[str, ...]) -> None:
    if name in on_the_way:
        raise ValueError(f"{' imports '.join((*on_the_way, name))}: modules in a circle.")
    if name in written:
        return
    text = read(name)
    for found in _IMPORT.finditer(text):
        _write(_beside(name, found[2]), read, written, on_the_way=(*on_the_way, name))
    body = _COMMENT.sub("", text)
    body = _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_variable(_beside(name, found[2]))};", body)
    names = [found[2] for found in _EXPORT.finditer(body)]
    body = _EXPORT.sub(r"\1 \2", body)
    if left := _LEFT.search(body):
        raise ValueError(f"{name}: {left[0]}")
    written[name] = f"const {_variable(name)} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();"


def _beside(name: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def _variable(name: str) -> str:
    return "$" + re.sub(r"\W", "_", name.removesuffix(".js"))
