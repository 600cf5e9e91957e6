"""`/api/v1/models/`: the language models that the caller may choose from."""

from typing import Annotated

from drf_spectacular.utils import extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from intake.identity import caller_of
from intake.language_models import default_for, offered
from intake.rest.acting import ActsAsCaller
from intake.rest.shapes import Output
from intake.schemas import problems


class ModelOutput(Output):
    name: Annotated[str, Field(description="By which it is chosen: `model` of the chat, of a conversation.")]
    takes_temperature: bool


class ModelListOutput(Output):
    models: Annotated[list[ModelOutput], Field(description="Empty in recall mode, which has no language model.")]
    default: Annotated[str | None, Field(description="What answers the caller's chats where none is chosen.")] = None


class ModelListView(ActsAsCaller):
    @extend_schema(operation_id="list_models", responses={200: ModelListOutput, **problems(401, 429, 503)})
    def get(self, request: Request) -> Response:
        """The language models: those that the settings name, and those that their servers list."""
        caller = caller_of(request)
        default = default_for(caller)
        models = [ModelOutput(name=each.name, takes_temperature=each.takes_temperature) for each in offered(caller)]
        return Response(ModelListOutput(models=models, default=default.name if default else None).as_data())
