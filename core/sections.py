"""Writes Markdown for people that a program can read back exactly: a comment before each section has its fields.

    <!-- turn {"turn_number": 1, "status": "complete"} -->
    ## You

    The user's message, unchanged.

    <!-- end {} -->

A line of a text that looks like such a comment gets a backslash in front, which is removed when it is read. The export
writes this format and the reader of exports reads it. Both directions are in this module, so that they stay inverse.
Fields can hold any JSON value.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HEAD = "---\n"
END = "<!-- end {} -->\n"
_MARK = re.compile(r"^<!-- (?P<kind>turn|answer|record|end) (?P<fields>\{.*\}) -->[ \t\r]*$", re.MULTILINE)
_LOOKS_LIKE_A_MARK = re.compile(r"^(?=\\*<!-- (?:turn|answer|record|end)\b)", re.MULTILINE)
_ESCAPED = re.compile(r"^\\(?=\\*<!-- (?:turn|answer|record|end)\b)", re.MULTILINE)
_HEADING = re.compile(r"## [^\n]*\n")
# Separate line ends in YAML, and characters that YAML does not allow literally.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_FIELD_NAME = re.compile(r"[a-z_]+")


@dataclass(frozen=True, slots=True)
class Section:
    kind: str
    fields: dict[str, Any]
    text: str


def write_head(fields: Mapping[str, Any]) -> str:
    """Front matter. JSON's values are valid YAML."""
    return HEAD + "".join(f"{name}: {_in_yaml(value)}\n" for name, value in fields.items()) + HEAD


def write_section(kind: str, fields: Mapping[str, Any], *, heading: str, text: str) -> str:
    """One section; the next one, or `END`, must follow. The heading is one line, and only for people."""
    title = f"## {' '.join(heading.split())}\n"
    return f"<!-- {kind} {_in_comment(fields)} -->\n{title}\n{_LOOKS_LIKE_A_MARK.sub(_BACKSLASH, text)}\n\n"


def read_head(text: str) -> dict[str, Any]:
    """The fields of the front matter. A value that is not JSON, as people write it, is a text. Empty without front
    matter.
    """
    lines = text[: 64 * 1024].replace("\r\n", "\n").split("\n")
    if lines[0] != HEAD.strip() or HEAD.strip() not in lines[1:]:
        return {}
    fields = (line.partition(":") for line in lines[1 : lines.index(HEAD.strip(), 1)])
    return {
        name: _value(value.strip(" \t\r")) for name, colon, value in fields if colon and _FIELD_NAME.fullmatch(name)
    }


def read_sections(text: str) -> Iterator[Section]:
    """Every section in order. Fields that are not valid JSON are empty."""
    marks = list(_MARK.finditer(text))
    for mark, following in zip(marks, [*marks[1:], None], strict=False):
        if mark["kind"] != "end":
            fields = _value(mark["fields"])
            inner = text[mark.end() + 1 : following.start() if following else len(text)]
            yield Section(mark["kind"], fields if isinstance(fields, dict) else {}, _text_within(inner))


def _text_within(inner: str) -> str:
    heading = _HEADING.match(inner)
    inner = inner[heading.end() :] if heading else inner
    return _ESCAPED.sub("", inner.removeprefix("\n").removesuffix("\n").removesuffix("\n"))


def _in_comment(fields: Mapping[str, Any]) -> str:
    """JSON that cannot end the comment that contains it."""
    return json.dumps(fields, ensure_ascii=False).replace(">", "\\u003e").replace("\r", "\\r")


def _in_yaml(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_BACKSLASH = "\\\\"
