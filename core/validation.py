"""Pydantic's complaints in the contract's words: per field, a list of sentences."""

import json
from collections import defaultdict
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from core.errors import InvalidInput

Model = TypeVar("Model", bound=BaseModel)

_STATED = "stated"


class Input(BaseModel):
    """The base of what may be sent or asked for: a field that nobody knows is refused."""

    model_config = ConfigDict(extra="forbid")


def stated(sentence: str) -> PydanticCustomError:
    """What a validator raises where the contract has the very words: they become the detail of the failure, too."""
    return PydanticCustomError(_STATED, "{sentence}", {"sentence": sentence})


def validate(model: type[Model], data: Any) -> Model:
    """The input (what `json.loads` gave) as a model; raises `InvalidInput` that names every field at fault.

    Pydantic reads it as JSON, where strictness is about JSON's own types: "5" is not a number, yet a date is a string.
    """
    if not isinstance(data, dict):
        raise InvalidInput("The input must be a JSON object.")
    try:
        return model.model_validate_json(json.dumps(_with_integers(data)), strict=True)
    except RecursionError:
        raise InvalidInput("The input is nested too deeply.") from None
    except ValidationError as error:
        raise InvalidInput(_sentence(error), errors=by_field(error)) from None


def _with_integers(data: Any) -> Any:
    """To JSON Schema 3.0 is an integer, and some languages write no other; where a fraction may stand, 3 will do."""
    match data:
        case float() if data.is_integer():
            return int(data)
        case dict():
            return {name: _with_integers(value) for name, value in data.items()}
        case list():
            return [_with_integers(value) for value in data]
    return data


def _sentence(error: ValidationError) -> str | None:
    """The first that is stated in so many words; None where there is none."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return next((problem["msg"] for problem in problems if problem["type"] == _STATED), None)


def by_field(error: ValidationError) -> dict[str, list[str]]:
    """Pydantic's messages never quote the input: it may be somebody's words, and of any length."""
    errors: dict[str, list[str]] = defaultdict(list)
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        field = ".".join(str(step) for step in problem["loc"]) or "input"
        errors[field].append(problem["msg"])
    return dict(errors)
