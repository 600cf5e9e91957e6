"""The root URLs: pages, the API under /api/v1/ with its OpenAPI document, the admin."""

import hashlib
import json
import threading
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import URLPattern, URLResolver, include, path
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import AllowAny
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from agent_tools import token_rest
from agent_tools.urls import tool_urls
from chat.endpoint.views import program_urls
from chat.pages import account, account_settings, agents
from chat.urls import agent_pages, conversation_pages, import_pages, memory_pages
from config.ops.about import about
from config.ops.endpoints import healthz
from config.ops.index_page import index_page
from config.ops.metrics import metrics
from config.ops.security_txt import security_txt
from core.errors import InvalidInput
from core.rate_limits import RequestThrottle
from imports.urls import import_urls

# The document changes only with the program. A process builds it once and sends the same bytes to every client; a
# client that has them already gets 304.

JSON, YAML = "application/vnd.oai.openapi+json", "application/vnd.oai.openapi"
# By `?format=`.
FORMATS = {"json": JSON, "yaml": YAML}
# By `Accept`; the first one that a client accepts.
OFFERED = {JSON: JSON, "application/json": JSON, YAML: YAML, "application/yaml": YAML}
# Any cache may keep it, but must check each time whether it is still current.
CACHE_CONTROL = "public, no-cache"

# By the name of an operation: its request, and the status and body of its response.
EXAMPLES = settings.BASE_DIR / "config" / "examples.json"

_building = threading.Lock()


def document(media_type: str) -> tuple[bytes, str]:
    """The document in one of `FORMATS`, and its entity tag. Concurrent first requests wait for one that builds it."""
    with _building:
        return _rendered(media_type)


@lru_cache(maxsize=len(FORMATS))
def _rendered(media_type: str) -> tuple[bytes, str]:
    renderer = OpenApiJsonRenderer() if media_type == JSON else OpenApiYamlRenderer()
    # drf-spectacular declares no types here.
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    body: bytes = renderer.render(schema)
    return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def add_examples(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A drf-spectacular hook: an example of each operation, as it was run."""
    kept = json.loads(EXAMPLES.read_text())
    for operation in (each for methods in result["paths"].values() for each in methods.values()):
        example = kept.get(operation["operationId"], {})
        response = operation["responses"].get(str(example.get("status")), {})
        for part, described in (("request", operation.get("requestBody", {})), ("response", response)):
            for kind, media in described.get("content", {}).items():
                if part in example and ("json" in kind) != isinstance(example[part], str):
                    media["example"] = example[part]
    return result


class _FailuresInJson(BaseContentNegotiation):
    """DRF's own view would refuse the media types of OpenAPI, for which it has no renderer."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> tuple[BaseRenderer, str]:
        return JSONRenderer(), JSONRenderer.media_type


class ApiDocumentView(APIView):
    """The same for all callers: it reads no session and no token, and does not query the database."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [RequestThrottle]
    content_negotiation_class = _FailuresInJson
    schema = None

    def get(self, request: Request) -> HttpResponse:
        media_type = _requested(request)
        body, etag = document(media_type)
        response = get_conditional_response(request, etag=etag) or HttpResponse(body, content_type=media_type)
        response["ETag"] = etag
        response["Cache-Control"] = CACHE_CONTROL
        patch_vary_headers(response, ["Accept"])
        return response


def _requested(request: Request) -> str:
    """The media type. Raises `InvalidInput` for an unknown `?format=`."""
    name = request.query_params.get("format")
    if name is None:
        found = request.get_preferred_type([*OFFERED])
        return OFFERED.get(found or YAML, YAML)
    if name not in FORMATS:
        raise InvalidInput(errors={"format": [f"This is one of {', '.join(FORMATS)}."]})
    return FORMATS[name]


@login_not_required
@require_safe
def read_api(request: HttpRequest) -> HttpResponse:
    """`/api/docs/`: Swagger UI on the document."""
    return render(request, "agent_tools/api.html")


# Agents' calls first: they are the most frequent, and paths are matched from the top.
api_urls: list[URLPattern | URLResolver] = [
    *tool_urls(),
    path("", include("chat.rest.urls")),
    *token_rest.api.urlpatterns,
    *import_urls(),
    path("schema/", ApiDocumentView.as_view(), name="schema"),
]


handler400 = "intake.failures.bad_request"
handler403 = "intake.failures.permission_denied"
handler404 = "intake.failures.not_found"
handler500 = "intake.failures.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("staff/index/", index_page, name="staff_index"),
    path("about/", about, name="about"),
    path("metrics", metrics),
    path(".well-known/security.txt", security_txt),
    path("api/v1/", include(api_urls)),
    path("v1/", include(program_urls)),
    path("api/docs/", read_api, name="read_api"),
    path("settings/", include((agent_pages, "agent_tools"))),
    path("", include("agent_tools.oauth.urls")),
    path("admin/", admin.site.urls),
    path("memory/context/", agents.context, name="context"),
    path("memory/context/change/", agents.change_context, name="change_context"),
    path("", include((memory_pages, "memory"))),
    path("", include((import_pages, "imports"))),
    path("", include((conversation_pages, "intake"))),
    path("", include("intake.accounts.routes")),
    # The names by which django-allauth looks for this product's own pages.
    path("login/", account.LoginView.as_view(), name="account_login"),
    path("logout/", account.log_out, name="account_logout"),
    path("register/", account.RegisterView.as_view(), name="account_signup"),
    path("settings/account/password/", account_settings.password, name="account_change_password"),
    path("settings/account/password/", account_settings.password, name="account_set_password"),
]
