"""The views of `/v1`. A token lets in, and nothing else: no cookie is read, so a page of any site may ask."""

from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path

from core.errors import RecollectError
from core.responses import retry_after, streaming, vendor_problem


def _refused(error: RecollectError, _request: HttpRequest, *, status: int | None = None) -> JsonResponse:
    from chat.endpoint.answering import data_of

    data = data_of(error)
    problem, usual = vendor_problem(**data)
    response = JsonResponse(problem, status=status or usual)
    if data.get("retryable"):
        response["Retry-After"] = retry_after(error)
    else:
        # Both vendors' clients repeat a request whose status is 500 or more, unless they read this.
        response["x-should-retry"] = "false"
    return response


def _view(method: str, name: str) -> Any:
    async def view(request: HttpRequest, **about: str) -> HttpResponseBase:
        # Imported here because it imports the agent loop, which no page should wait for at start-up.
        serving = await sync_to_async(import_module)("chat.endpoint.serving")
        response: HttpResponseBase = await getattr(serving, name)(request, **about)
        return response

    return streaming(method, refused=_refused)(view)


program_urls = [
    path("models", _view("GET", "list_models")),
    # With slashes, as of a server that lists its models.
    path("models/<path:name>", _view("GET", "list_models")),
    path("chat/completions", _view("POST", "chat_completions")),
    path("responses", _view("POST", "responses")),
    path("messages", _view("POST", "messages")),
    path("messages/count_tokens", _view("POST", "count_tokens")),
    path("embeddings", _view("POST", "embed")),
]
