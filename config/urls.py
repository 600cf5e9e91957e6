"""The root URLs: pages, the API under /api/v1/, the admin."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

from agent_tools import pages
from agent_tools.urls import token_urls, tool_urls
from config.api_document import ApiDocumentView, read_api
from config.ops.endpoints import about, healthz, index_page, metrics, security_txt
from imports.urls import import_urls
from intake.web import account
from intake.web.chat import answering, changed_chats, chat, stop_turn, turn_events
from memory.rest import memory_urls

# --- The URLs of the API under /api/v1/: the endpoints of each app, and the OpenAPI document ---

# Agents' calls first: they are the most frequent, and paths are matched from the top.
api_urls: list[URLPattern | URLResolver] = [
    *tool_urls(),
    path("intake/chat", chat, name="chat"),
    path("intake/events", changed_chats, name="changes"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("intake/turns/<str:turn_id>/events", turn_events, name="turn_events"),
    path("intake/turns/<str:turn_id>/stop", stop_turn, name="stop_turn"),
    path("intake/answering", answering, name="answering"),
    path("", include("intake.rest.urls")),
    *token_urls(),
    *memory_urls(),
    *import_urls(),
    path("schema/", ApiDocumentView.as_view(), name="schema"),
]


# --- The root URLs ---

handler400 = "intake.web.middleware.bad_request"
handler403 = "intake.web.middleware.permission_denied"
handler404 = "intake.web.middleware.not_found"
handler500 = "intake.web.middleware.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("staff/index/", index_page, name="staff_index"),
    path("about/", about, name="about"),
    path("metrics", metrics),
    path(".well-known/security.txt", security_txt),
    path("api/v1/", include(api_urls)),
    path("api/docs/", read_api, name="read_api"),
    path("settings/", include("agent_tools.urls")),
    path("", include("agent_tools.oauth.urls")),
    path("admin/", admin.site.urls),
    path("memory/context/", pages.context, name="context"),
    path("memory/context/change/", pages.change_context, name="change_context"),
    path("", include("memory.pages.urls")),
    path("", include("imports.urls")),
    path("", include("intake.urls")),
    path("", include("intake.accounts.routes")),
    # The names by which django-allauth looks for this product's own pages.
    path("login/", account.LoginView.as_view(), name="account_login"),
    path("logout/", account.log_out, name="account_logout"),
    path("register/", account.RegisterView.as_view(), name="account_signup"),
    path("settings/account/password/", account.password, name="account_change_password"),
    path("settings/account/password/", account.password, name="account_set_password"),
]
