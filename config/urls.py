"""The root URLs: pages, the API under /api/v1/, the admin."""

from django.contrib import admin
from django.urls import include, path

from config.api_document import read_api
from config.health import healthz
from config.metrics import metrics
from config.security_txt import security_txt
from intake.views import accounts, security

handler400 = "intake.views.failures.bad_request"
handler403 = "intake.views.failures.permission_denied"
handler404 = "intake.views.failures.not_found"
handler500 = "intake.views.failures.server_error"

urlpatterns = [
    path("healthz", healthz),
    path("metrics", metrics),
    path(".well-known/security.txt", security_txt),
    path("api/v1/", include("config.api")),
    path("api/docs/", read_api, name="read_api"),
    path("settings/", include("agent_tools.urls")),
    path("", include("agent_tools.oauth.urls")),
    path("admin/", admin.site.urls),
    path("", include("memory.pages.urls")),
    path("", include("imports.pages.urls")),
    path("", include("intake.urls")),
    path("", include("intake.accounts.routes")),
    # The names by which django-allauth looks for this product's own pages.
    path("login/", accounts.LoginView.as_view(), name="account_login"),
    path("logout/", accounts.LogoutView.as_view(), name="account_logout"),
    path("register/", accounts.RegisterView.as_view(), name="account_signup"),
    path("settings/account/password/", security.password, name="account_change_password"),
    path("settings/account/password/", security.password, name="account_set_password"),
]
