"""Serves the parts of an installable web application: service worker, offline page, icon."""

import hashlib
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.utils import translation
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_safe
from django.views.i18n import JavaScriptCatalog

from intake.sentences import SENTENCES


@login_not_required
@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """At the root, because a worker controls only addresses below its own. Its text changes with the files that it
    caches.
    """
    text = render_to_string("intake/worker.js", {"version": ""})
    version = hashlib.blake2b((text + settings.SECRET_KEY).encode(), digest_size=6).hexdigest()
    return HttpResponse(
        render_to_string("intake/worker.js", {"version": version}), content_type="text/javascript; charset=utf-8"
    )


@login_not_required
@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    return render(None, "intake/offline.html")


@login_not_required
@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """For clients that ask without having read a page."""
    return HttpResponseRedirect(static("intake/icon-192.png"))


class _Catalog(JavaScriptCatalog):
    """Adds the API's English sentences to the scripts' own texts."""

    def get_catalog(self) -> dict[str, Any]:
        return {**super().get_catalog(), "sentences": {text: translation.gettext(text) for text in SENTENCES}}


@login_not_required
@require_safe
def catalog(request: HttpRequest, language: str) -> HttpResponseBase:
    """The texts of the pages' JavaScript, as a script that defines `django.gettext`; the same for all users."""
    if language not in dict(settings.LANGUAGES):
        raise Http404
    with translation.override(language):
        response = _Catalog.as_view(packages=["intake"])(request)
    patch_cache_control(response, public=True, max_age=3600)
    return response
