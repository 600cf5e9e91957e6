"""Registers the start-up checks. Each one reports a fault that would appear only later, with the fix."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from core.rate_limits import parse_rate


@register
def check_rate_limits(**kwargs: Any) -> list[CheckMessage]:
    errors: list[CheckMessage] = []
    for name, text in settings.RATE_LIMITS.items():
        try:
            parse_rate(text or "1/second")
        except ValueError as error:
            hint = f"Correct RATE_LIMIT_{name.upper()}, or leave it empty for no limit."
            errors.append(Error(str(error), hint=hint, id="core.E005"))
    return errors
