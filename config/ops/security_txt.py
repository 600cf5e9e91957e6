"""`/.well-known/security.txt` (RFC 9116): the contact for security reports, if `SECURITY_CONTACT` is set."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.checks import CheckMessage, Error, register
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from intake.failures import not_found

SCHEMES = ("mailto:", "https://", "tel:")


@login_not_required
@require_safe
def security_txt(request: HttpRequest) -> HttpResponse:
    if not settings.SECURITY_CONTACT:
        return not_found(request)
    response = HttpResponse(_text(now=timezone.now()), content_type="text/plain; charset=utf-8")
    response["Cache-Control"] = "public, max-age=86400"
    return response


def _text(*, now: datetime) -> str:
    # The longest time that the RFC recommends.
    expires = (now + timedelta(days=364)).replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [f"Contact: {contact}" for contact in settings.SECURITY_CONTACT]
    return "\n".join([*lines, f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}", "Preferred-Languages: en", ""])


@register
def check_contacts(**kwargs: Any) -> list[CheckMessage]:
    wrong = [contact for contact in settings.SECURITY_CONTACT if not contact.startswith(SCHEMES)]
    hint = f"Begin each contact in SECURITY_CONTACT with one of {', '.join(SCHEMES)}."
    return [Error(f"{contact!r} is no address to be contacted at.", hint=hint, id="config.E001") for contact in wrong]
