"""For production behind a TLS proxy: secrets have no default, cookies and redirects require HTTPS."""

from django.core.exceptions import ImproperlyConfigured

from config.settings.base import *
from config.settings.table import env, read

SECRET_KEY = env.str("SECRET_KEY")
if not PUBLIC_URL:
    # PUBLIC_URL names the host; without it there is no default.
    ALLOWED_HOSTS = env.list("ALLOWED_HOSTS")
    if not ALLOWED_HOSTS:
        raise ImproperlyConfigured("Set PUBLIC_URL to the address of the site, or ALLOWED_HOSTS to its names.")

# The links in emails let their reader into an account, so no log may hold them.
EMAIL_IS_REQUIRED = True

# The proxy that terminates TLS counts as one.
TRUSTED_PROXIES = read("TRUSTED_PROXIES", 1)
# Only a proxy that overwrites this header may be in front.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
# Below a path the host has other applications, and its subdomains are not this one's to bind.
SECURE_HSTS_INCLUDE_SUBDOMAINS = not FORCE_SCRIPT_NAME
SECURE_HSTS_SECONDS = 31_536_000
# A domain is hard to remove from the browsers' built-in list, so a proxy that its owner sets up adds `preload`.
SECURE_HSTS_PRELOAD = False
SILENCED_SYSTEM_CHECKS = [*SILENCED_SYSTEM_CHECKS, "security.W021"]
if not PUBLIC_URL:
    # A browser accepts cookies with these names only from this host, over HTTPS and for all its paths.
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_NAME = "__Host-csrftoken"
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
elif not PUBLIC_URL.startswith("https:"):
    raise ImproperlyConfigured("PUBLIC_URL begins with https:// in production: cookies and passkeys need it.")
