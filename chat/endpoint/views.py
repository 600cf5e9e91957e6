"""The views of `/v1`. A token lets in, and nothing else: no cookie is read, so a page of any site may ask."""

from importlib import import_module
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import path

from core.responses import streaming


def _view(method: str, name: str) -> Any:
    async def view(request: HttpRequest, **about: str) -> HttpResponseBase:
        # Imported here because it imports the agent loop, which no page should wait for at start-up.
        serving = await sync_to_async(import_module)("chat.endpoint.serving")
        response: HttpResponseBase = await getattr(serving, name)(request, **about)
        return response

    return streaming(method)(view)


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
