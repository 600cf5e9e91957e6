"""Reading a query string into a model, with the complaints that a body would get."""

from datetime import date
from typing import Annotated, TypeVar

from drf_spectacular.utils import OpenApiParameter
from pydantic import AfterValidator, BeforeValidator, ValidationError
from rest_framework.request import Request

from core.errors import InvalidInput
from core.validation import Input, by_field, stated

Query = TypeVar("Query", bound=Input)

NO_DAY = "A date is written YYYY-MM-DD."


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise stated("A text cannot have a NUL character (U+0000).")
    return text


PlainText = Annotated[str, AfterValidator(_without_nul)]
"""A text that the database can be asked for."""


def parse_day(text: str) -> date:
    """Raises `ValueError`. Python also reads 20260301 and 2026-W09-7; here one day has one name."""
    day = date.fromisoformat(text)
    if day.isoformat() != text:
        raise ValueError(text)
    return day


def _as_day(text: str) -> date:
    try:
        return parse_day(text)
    except ValueError:
        raise stated(NO_DAY) from None


Day = Annotated[date, BeforeValidator(_as_day)]


LIMIT = OpenApiParameter(
    "limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 50}, description="How many at most."
)


def validate_query(model: type[Query], request: Request) -> Query:
    """Raises `InvalidInput` that names every parameter at fault, also one that is given twice."""
    given = request.query_params
    repeated = [name for name in given if len(given.getlist(name)) > 1]
    if repeated:
        raise InvalidInput(errors={name: ["Give this once."] for name in repeated})
    try:
        return model.model_validate_strings(given.dict())
    except ValidationError as error:
        raise InvalidInput(errors=by_field(error)) from None
