"""Pydantic's complaints in the contract's words: per field, a list of sentences."""

import json
from collections import defaultdict
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from intake.errors import InvalidInput

Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], data: Any) -> Model:
    """The input (what `json.loads` gave) as a model; raises `InvalidInput` that names every field at fault.

    Pydantic reads it as JSON, where strictness is about JSON's own types: "5" is not a number, yet a date is a string.
    """
    if not isinstance(data, dict):
        raise InvalidInput("The input must be a JSON object.")
    try:
        return model.model_validate_json(json.dumps(data), strict=True)
    except RecursionError:
        raise InvalidInput("The input is nested too deeply.") from None
    except ValidationError as error:
        raise InvalidInput(errors=_by_field(error)) from None


def _by_field(error: ValidationError) -> dict[str, list[str]]:
    """The messages never quote the input: it may be somebody's words, and of any length."""
    errors: dict[str, list[str]] = defaultdict(list)
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        field = ".".join(str(step) for step in problem["loc"]) or "input"
        errors[field].append(problem["msg"])
    return dict(errors)
