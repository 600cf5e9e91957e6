"""Names, addresses and secrets in OAuth, and the check of Host and Origin.

Names and addresses in OAuth: this server's own, and the redirect addresses of clients.
"""

import hashlib
import secrets
from contextvars import ContextVar
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from django.conf import settings
from django.contrib.auth.hashers import BasePasswordHasher
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare
from django.utils.translation import gettext as _

from core.validation import strict_parts

MCP_PATH = "/mcp"
TOKENS_PATH = "/api/v1/tokens/"
METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# Of the query that binds an address.
PROJECT = "project"


def resource_of(request: HttpRequest) -> str:
    """The identifier of the MCP endpoint (RFC 8707), with the host name of the request."""
    return f"{origin_of(request)}{MCP_PATH}"


def tokens_resource_of(request: HttpRequest) -> str:
    """The identifier of the endpoint that makes tokens: a command line gets one of its own there, once."""
    return f"{origin_of(request)}{TOKENS_PATH}"


def metadata_of(request: HttpRequest) -> str:
    """The address of the endpoint's metadata (RFC 9728, section 3.1), with the final slash that the client used.

    Below the path of `PUBLIC_URL`, which every proxy passes on. It is also at the root, before that path.
    """
    return f"{origin_of(request)}{METADATA_PATH}{final_slash_of(request)}"


def final_slash_of(request: HttpRequest) -> str:
    return "/" if request.path.endswith(f"{MCP_PATH}/") else ""


def origin_of(request: HttpRequest) -> str:
    """The issuer (RFC 8414), below the path of `PUBLIC_URL`."""
    return f"{request.build_absolute_uri('/').rstrip('/')}{settings.FORCE_SCRIPT_NAME or ''}"


def is_resource(named: str, resource: str) -> bool:
    """Whether a client means this endpoint, ignoring a final slash and the case of the host."""
    parsed, own = strict_parts(named), urlsplit(resource)
    if parsed is None:
        return False
    defaults = {"https": 443, "http": 80}
    same_port = (parsed.port or defaults.get(parsed.scheme)) == (own.port or defaults.get(own.scheme))
    return (
        (parsed.scheme, parsed.hostname, parsed.path.rstrip("/")) == (own.scheme, own.hostname, own.path.rstrip("/"))
        and same_port
        and not (parsed.query or parsed.fragment)
    )


def bound_resource(resource: str, project: str) -> str:
    """The identifier of the endpoint for an agent that is bound to a project.

    The binding stands in the address for which a token was issued. So a code, its tokens and each refreshed one carry
    it, and a release that does not know it refuses them (`is_resource`).
    """
    return f"{resource}?{urlencode({PROJECT: project})}"


def unbound_resource(named: str) -> tuple[str, str]:
    """The endpoint's own address, and the project to which it is bound; empty for none. Another query stays."""
    address, _, query = named.partition("?")
    values = parse_qs(query, keep_blank_values=True)
    if values.keys() == {PROJECT} and len(values[PROJECT]) == 1 and values[PROJECT][0]:
        return address, values[PROJECT][0]
    return named, ""


def may_send_back_to(address: str) -> bool:
    """Whether a code may be sent there: over HTTPS, to a program on the user's own machine, or to a known app."""
    if len(address) > 500 or not address.isascii() or not address.isprintable() or set(address) & set("#\\ "):
        return False
    scheme = address.partition(":")[0].lower()
    if scheme in ("https", "http"):
        parts = strict_parts(address)
        return parts is not None and (scheme == "https" or parts.hostname in LOOPBACK)
    return scheme in settings.OAUTH_APP_SCHEMES and _is_parsed(address)


def is_loopback(address: str) -> bool:
    """Whether it leads back to a program on the user's own computer (RFC 8252, section 7.3)."""
    parts = strict_parts(address)
    return parts is not None and parts.scheme == "http" and parts.hostname in LOOPBACK


def _is_parsed(address: str) -> bool:
    """An app's own address may have no host; if it has one, it is a host alone."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return not parts.netloc or strict_parts(address) is not None


def receiver_of(address: str) -> str:
    """The receiver of the code, for the user to read."""
    parts = urlsplit(address)
    if parts.scheme == "http":
        return _("a program on this computer")
    if parts.scheme != "https":
        return _("the app %(scheme)s on this computer") % {"scheme": parts.scheme}
    return parts.netloc


def plain_name(name: str) -> str:
    """A client's name in one line and without invisible characters, because the user reads it on the page."""
    plain = "".join(character if character.isprintable() else " " for character in name)
    return " ".join(plain.split())[:80]


# A page of another site can make a browser send requests here, and a name that it controls can point here. The bearer
# token already stops both; this check also hides from them that a server is running.

# This server's own address in the current request, such as `https://recollect.example`; empty over stdio.
origin: ContextVar[str] = ContextVar("origin", default="")


def refusal(request: ASGIRequest) -> tuple[int, str] | None:
    """A status and a sentence for a request to another site."""
    try:
        host = request.get_host()
    except DisallowedHost:
        return 421, "This Host is not one of this server's: see ALLOWED_HOSTS."
    origin = request.META.get("HTTP_ORIGIN")
    own = f"{request.scheme}://{host}"
    if origin is not None and origin != own and not is_trusted(origin):
        return 403, "This Origin is not trusted: see CORS_ORIGINS and CSRF_TRUSTED_ORIGINS."
    return None


def is_trusted(origin: str) -> bool:
    """As Django's CSRF check reads the setting: exact, or a wildcard for subdomains. `CORS_ORIGINS` may be all."""
    if origin in settings.CSRF_TRUSTED_ORIGINS or {origin, "*"} & set(settings.CORS_ORIGINS):
        return True
    parsed = strict_parts(origin)
    if parsed is None:
        return False
    wildcards = (urlsplit(trusted) for trusted in settings.CSRF_TRUSTED_ORIGINS if "*" in trusted)
    return any(
        parsed.scheme == trusted.scheme and f".{parsed.netloc}".lower().endswith(trusted.netloc.lstrip("*").lower())
        for trusted in wildcards
    )


# Distinguishes an OAuth token from a user's own token, which is hexadecimal.
ACCESS_PREFIX = "rcat_"
REFRESH_PREFIX = "rcrt_"


def access_token(request: Any, refresh_token: bool = False) -> str:
    return ACCESS_PREFIX + secrets.token_urlsafe(32)


def refresh_token(request: Any, refresh_token: bool = False) -> str:
    return REFRESH_PREFIX + secrets.token_urlsafe(32)


def checksum_of(secret: str) -> str:
    """The key of a token in the toolkit's tables."""
    return hashlib.sha256(secret.encode()).hexdigest()


class RandomSecretHasher(BasePasswordHasher):
    """For secrets that were created here: random and long, so a digest needs no salt and no slow hash."""

    algorithm = "sha256_random"

    def salt(self) -> str:
        return "none"

    def encode(self, password: str, salt: str) -> str:
        return f"{self.algorithm}${hashlib.sha256(password.encode()).hexdigest()}"

    def decode(self, encoded: str) -> dict[str, Any]:
        algorithm, digest = encoded.split("$", 1)
        return {"algorithm": algorithm, "hash": digest, "salt": "none"}

    def verify(self, password: str, encoded: str) -> bool:
        return constant_time_compare(encoded, self.encode(password, "none"))

    def safe_summary(self, encoded: str) -> Any:
        return {"algorithm": self.algorithm}

    def must_update(self, encoded: str) -> bool:
        return False

    def harden_runtime(self, password: str, encoded: str) -> None:
        """There is no work factor."""
