"""Checks a request's Host and Origin by the deployment's settings.

A page of another site can make a browser send requests here, and a name that it controls can point here. The bearer
token already stops both; this check also hides from them that a server is running.
"""

from contextvars import ContextVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest

from core.validation import strict_parts

MISDIRECTED, FORBIDDEN = 421, 403
# This server's own address in the current request, such as `https://recollect.example`; empty over stdio.
origin: ContextVar[str] = ContextVar("origin", default="")


def refusal(request: ASGIRequest) -> tuple[int, str] | None:
    """A status and a sentence for a request to another site."""
    try:
        host = request.get_host()
    except DisallowedHost:
        return MISDIRECTED, "This Host is not one of this server's: see ALLOWED_HOSTS."
    origin = request.META.get("HTTP_ORIGIN")
    own = f"{request.scheme}://{host}"
    if origin is not None and origin != own and not is_trusted(origin):
        return FORBIDDEN, "This Origin is not trusted: see CORS_ORIGINS and CSRF_TRUSTED_ORIGINS."
    return None


def is_trusted(origin: str) -> bool:
    """As Django's CSRF check reads the setting: exact, or a wildcard for subdomains. `CORS_ORIGINS` may be all."""
    if origin in settings.CSRF_TRUSTED_ORIGINS or {origin, "*"} & set(settings.CORS_ORIGINS):
        return True
    given = strict_parts(origin)
    if given is None:
        return False
    wildcards = (urlsplit(trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS if "*" in trusted)
    return any(
        given.scheme == trusted.scheme and f".{given.netloc}".lower().endswith(trusted.netloc.lstrip("*").lower())
        for trusted in wildcards
    )
