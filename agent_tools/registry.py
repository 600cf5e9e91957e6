"""The registry of tools: each is described once, and REST, the chat and MCP publish the same schema; and database work
that stops with its caller.

Clients differ in the arguments that they send: some write numbers as text, some send null for what they leave out, some
one text for a list. Each value with one possible meaning is accepted, but in a field that is read `as_sent`. The schema
keeps to what OpenAI (strict), Anthropic and Gemini all accept, so a limit that it cannot express is in a description or
only in a refusal.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from itertools import count
from typing import Any, Generic, Literal, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, PrivateAttr

from agent_tools.models import TokenScope
from core.errors import InvalidInput
from core.isolation.acting import Caller, acting_as, binding_of, project_for
from core.metrics import TOOL_CALLS
from core.text import project_label
from core.validation import Output, validate
from intake.models import User
from intake.models.conversations import label_of

AnyInput = TypeVar("AnyInput", bound=BaseModel)
AnyOutput = TypeVar("AnyOutput", bound=Output)

# A visitor has no memory yet, so the tools do not see the visitor's messages either.
NOBODY = Caller(user_id=None)

# What all three vendors accept in the schema of a function's arguments.
COMMON_KEYWORDS = frozenset(
    {"type", "description", "properties", "required", "items", "enum", "minimum", "maximum", "minItems", "maxItems"}
)
# Fields of one meaning: a tool that has one of them accepts the others' names for it.
SYNONYMS = (
    frozenset({"limit", "maxresults", "topk", "count", "numresults", "k", "n"}),
    frozenset({"query", "q"}),
    frozenset({"project", "projectid"}),
)
# The fields of inputs that name a project.
PROJECT_FIELDS = ("project", "project_id")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
A_DAY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
A_TIME_OF_DAY = re.compile(r"[Tt ]\d{1,2}:[0-9:.,]{2,16}(?:[Zz]|[+-][0-9:]{2,6})?", re.ASCII)
AN_INTEGER = re.compile(r"[+-]?\d{1,15}(?:\.0{1,15})?", re.ASCII)
A_NUMBER = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})", re.ASCII)
WHOLE_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


class Readable(Output):
    """An output with the text that a model reads over MCP and in the chat, and ids of what it shows beside those in its
    JSON, which has neither. A text that reads more rows is made when a model wants it: over REST nobody does.
    """

    _as_read: str | Callable[[], str] = PrivateAttr(default="")
    _shown: tuple[UUID | None, ...] = PrivateAttr(default=())

    @property
    def as_read(self) -> str:
        return self._as_read if isinstance(self._as_read, str) else self._as_read()

    @property
    def shown(self) -> tuple[UUID | None, ...]:
        return self._shown

    def reading(self, text: str | Callable[[], str], *shown: UUID | None) -> Self:
        self._as_read, self._shown = text, shown
        return self


@dataclass(frozen=True, slots=True)
class StoredByCall:
    """A call that saved something: its `text`, for the user, and its `place`, JSON by which `Tool.undo` finds it."""

    text: str
    place: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[AnyInput, AnyOutput]):
    """`run(input, user)` does the work, without a user when `user` is None; `summarise` describes it in a line of
    Markdown.

    A model reads `as_read` of the output, its field `text`, or else it as JSON. Over MCP structured
    content leaves out the fields `in_text`, wherever they are in the output, because that text says them. A tool that
    stores data also has `kept(input, output)`, which describes what it stored, if anything, and
    `undo(input, place, user, now)`.
    """

    name: str
    description: str
    input_model: type[AnyInput]
    output_model: type[AnyOutput]
    is_read_only: bool
    run: Callable[[AnyInput, User | None], AnyOutput]
    summarise: Callable[[AnyOutput, User | None], str]
    in_text: frozenset[str] = frozenset()
    kept: Callable[[AnyInput, AnyOutput], StoredByCall | None] | None = None
    # The part of the output for a caller who may write and not read.
    for_writers: Callable[[AnyInput, AnyOutput], AnyOutput] | None = None
    # If it is not `search` for a tool that reads and `write` for one that writes.
    named_scope: TokenScope | None = None
    undo: Callable[[AnyInput, dict[str, Any], User, datetime], None] | None = None
    # Takes note of what was given to a caller, with the arguments and the time.
    note: Callable[[AnyOutput, Any, object, datetime], None] | None = None
    # Whether `run` acts as the user itself, in short transactions: a search asks the models' endpoints between them.
    acts_itself: bool = False

    def call(self, data: Any, *, user: User | None, may_read: bool = True) -> AnyOutput:
        """Validate the input, and run as the caller. Raises `InvalidInput` and the `RecollectError`s of the layers
        below.

        Without `may_read` the output contains nothing that was stored before.
        """
        requested = self.read(data)
        if user is not None and binding_of(user):
            requested = in_project(requested, user)
        TOOL_CALLS.labels(self.name, str(getattr(requested, "mode", ""))).inc()
        with nullcontext() if self.acts_itself else acting_as(user or NOBODY):
            output = self.run(requested, user)
        return output if may_read or self.for_writers is None else self.for_writers(requested, output)

    def read(self, data: Any) -> AnyInput:
        """The arguments as this tool's input. Raises `InvalidInput`."""
        return validate(self.input_model, arguments(self.input_model, data))

    def text_of(self, output: AnyOutput) -> str:
        """The output as a model reads it, over MCP and in the chat."""
        if isinstance(output, Readable):
            return output.as_read
        text = getattr(output, "text", None)
        return text if isinstance(text, str) else json.dumps(output.as_data(), ensure_ascii=False)

    def sources_of(self, output: AnyOutput) -> list[str]:
        """The ids of what it shows. The text has short ones; by these a kept result goes with its sources."""
        others = output.shown if isinstance(output, Readable) else ()
        return sorted({*WHOLE_ID.findall(json.dumps(output.as_data())), *(str(each) for each in others if each)})

    @property
    def scope(self) -> TokenScope:
        """The scope that a token needs for a call."""
        return self.named_scope or (TokenScope.SEARCH if self.is_read_only else TokenScope.WRITE)

    @property
    def input_schema(self) -> dict[str, Any]:
        return published(self.input_model, "validation")

    @property
    def output_schema(self) -> dict[str, Any]:
        return published(self.output_model, "serialization")


def in_project(requested: AnyInput, user: User) -> AnyInput:
    """The input of a caller who is bound to a project: about this project, also where it names none.

    Raises `InsufficientScope` if it names another one.
    """
    named = {name: getattr(requested, name) or "" for name in PROJECT_FIELDS if name in type(requested).model_fields}
    with acting_as(user):
        # Maybe by a folder or repository that belongs to it.
        labels = {name: label_of(user=user, label=project_label(label)) for name, label in named.items()}
    return requested.model_copy(update={name: project_for(user, label) for name, label in labels.items()})


def without_fields(data: Any, names: frozenset[str]) -> Any:
    """JSON without the fields of these names, at any depth."""
    match data:
        case dict():
            return {name: without_fields(value, names) for name, value in data.items() if name not in names}
        case list():
            return [without_fields(each, names) for each in data]
    return data


def schema_without(schema: Any, names: frozenset[str]) -> Any:
    """The JSON Schema of `without_fields`."""
    match schema:
        case {"properties": dict(properties)}:
            others: dict[str, Any] = {name: each for name, each in schema.items() if name != "properties"}
            left = {name: schema_without(each, names) for name, each in properties.items() if name not in names}
            required = [name for name in others.pop("required", []) if name not in names]
            return {**others, "properties": left, **({"required": required} if required else {})}
        case dict():
            return {name: schema_without(value, names) for name, value in schema.items()}
        case list():
            return [schema_without(each, names) for each in schema]
    return schema


class Registry:
    """The tools in their order. It accepts any tool; `agent_tools.checks` reports errors."""

    def __init__(self, *tools: Tool[Any, Any]) -> None:
        self._tools = tools

    def get(self, name: str) -> Tool[Any, Any] | None:
        return next((tool for tool in self._tools if tool.name == name), None)

    def __iter__(self) -> Iterator[Tool[Any, Any]]:
        return iter(self._tools)


@cache
def published(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """The JSON Schema of a tool's input or output, without `$ref` and null; an input's in what every vendor accepts."""
    schema = _plain(model, mode)
    return _in_common(schema) if mode == "validation" else schema


@cache
def _plain(model: type[BaseModel], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    schema = model.model_json_schema(mode=mode)
    plain: dict[str, Any] = _without_references(schema, schema.pop("$defs", {}), count())
    return plain


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a tool from elsewhere, in what every vendor accepts. Raises `ValueError` for one that is no object,
    `KeyError` for a reference to nothing, `RecursionError` for one to itself.
    """
    plain = _in_common(_without_references({**schema, "$defs": None}, schema.get("$defs", {}), iter(range(20_000))))
    if plain.get("type") != "object":
        raise ValueError("A tool's arguments are an object.")
    return {"properties": {}, **plain}


def _without_references(schema: Any, definitions: Mapping[str, Any], steps: Iterator[int]) -> Any:
    """Replace each reference by what it refers to, and a choice between a type and null by the type.

    `steps`: how many are left, because references to references double.
    """
    if next(steps, None) is None:
        raise ValueError("The schema is too large.")
    if isinstance(schema, list):
        return [_without_references(each, definitions, steps) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        return _without_references({**definitions[schema["$ref"].rpartition("/")[2]], **beside}, definitions, steps)
    plain = {name: _without_references(value, definitions, steps) for name, value in schema.items()}
    choices = plain.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        plain.pop("anyOf")
        some = [choice for choice in choices if choice != {"type": "null"}]
        plain = {**(some[0] if len(some) == 1 else {"anyOf": some}), **plain}
    if plain.get("default", ...) is None:
        plain.pop("default")
    return plain


def _in_common(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in keywords that every vendor accepts. A default moves into the description."""
    common: dict[str, Any] = {name: value for name, value in schema.items() if name in COMMON_KEYWORDS}
    if "properties" in schema:
        common["properties"] = {name: _in_common(field) for name, field in schema["properties"].items()}
    if "items" in schema:
        common["items"] = _in_common(schema["items"])
    # Nothing and zero are what a reader expects.
    if (default := schema.get("default")) and "description" in common:
        common["description"] = f"{common['description']} Default: {default}."
    return common


def arguments(model: type[BaseModel], data: Any) -> Any:
    """The arguments with everything that has one possible meaning in the form that `model` expects.

    Raises `InvalidInput` for two fields of one meaning. A value without a single meaning stays as it is: `validate`
    refuses it.
    """
    if not isinstance(data, dict):
        return data
    schema = _plain(model, "validation")
    fields, required = schema.get("properties", {}), schema.get("required", [])
    named = _named(data, fields)
    strict: frozenset[str] = getattr(model, "as_sent", frozenset())
    return {
        name: _read(value, fields[name]) if name in fields and name not in strict else value
        for name, value in named.items()
        if name in required or not (value is None if name in strict else _is_left_out(value))
    }


def _is_left_out(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _named(data: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the names of the schema: `maxResults`, `max-results` and `limit` are `max_results`."""
    known = {_folded(name): name for name in fields}
    for names in SYNONYMS:
        if len(own := [known[name] for name in names if name in known]) == 1:
            known |= {name: own[0] for name in names if name not in known}
    named: dict[str, Any] = {}
    sent_as: dict[str, str] = {}
    for name, value in zip(map(str, data), data.values(), strict=True):
        meant = name if name in fields else known.get(_folded(name), name)
        if meant in named and not _is_left_out(value):
            if not _is_left_out(named[meant]):
                raise InvalidInput(
                    errors={meant: [f"This field is there twice: {sent_as[meant]} and {str(name)[:100]}."]}
                )
            named[meant], sent_as[meant] = value, str(name)[:100]
        named.setdefault(meant, value)
        sent_as.setdefault(meant, str(name)[:100])
    return named


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _read(value: Any, schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        folded = value.strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else value
        return folded if folded in schema["enum"] else value
    reader = READERS.get(str(schema.get("format"))) or READERS.get(str(schema.get("type")))
    return value if reader is None else reader(value)


def _day(value: Any) -> Any:
    """`2026-3-1` and `2026-03-01T12:30:00Z` name the day 2026-03-01, as it is written."""
    if not isinstance(value, str) or not (found := A_DAY.match(text := value.strip())):
        return value
    if (rest := text[found.end() :]) and not A_TIME_OF_DAY.fullmatch(rest):
        return value
    try:
        return date(int(found[1]), int(found[2]), int(found[3])).isoformat()
    except ValueError:
        return value


def _moment(value: Any) -> Any:
    """A day as `_day` reads it, and the time after it as it is."""
    day = _day(value)
    if day == value or not (found := A_DAY.match(text := value.strip())):
        return value
    return day + text[found.end() :]


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and A_NUMBER.fullmatch(value.strip()) else value


def _boolean(value: Any) -> Any:
    if isinstance(value, str):
        return TRUTHS.get(value.strip().lower(), value)
    return bool(value) if value in (0, 1) else value


def _text(value: Any) -> Any:
    """A number is read as the text that a person would type."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return str(value) if is_number else value


def _list(value: Any) -> Any:
    """One text is a list of one, and a list written as JSON is that list, without what is left out."""
    if isinstance(value, list):
        return [each for each in value if not _is_left_out(each)]
    if not isinstance(value, str):
        return value
    listed = _json_list(value)
    return [value] if listed is None else listed


def _json_list(text: str) -> list[Any] | None:
    """A list in JSON, or None for anything else."""
    # An argument longer than this is text, and is not tried as JSON.
    if not text.lstrip().startswith("[") or len(text) > 10_000:
        return None
    try:
        return list(_list(json.loads(text)))
    except (ValueError, RecursionError):
        return None


READERS: Mapping[str, Callable[[Any], Any]] = {
    "integer": lambda value: (
        int(float(value)) if isinstance(value, str) and AN_INTEGER.fullmatch(value.strip()) else value
    ),
    "number": _number,
    "boolean": _boolean,
    "string": _text,
    "array": _list,
    "date": _day,
    "date-time": _moment,
}
