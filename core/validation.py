"""Parses requests: strict JSON, then a pydantic model, whose errors become the contract's sentences."""

import ipaddress
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import IO, Annotated, Any, ClassVar, TypeVar
from urllib.parse import SplitResult, urlsplit

from django.http import HttpRequest, RawPostDataException
from drf_spectacular.utils import OpenApiParameter
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from core.errors import InvalidInput
from core.text import Sentence, with_whole_pairs
from core.text import gettext_noop as _

Parsed = TypeVar("Parsed", bound=BaseModel)

_STATED = "stated"
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?", re.ASCII)


# Longer than anybody types, and short enough to hash quickly.
LONGEST_PASSWORD = 4096
LONGEST_EMAIL = 254
# The length of an id, a page's cursor or a time, with room for an invalid one.
LONGEST_REFERENCE = 100
NO_JSON = "The body is not valid JSON."
NO_NUL = _("A text cannot have a NUL character (U+0000).")


def text_limit(characters: int) -> dict[str, Any]:
    """For a field's `json_schema_extra`: the limit that a service enforces with its own sentence."""
    return {"maxLength": characters}


def body_of(request: HttpRequest) -> bytes:
    """Raises `InvalidInput` for a form of several parts, which a middleware has read already."""
    try:
        return request.body
    except RawPostDataException:
        raise InvalidInput(NO_JSON) from None


def parse_json(body: bytes) -> Any:
    """Raises `InvalidInput` if the body is not JSON in UTF-8. Half of a surrogate pair is read as U+FFFD."""
    try:
        text = with_whole_pairs(body).decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise InvalidInput("The JSON is nested too deeply.") from None
    except ValueError:
        raise InvalidInput(NO_JSON) from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate names: two programs may read different values from the same body."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice")
    return members


class StrictJSONParser(JSONParser):
    """The JSON parser of DRF's views."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return parse_json(stream.read())


def strict_parts(address: str) -> SplitResult | None:
    """The parts of an absolute address; None unless every program reads the same ones.

    Python's parser accepts text behind an IPv6 address in brackets (`http://[::1]evil/`), an empty port, and
    backslashes, of which a browser makes something else.
    """
    if not address.isascii() or not address.isprintable() or " " in address or "\\" in address:
        return None
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or not (_HOST.fullmatch(host) or _is_ipv6(host)):
        return None
    written = f"[{host}]" if ":" in host else host
    return parts if parts.netloc.lower() == (written if port is None else f"{written}:{port}") else None


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return "%" not in host


class Input(BaseModel):
    """The base of request bodies and queries: unknown fields are refused.

    `as_sent`: the fields of a tool's arguments that are not read leniently, because a specification says what they are.
    """

    model_config = ConfigDict(extra="forbid")
    as_sent: ClassVar[frozenset[str]] = frozenset()


class Shape(BaseModel):
    """The base of what a service returns in the form that the API publishes."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


class Output(Shape):
    """A shape in the contract's camel case."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    def as_data(self) -> dict[str, Any]:
        """JSON types, in the contract's names; missing values are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def as_json(self) -> str:
        """`as_data`, as a JSON text."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


def stated(sentence: str) -> PydanticCustomError:
    """Raised by a validator with a message from the contract, which also becomes the failure's detail."""
    return PydanticCustomError(_STATED, "{sentence}", {"sentence": sentence})


def refuse_nul(text: str) -> str:
    """For pydantic's `AfterValidator`: refuse NUL, which PostgreSQL cannot store."""
    if "\0" in text:
        raise stated(NO_NUL)
    return text


def parse_day(text: str) -> date:
    """Raises `ValueError`. Python also reads 20260301 and 2026-W09-7; here one day has one name."""
    day = date.fromisoformat(text)
    if day.isoformat() != text:
        raise ValueError(text)
    return day


def validate(model: type[Parsed], data: Any) -> Parsed:
    """Validate the input (from `json.loads`) against a model; raises `InvalidInput` that names every wrong field.

    Pydantic reads it as JSON, where strictness is about JSON's own types: "5" is not a number, but a date is a string.
    """
    if not isinstance(data, dict):
        raise InvalidInput("The input must be a JSON object.")
    try:
        return model.model_validate_json(json.dumps(_with_integers(data)), strict=True)
    except RecursionError:
        raise InvalidInput("The input is nested too deeply.") from None
    except ValidationError as error:
        raise InvalidInput(_sentence(error), errors=by_field(error, model)) from None


def _with_integers(data: Any) -> Any:
    """Read 3.0 as an integer: JSON Schema accepts it, and some languages write no other form. Where a fraction is
    allowed, 3 is also valid.
    """
    match data:
        case float() if data.is_integer():
            return int(data)
        case dict():
            return {name: _with_integers(value) for name, value in data.items()}
        case list():
            return [_with_integers(value) for value in data]
    return data


def _sentence(error: ValidationError) -> str | None:
    """The first message that a validator stated; None if there is none."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return next((problem["msg"] for problem in problems if problem["type"] == _STATED), None)


def by_field(error: ValidationError, model: type[BaseModel] | None = None) -> dict[str, list[str]]:
    """The messages of each field. Pydantic's never quote the input, which may be personal and of any length; with the
    `model`, the message for an unknown field names the fields that exist.
    """
    errors: dict[str, list[str]] = defaultdict(list)
    names = [field.alias or name for name, field in model.model_fields.items()] if model else []
    known = f". Fields: {', '.join(names)}." if names else ", and no other."
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        # Answers quote a field's name, which the client may have invented.
        field = ".".join(str(step) for step in problem["loc"])[:100] or "input"
        is_unknown = model is not None and problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1
        if len(errors) < 50 or field in errors:
            errors[field].append(f"There is no such field{known}" if is_unknown else problem["msg"])
    return dict(errors)


def checked(text: str, *, field: str, max_length: int, may_be_blank: bool = False) -> str:
    """The text, unchanged. Raises `InvalidInput` that names the field and never quotes the text."""
    complaint = _complaint(text, max_length=max_length, may_be_blank=may_be_blank)
    if complaint:
        raise InvalidInput(errors={field: [complaint]})
    return text


def _complaint(text: str, *, max_length: int, may_be_blank: bool) -> str:
    if not may_be_blank and not text.strip():
        return _("Enter some text.")
    if len(text) > max_length:
        return Sentence(_("At most %(count)s characters; this has %(length)s."), count=max_length, length=len(text))
    if "\0" in text:
        return NO_NUL
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return _("A text cannot have half of a surrogate pair (U+D800 to U+DFFF).")
    return ""


Query = TypeVar("Query", bound=Input)

NO_DAY = "A date is written YYYY-MM-DD."
NO_MOMENT = "A time is written with its offset, such as 2025-03-01T00:00:00Z."


PlainText = Annotated[str, AfterValidator(refuse_nul)]


def _as_day(text: str) -> date:
    try:
        return parse_day(text)
    except ValueError:
        raise stated(NO_DAY) from None


Day = Annotated[date, BeforeValidator(_as_day)]


def _as_moment(value: object) -> datetime:
    """Pydantic would also accept a number in a text, as the seconds since 1970."""
    if not isinstance(value, str) or "T" not in value.upper():
        raise stated(NO_MOMENT)
    try:
        return datetime.fromisoformat(value.upper())
    except ValueError:
        raise stated(NO_MOMENT) from None


def _in_utc(at: datetime) -> datetime:
    """PostgreSQL knows no offset of more than 15:59."""
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("this time is before the year 1 or after the year 9999") from None


WrittenTime = Annotated[AwareDatetime, BeforeValidator(_as_moment), AfterValidator(_in_utc)]


LIMIT = OpenApiParameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}, description="How many at most."
)


def validate_query(model: type[Query], request: Request) -> Query:
    """Raises `InvalidInput` that names every wrong or repeated parameter."""
    parameters = request.query_params
    repeated = [name for name in parameters if len(parameters.getlist(name)) > 1]
    if repeated:
        raise InvalidInput(errors={name: ["Give this once."] for name in repeated})
    try:
        return model.model_validate_strings(parameters.dict())
    except ValidationError as error:
        raise InvalidInput(errors=by_field(error)) from None
