"""What makes the pages an application that can be installed: its worker, its page without a connection, its picture."""

import hashlib

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.views.decorators.http import require_safe


@login_not_required
@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """At the root, for a worker answers for addresses below its own alone. Its text changes with the files it keeps."""
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
    """For those who ask without having read a page."""
    return HttpResponseRedirect(static("intake/icon-192.png"))
