"""The environment, and the site: apps, middleware, templates, sessions, email, logs."""

import os
from importlib.resources import files
from pathlib import Path
from smtplib import SMTP_SSL_PORT
from urllib.parse import urlsplit

import environ

import config
from config.public_url import settings_for
from config.settings.table import env, read
from config.stack import DATA

BASE_DIR = Path(__file__).resolve().parent.parent.parent


# A test run ignores these files, so that it never uses a person's keys or database.
READS_ENV_FILES = not env.bool("IGNORE_ENV_FILES", default=False)
if READS_ENV_FILES:
    environ.Env.read_env(BASE_DIR / ".env")
VAR_DIR = Path(read("RECOLLECT_VAR", BASE_DIR / "var"))
if READS_ENV_FILES:
    # Written by a running `make up` for commands beside it; it never overrides the environment or .env.
    environ.Env.read_env(VAR_DIR / "env")

# Site: apps, middleware, templates, static files, language

VERSION = config.VERSION
DEBUG = False
SECRET_KEY, SECRET_KEY_FALLBACKS = read("SECRET_KEY"), read("SECRET_KEY_FALLBACKS")
_OF_PUBLIC_URL = settings_for(read("PUBLIC_URL"), hosts=read("ALLOWED_HOSTS"), origins=read("CSRF_TRUSTED_ORIGINS"))
PUBLIC_URL = _OF_PUBLIC_URL["PUBLIC_URL"]
ALLOWED_HOSTS = _OF_PUBLIC_URL["ALLOWED_HOSTS"]
CSRF_TRUSTED_ORIGINS = _OF_PUBLIC_URL["CSRF_TRUSTED_ORIGINS"]
FORCE_SCRIPT_NAME = _OF_PUBLIC_URL["FORCE_SCRIPT_NAME"]
CSRF_FAILURE_VIEW = "intake.failures.csrf_failure"
# The scheme and host of links in emails and invitations. Empty: the name in the request, which ALLOWED_HOSTS checks,
# with a port only if this server listens on it.
SITE_ADDRESS = "{0.scheme}://{0.netloc}".format(urlsplit(PUBLIC_URL)) if PUBLIC_URL else ""

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
    "chat",
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
    "intake.middleware.PrivacyMiddleware",
    "intake.middleware.LanguageMiddleware",
    "intake.middleware.LimitsMiddleware",
    "intake.middleware.KeptCookieMiddleware",
    "django.middleware.common.CommonMiddleware",
    # Before the check of the CSRF token, which a log-in in another tab changes.
    "intake.middleware.PagePersonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    # Pages require a registered user unless a view says otherwise.
    "intake.accounts.identity.RegisteredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    # None of it without LOGIN_HEADER.
    "intake.accounts.login_header.login_by_header",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "intake.middleware.FailureMiddleware",
    "intake.markdown.later.drawn_later",
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
            "builtins": ["chat.templatetags.recollect"],
        },
    },
]

# The language outside pages (the API, tools, tasks); a page uses the reader's, if it is one of the others.
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch"), ("es", "Español")]
LOCALE_PATHS = [BASE_DIR / "locale"]
# Our own formats only for English; other languages use Django's.
FORMAT_MODULE_PATH = ["config.formats"]
TIME_ZONE = read("TIME_ZONE")
USE_I18N = True
USE_TZ = True

# The folder of the embedded server's data, handed on by `make up`: its disk may be full.
DATABASE_FOLDER = os.environ.get(DATA, "")

STATIC_URL = _OF_PUBLIC_URL["STATIC_URL"]
# Swagger UI without the rest of its package, and Mermaid, which `make vendor` writes.
STATICFILES_DIRS = [
    ("swagger-ui", files("drf_spectacular_sidecar") / "static/drf_spectacular_sidecar/swagger-ui-dist"),
    ("mermaid", BASE_DIR / "config/vendored/mermaid"),
]
STATIC_ROOT = Path(read("STATIC_ROOT", VAR_DIR / "static"))
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
SECURITY_CONTACT = read("SECURITY_CONTACT")
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

# Email: to the console, unless a server is named; with "none" nowhere. Production refuses to start without either
# (intake.E003).

EMAIL_IS_REQUIRED = False
EMAIL_IS_OFF = read("EMAIL_HOST") == "none"
EMAIL_HOST = "" if EMAIL_IS_OFF else read("EMAIL_HOST")
EMAIL_BACKEND = (
    f"django.core.mail.backends.{'dummy' if EMAIL_IS_OFF else 'smtp' if EMAIL_HOST else 'console'}.EmailBackend"
)
EMAIL_PORT = read("EMAIL_PORT")
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = read("EMAIL_HOST_USER"), read("EMAIL_HOST_PASSWORD")
# Encrypted from the first byte, or after STARTTLS.
EMAIL_USE_SSL = EMAIL_PORT == SMTP_SSL_PORT
EMAIL_USE_TLS = not EMAIL_USE_SSL and read("EMAIL_USE_TLS")
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = read("EMAIL_FROM")

# Logs: ids, counts and codes, never a user's text

LOG_LEVEL, LOG_FORMAT = read("LOG_LEVEL"), read("LOG_FORMAT")
METRICS_TOKEN = read("METRICS_TOKEN")
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
