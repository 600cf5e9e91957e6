"""Validates a query string with a model, with the same errors as for a body."""

from datetime import date
from typing import Annotated, TypeVar

from drf_spectacular.utils import OpenApiParameter
from pydantic import AfterValidator, BeforeValidator, ValidationError
from rest_framework.request import Request

from core.errors import InvalidInput
from core.validation import Input, by_field, parse_day, refuse_nul, stated

Query = TypeVar("Query", bound=Input)

NO_DAY = "A date is written YYYY-MM-DD."


PlainText = Annotated[str, AfterValidator(refuse_nul)]


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
    """Raises `InvalidInput` that names every wrong or repeated parameter."""
    given = request.query_params
    repeated = [name for name in given if len(given.getlist(name)) > 1]
    if repeated:
        raise InvalidInput(errors={name: ["Give this once."] for name in repeated})
    try:
        return model.model_validate_strings(given.dict())
    except ValidationError as error:
        raise InvalidInput(errors=by_field(error)) from None
