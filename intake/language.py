"""The language of pages: the person's own, else their browser's; everything that is no page speaks English."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

from intake.middleware import Middleware

# Programs read these word for word (and DRF would translate its errors); the admin is in English.
NO_PAGES = ("/api/", "/mcp", "/admin/", "/.well-known/", "/metrics", "/healthz")


class LanguageMiddleware(Middleware):
    """Activates the browser's language first, and the person's once a view is found, where they are looked up anyway.

    Outside of a page nothing is activated, which is English (LANGUAGE_CODE).
    """

    def refuse(self, request: HttpRequest) -> None:
        if is_page(request):
            translation.activate(translation.get_language_from_request(request))

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        if is_page(request) and request.user.is_authenticated and (chosen := request.user.language):
            translation.activate(translation.get_supported_language_variant(chosen))

    def end(self, request: HttpRequest) -> None:
        translation.deactivate()

    def change(self, response: HttpResponseBase) -> HttpResponseBase:
        if response.headers.get("Content-Type", "").startswith("text/html"):
            patch_vary_headers(response, ["Accept-Language"])
        return response


class LanguageForm(forms.Form):
    language = forms.ChoiceField(
        label=_("Language"),
        label_suffix="",
        required=False,
        choices=[("", _("As the browser has it")), *settings.LANGUAGES],
        error_messages={"invalid_choice": _("There is no such language: choose one of these.")},
        help_text=_("Of these pages. A chat is answered in the language in which you write."),
    )


@login_not_required
@require_safe
def catalog(request: HttpRequest, language: str) -> HttpResponse:
    """The texts of the pages' JavaScript, as a script that defines `django.gettext`; the same for everybody."""
    if language not in dict(settings.LANGUAGES):
        raise Http404
    with translation.override(language):
        response: HttpResponse = JavaScriptCatalog.as_view(packages=["intake"])(request)
    patch_cache_control(response, public=True, max_age=3600)
    return response


def is_page(request: HttpRequest) -> bool:
    return not request.path.startswith(NO_PAGES)
