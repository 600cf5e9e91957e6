"""Names and addresses in OAuth: this server's own, and the redirect addresses of clients."""

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext as _

MCP_PATH = "/mcp"
METADATA_PATH = "/.well-known/oauth-protected-resource/mcp"
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
LONGEST = 500
LONGEST_NAME = 80


def resource_of(request: HttpRequest) -> str:
    """The identifier of the MCP endpoint (RFC 8707), with the host name of the request."""
    return f"{origin_of(request)}{MCP_PATH}"


def metadata_of(request: HttpRequest) -> str:
    """The address of the endpoint's metadata (RFC 9728, section 3.1), with the final slash that the client used."""
    return f"{origin_of(request)}{METADATA_PATH}{final_slash_of(request)}"


def final_slash_of(request: HttpRequest) -> str:
    return "/" if request.path.endswith(f"{MCP_PATH}/") else ""


def origin_of(request: HttpRequest) -> str:
    return request.build_absolute_uri("/").rstrip("/")


def is_resource(named: str, resource: str) -> bool:
    """Whether a client means this endpoint, ignoring a final slash and the case of the host."""
    try:
        given, own = urlsplit(named), urlsplit(resource)
        ports = given.port, own.port
    except ValueError:
        return False
    defaults = {"https": 443, "http": 80}
    same_port = (ports[0] or defaults.get(given.scheme)) == (ports[1] or defaults.get(own.scheme))
    return (
        (given.scheme, given.hostname, given.path.rstrip("/")) == (own.scheme, own.hostname, own.path)
        and same_port
        and not (given.query or given.fragment or given.username or given.password)
    )


def may_send_back_to(address: str) -> bool:
    """Whether a code may be sent there: over HTTPS, to a program on the user's own machine, or to a known app."""
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return False
    if len(address) > LONGEST or not address.isascii() or not address.isprintable() or "#" in address:
        return False
    if parts.username is not None or parts.password is not None or "*" in parts.netloc:
        return False
    match parts.scheme:
        case "https":
            return bool(parts.hostname)
        case "http":
            return parts.hostname in LOOPBACK
    return parts.scheme in settings.OAUTH_APP_SCHEMES


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
    return " ".join(plain.split())[:LONGEST_NAME]
