"""Names and addresses in OAuth: this server's own, and the redirect addresses of clients."""

from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.utils.translation import gettext as _

from core.validation import strict_parts

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
    given, own = strict_parts(named), urlsplit(resource)
    if given is None:
        return False
    defaults = {"https": 443, "http": 80}
    same_port = (given.port or defaults.get(given.scheme)) == (own.port or defaults.get(own.scheme))
    return (
        (given.scheme, given.hostname, given.path.rstrip("/")) == (own.scheme, own.hostname, own.path)
        and same_port
        and not (given.query or given.fragment)
    )


def may_send_back_to(address: str) -> bool:
    """Whether a code may be sent there: over HTTPS, to a program on the user's own machine, or to a known app."""
    if len(address) > LONGEST or not address.isascii() or not address.isprintable() or set(address) & set("#\\ "):
        return False
    scheme = address.partition(":")[0].lower()
    if scheme in ("https", "http"):
        parts = strict_parts(address)
        return parts is not None and (scheme == "https" or parts.hostname in LOOPBACK)
    return scheme in settings.OAUTH_APP_SCHEMES and _is_parsed(address)


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
    return " ".join(plain.split())[:LONGEST_NAME]
