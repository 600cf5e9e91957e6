"""Reading JSON that anybody may have sent: what is no JSON, or nested to break the reader, is the sender's mistake."""

import json
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import JSONParser

from core.errors import InvalidInput


def parse_json(body: bytes) -> Any:
    """Raises `InvalidInput` for what is not JSON in UTF-8."""
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise InvalidInput("The JSON is nested too deeply.") from None
    except ValueError:
        raise InvalidInput("The body is not valid JSON.") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Which of two values is meant nobody knows, and who checks a body may know otherwise than who uses it."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is given twice")
    return members


class StrictJSONParser(JSONParser):
    """For DRF's views."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        return parse_json(stream.read())
