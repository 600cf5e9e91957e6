"""The API of the account: models, export, deletion."""

from collections.abc import Callable, Iterator
from typing import Annotated, Self

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.views import APIView

from chat.exporting import account_as_json, json_zip, markdown_zip
from chat.rest.downloads import choice, download
from chat.rest.shapes import AccountDeleted, PasswordConfirmation
from core import rate_limits
from core.errors import InvalidInput
from core.isolation.acting import Caller, acting_as
from core.text import LONGEST_PROJECT, Sentence, gettext_noop, in_language, page_language, project_label
from core.validation import Output, text_limit
from intake.accounts.proofs import refuse_without_recent_proof
from intake.chats import deleting, exporting
from intake.llm.language_models import LanguageModel, ask_servers, default_for, offered
from intake.llm.windows import note_on_window, window_of
from intake.models import User
from intake.models.conversations import label_of
from intake.operations import Operations
from memory.projects import read_project


class ModelOutput(Output):
    name: Annotated[str, Field(description="By which it is chosen: `model` of the chat, of a conversation.")]
    title: Annotated[str, Field(description="As people read it.")]
    takes_temperature: bool
    context_tokens: Annotated[
        int | None, Field(description="How many tokens it reads at once, its answer included, as far as known.")
    ] = None
    note: Annotated[str | None, Field(description="On a window that is too small: a sentence with what mends it.")] = (
        None
    )

    @classmethod
    def of(cls, model: LanguageModel, *, language: str) -> Self:
        note, window = note_on_window(model), window_of(model, asks=False)
        return cls(
            name=model.name,
            title=model.title,
            takes_temperature=model.takes_temperature,
            context_tokens=None if window.is_assumed else window.tokens,
            note=in_language(note, language) if note else None,
        )


class ModelListOutput(Output):
    models: Annotated[list[ModelOutput], Field(description="Empty in recall mode, which has no language model.")]
    default: Annotated[str | None, Field(description="What answers the caller's chats where none is chosen.")] = None


# Of a project in a query: perhaps behind a hyphen.
LONGEST_LABEL = LONGEST_PROJECT + len("-")
LABEL = {"type": "string", **text_limit(LONGEST_LABEL)}
# By `as`: the function that makes the pieces, the file's extension and its type.
FORMS: dict[str, tuple[Callable[..., Iterator[bytes]], str, str]] = {
    "json": (account_as_json, ".json", "application/json"),
    "zip": (json_zip, "-json.zip", "application/zip"),
    "markdown": (markdown_zip, "-markdown.zip", "application/zip"),
}


def project_in(request: Request) -> str:
    """The label in the query, perhaps behind a hyphen; empty without one. Raises `InvalidInput`."""
    values = request.query_params.getlist("project")
    message = gettext_noop("Name one project, by at most %(count)s characters.")
    label = "".join(values).strip()
    if len(values) > 1 or "\0" in label or len(label) > LONGEST_LABEL:
        raise InvalidInput(errors={"project": [Sentence(message, count=LONGEST_PROJECT)]})
    return label


def _project_of_export(request: Request, user: User) -> str | None:
    """None without one; it may be named by a folder or repository of it. Raises `NotFound` for a label of nothing."""
    named = project_in(request)
    if not named:
        return None
    hyphen, label = ("-" if named.startswith("-") else ""), named.removeprefix("-")
    label = project_label(label) or label
    with acting_as(user):
        return hyphen + read_project(user=user, name=label_of(user=user, label=label)).name


# Its operations act as their caller themselves: no transaction may be open while servers are asked.
api = Operations(APIView, is_bound=False)


@api("get", "models/", ModelListOutput)
def list_models(request: Request, caller: Caller) -> ModelListOutput:
    """The language models: those that the settings name, and those that their servers list."""
    language = page_language(request.headers)
    ask_servers()
    with acting_as(caller):
        default = default_for(caller)
        models = [ModelOutput.of(each, language=language) for each in offered(caller)]
    return ModelListOutput(models=models, default=default.name if default else None)


@api(
    "get",
    "account/export/",
    fails=[400, 404],
    throttle_scope="export",
    parameters=[
        OpenApiParameter(
            "as",
            str,
            enum=list(FORMS),
            description="One JSON document, a zip of it with the files, or Markdown to read.",
        ),
        OpenApiParameter(
            "project",
            LABEL,
            description="Only what belongs to this project: chats, their files, notes, daily logs, records and "
            "waiting proposals. With a hyphen before the name everything but that. Neither has the profile and "
            "the activity. Without it: everything, closed projects too.",
        ),
    ],
    also={(200, "application/json"): OpenApiTypes.OBJECT, (200, "application/zip"): OpenApiTypes.BINARY},
)
def export_account(request: Request, user: User) -> StreamingHttpResponse:
    """Everything of the person, sent while it is read. The JSON can be imported again."""
    refuse_without_recent_proof(request)
    now = timezone.now()
    pieces, ending, content_type = FORMS[choice(request.query_params.getlist("as"), tuple(FORMS))]
    project = _project_of_export(request, user)
    of_one = "" if project is None else f" {exporting.safe_name(project) or 'project'}"
    return download(
        request=request,
        user=user,
        pieces=pieces(user=user, now=now, project=project),
        name=f"recollect-{now:%Y-%m-%d}{of_one}{ending}",
        content_type=content_type,
    )


@api("delete", "account/", AccountDeleted)
def delete_account(request: Request, user: User, body: PasswordConfirmation) -> AccountDeleted:
    """Remove the account and everything said or stored in it, for good. The response counts what was deleted."""
    rate_limits.take_for_password(user.get_username(), address=rate_limits.client_address(request))
    if not user.check_password(body.password):
        raise InvalidInput(
            gettext_noop("The password is not right."),
            errors={"password": [gettext_noop("This is not your password.")]},
        )
    deleted = deleting.delete_account(user=user)
    return AccountDeleted(deleted_at=timezone.now(), deleted=deleted, also=list(deleting.ALSO))
