"""One address decides scheme, host and path: `PUBLIC_URL`, such as `https://memory.example/recollect`.

Computes the settings that follow from it, and makes each request look as if it had been sent to that address: a proxy
may pass on the path with its prefix or without, and another `Host` header, and no `X-Forwarded-Proto`.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ImproperlyConfigured

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
EXAMPLE = "such as https://memory.example or https://memory.example/recollect"
# A host with its port, and a path that needs no encoding in a cookie or in an address; a cookie's name is made of it.
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d+)?")
PREFIX = re.compile(r"(/[A-Za-z0-9_.~-]+)*")
# Where OAuth's metadata are looked for, before the path of the issuer or the resource (RFC 8414, RFC 9728).
OF_SERVER, OF_RESOURCE = "/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource"
# Where clients look for them too, after the path: a proxy that passes on nothing but the prefix passes this on.
OF_OPENID = "/.well-known/openid-configuration"


def parsed(address: str) -> SplitResult:
    """The address without a final slash; its path is the prefix. Raises `ImproperlyConfigured`."""
    try:
        parts = urlsplit(address.strip())
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not HOST.fullmatch(parts.netloc) or parts.query or parts.fragment:
        raise ImproperlyConfigured(f"PUBLIC_URL is no address of a site: it is a scheme, a host and a path, {EXAMPLE}.")
    path = parts.path.rstrip("/")
    if not PREFIX.fullmatch(path) or len(path) > 100 or {".", ".."} & set(path.split("/")):
        raise ImproperlyConfigured(f"The path of PUBLIC_URL has letters, digits and . _ ~ - alone, {EXAMPLE}.")
    port = {"http": 80, "https": 443}[parts.scheme]
    netloc = parts.netloc.lower().removesuffix(f":{port}")
    return SplitResult(parts.scheme, netloc, path, "", "")


def host_of(parts: SplitResult) -> str:
    """The host as `ALLOWED_HOSTS` names it: an IPv6 address in brackets."""
    name = parts.hostname or ""
    return f"[{name}]" if ":" in name else name


def is_public(host: str) -> bool:
    """Whether strangers may reach this host: a name, or an address of the internet. Not this machine, nor a private
    network (RFC 1918, RFC 4193, a tailnet's 100.64.0.0/10, `.local` names).
    """
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith((".localhost", ".local", ".home.arpa", ".internal")):
        return False
    try:
        return ipaddress.ip_address(name).is_global
    except ValueError:
        # A name without a dot is one of a local network.
        return "." in name


def is_within_reach(public_url: str, hosts: Iterable[str]) -> bool:
    """Whether others than this machine's people can be first at a new installation: at a public address, or where it
    listens to a network, whose names are then in `ALLOWED_HOSTS`.
    """
    return bool(public_url and is_public(host_of(parsed(public_url)))) or bool(set(hosts) - set(LOOPBACK))


def settings_for(address: str, *, hosts: Iterable[str] | None = None, origins: Iterable[str] = ()) -> dict[str, Any]:
    """Django's settings that follow from `PUBLIC_URL`, beside `ALLOWED_HOSTS` and `CSRF_TRUSTED_ORIGINS` as configured.

    Without an address, Django's defaults.
    """
    if not address:
        return {
            "PUBLIC_URL": "",
            "ALLOWED_HOSTS": [*(LOOPBACK if hosts is None else hosts)],
            "CSRF_TRUSTED_ORIGINS": [*origins],
            **_of_cookies("", is_https=False),
            "FORCE_SCRIPT_NAME": None,
            "STATIC_URL": "/static/",
        }
    parts = parsed(address)
    origin = f"{parts.scheme}://{parts.netloc}"
    return {
        "PUBLIC_URL": parts.geturl(),
        "ALLOWED_HOSTS": list(dict.fromkeys([host_of(parts), *(hosts or ()), *LOOPBACK])),
        "CSRF_TRUSTED_ORIGINS": list(dict.fromkeys([*origins, origin])),
        **_of_cookies(parts.path, is_https=parts.scheme == "https"),
        "FORCE_SCRIPT_NAME": parts.path or None,
        "STATIC_URL": f"{parts.path}/static/",
    }


def _of_cookies(prefix: str, *, is_https: bool) -> dict[str, Any]:
    """Two installations below one host have cookies of different names: browsers send those of the shorter path too.

    `__Host-` is for a whole host alone; `__Secure-` allows a path.
    """
    before = "" if not is_https else "__Secure-" if prefix else "__Host-"
    after = prefix.replace("/", "-").replace("~", "_")
    found: dict[str, Any] = {"LANGUAGE_COOKIE_PATH": prefix or "/"}
    for kind, name in (("SESSION", "sessionid"), ("CSRF", "csrftoken")):
        found |= {
            f"{kind}_COOKIE_NAME": f"{before}{name}{after}",
            f"{kind}_COOKIE_PATH": prefix or "/",
            f"{kind}_COOKIE_SECURE": is_https,
        }
    return found


def at_public_url(scope: Any, address: str) -> Any:
    """The scope of a request: its path without the prefix, its scheme and `Host` those of `PUBLIC_URL`.

    A `Host` that `ALLOWED_HOSTS` does not know stays, and is refused as ever: a name that a stranger points here is
    none of ours. So do other names of this server, which have their own scheme.
    """
    parts = urlsplit(address)
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    # A form in a browser on this machine, which reached the server without the proxy.
    is_direct = headers.get(b"origin", b"").decode("latin-1").lower() == f"http://{host}" != f"http://{parts.netloc}"
    changed: dict[str, Any] = {"path": _without_prefix(scope["path"], parts.path)}
    if name == host_of(parts) or (name in LOOPBACK and not is_direct):
        others = [(key, value) for key, value in scope["headers"] if key != b"host"]
        changed |= {"scheme": parts.scheme, "headers": [(b"host", parts.netloc.encode()), *others]}
    return {**scope, **changed}


def _without_prefix(path: str, prefix: str) -> str:
    """The path that our routes know. The proxy may have taken the prefix away already."""
    if not prefix:
        return path
    for metadata in (OF_SERVER, OF_RESOURCE):
        if path == f"{metadata}{prefix}" or path.startswith(f"{metadata}{prefix}/"):
            return metadata + path.removeprefix(f"{metadata}{prefix}")
    if path in (f"{prefix}{OF_OPENID}", f"{OF_OPENID}{prefix}"):
        return OF_SERVER
    if path == prefix:
        return "/"
    return path.removeprefix(prefix) if path.startswith(f"{prefix}/") else path
