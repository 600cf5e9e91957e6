"""What holds everywhere; every value a deployment may change is read from the environment."""

from pathlib import Path

import environ

from intake.isolation.roles import DEFAULT_PREFIX, Roles

BASE_DIR = Path(__file__).resolve().parent.parent.parent

env = environ.Env()
# A test run ignores these files: neither somebody's keys nor somebody's database belong in it.
READS_ENV_FILES = not env.bool("IGNORE_ENV_FILES", default=False)
if READS_ENV_FILES:
    environ.Env.read_env(BASE_DIR / ".env")
VAR_DIR = Path(env.str("RECOLLECT_VAR", default=str(BASE_DIR / "var")))
if READS_ENV_FILES:
    # What a running `make up` made up, for commands beside it; it never overrides the environment or .env.
    environ.Env.read_env(VAR_DIR / "env")

# -- Django -----------------------------------------------------------------------------------------------------------
DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "config.staff.StaffConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "config",
    "evals",
    "agent_tools",
    "memory",
    "intake",
]

# All of these run natively in asynchronous requests: one that does not would move every streamed answer to a thread.
# Django's own go to a thread for each of their hooks nevertheless; `config.handler` keeps other requests from that.
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "intake.middleware.PrivacyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "intake.middleware.FailureMiddleware",
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
            ],
        },
    },
]

# -- Data -------------------------------------------------------------------------------------------------------------
# Three roles, three addresses (docs/isolation.md): a process logs in by DATABASE_URL, which is the web role's, and in a
# worker the worker role's. Migrations log in as the owner of the tables, and commands that do a worker's work as it.
DATABASE_OWNER_URL = env.str("DATABASE_OWNER_URL", default="")
DATABASE_WORKER_URL = env.str("DATABASE_WORKER_URL", default="")
# What the roles are called: roles belong to a whole server, where another installation may have some too.
DATABASE_ROLES = Roles(env.str("DATABASE_ROLE_PREFIX", default=DEFAULT_PREFIX))
# Tables that refer to a person and yet are under no row-level security. Each is read to find out who is asking, or
# tells nothing of what anybody said; every other one must be under it, or no process starts.
NOT_PERSONAL = {
    "admin.LogEntry": "what staff did, by number; staff read it together",
    "intake.Session": "looked up by its key before anybody is known",
    "agent_tools.AccessToken": "looked up by its digest before anybody is known",
}
# The pool serves every thread of one process: a connection per thread would outgrow PostgreSQL's limit with streams.
# Its engine looks at each connection before anybody is given it, and is of use again as soon as a restarted server is.
DATABASES = {"default": env.db("DATABASE_URL", default="postgres:///recollect", engine="config.database")}
# The same for connections outside the pool.
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    "pool": {
        "min_size": env.int("DATABASE_POOL_MIN", default=1),
        "max_size": env.int("DATABASE_POOL_MAX", default=16),
        "timeout": env.int("DATABASE_POOL_TIMEOUT", default=5),
    },
    "connect_timeout": 5,
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.str("REDIS_URL", default="redis://localhost:6379/0")

# -- People -----------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "intake.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
# The one way in, for pages and the admin alike; tries are counted there.
AUTHENTICATION_BACKENDS = ["intake.backends.LimitedBackend"]
LOGIN_URL = "intake:login"
LOGIN_REDIRECT_URL = "intake:home"
LOGOUT_REDIRECT_URL = "intake:home"
KNOX_TOKEN_MODEL = "agent_tools.AccessToken"  # noqa: S105
# Knox's own migrations make a table that this project's tokens do not use, with a foreign key that stands in the way.
MIGRATION_MODULES = {"knox": None}

# -- Language and time ------------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
USE_I18N = True
USE_TZ = True

# -- Static files -----------------------------------------------------------------------------------------------------
STATIC_URL = "/static/"
STATIC_ROOT = Path(env.str("STATIC_ROOT", default=str(VAR_DIR / "static")))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "config.static.StaticStorage"},
}

# -- The chat's language model ----------------------------------------------------------------------------------------
# Without LLM_MODEL the chat runs in recall mode. A name such as "anthropic:…" picks that vendor; any other name is
# asked for at LLM_BASE_URL, which speaks the OpenAI protocol.
LLM_MODEL = env.str("LLM_MODEL", default="")
LLM_BASE_URL = env.str("LLM_BASE_URL", default="")
LLM_API_KEY = env.str("LLM_API_KEY", default="")
LLM_TIMEOUT_SECONDS = env.float("LLM_TIMEOUT_SECONDS", default=60.0)
# The tools the chat's agent loop is given, by dotted path, so that intake imports nobody.
CHAT_TOOLSET = "agent_tools.chat.toolset"
# What takes back what one of those tools stored, when the person asks for it.
CHAT_UNDO = "agent_tools.chat.undo"
# How often in one answer the model may call tools and read what they gave; then it has to answer.
CHAT_TOOL_ROUNDS = max(0, env.int("CHAT_TOOL_ROUNDS", default=8))
# What gives the notes that the model has in mind from the start, and how much of them; 0 is none.
CHAT_NOTES = "memory.notes.notes"
CHAT_NOTES_CHARACTERS = env.int("CHAT_NOTES_CHARACTERS", default=8_000)

# A turn that has been streaming without a sign of life for this long lost its server.
TURN_ABANDONED_SECONDS = env.int("TURN_ABANDONED_SECONDS", default=120)

# -- Embeddings -------------------------------------------------------------------------------------------------------
# The built-in model unless EMBEDDING_BASE_URL names an OpenAI-compatible endpoint.
EMBEDDING_BASE_URL = env.str("EMBEDDING_BASE_URL", default="")
MODEL_CACHE_DIR = Path(env.str("MODEL_CACHE_DIR", default=str(VAR_DIR / "models")))
if EMBEDDING_BASE_URL:
    EMBEDDER = {
        "BACKEND": "memory.embedders.openai_compatible.OpenAICompatibleEmbedder",
        "OPTIONS": {
            "base_url": EMBEDDING_BASE_URL,
            "api_key": env.str("EMBEDDING_API_KEY", default=""),
            "model": env.str("EMBEDDING_MODEL"),
            "dimensions": env.int("EMBEDDING_DIMENSIONS"),
            "query_prefix": env.str("EMBEDDING_QUERY_PREFIX", default=""),
            "document_prefix": env.str("EMBEDDING_DOCUMENT_PREFIX", default=""),
        },
    }
else:
    EMBEDDER = {
        "BACKEND": "memory.embedders.minilm.MiniLMEmbedder",
        "OPTIONS": {
            "cache_dir": MODEL_CACHE_DIR,
            "threads": env.int("EMBEDDING_THREADS", default=2),
            # Where the installed package has the weights, unless they lie elsewhere.
            "model_dir": env.str("EMBEDDING_MODEL_DIR", default=""),
        },
    }
EMBEDDING_BATCH_SIZE = env.int("EMBEDDING_BATCH_SIZE", default=32)
EMBEDDING_MAX_ATTEMPTS = env.int("EMBEDDING_MAX_ATTEMPTS", default=5)
# How long a worker may keep what it claimed before another may take it: longer than a batch can last, which for an
# endpoint is two requests of 30 seconds, and short enough that a dead worker's rows do not wait long.
EMBEDDING_LEASE_SECONDS = env.int("EMBEDDING_LEASE_SECONDS", default=75 if EMBEDDING_BASE_URL else 15)
EMBEDDING_SWEEP_SECONDS = env.int("EMBEDDING_SWEEP_SECONDS", default=5)

# -- Words ------------------------------------------------------------------------------------------------------------
# A text-search configuration of the database: it decides what a word is, which are stop words, and how they are
# stemmed. "english" suits English; "simple" takes every word of any language as it stands. After a change:
# `manage.py index_missing`.
TEXT_SEARCH_CONFIG = env.str("TEXT_SEARCH_CONFIG", default="english")

# -- search_history ---------------------------------------------------------------------------------------------------
# How much a result counts by where it is from. What was written down on purpose says more than what was said in
# passing.
HISTORY_WEIGHTS = {
    "memory": env.float("HISTORY_WEIGHT_MEMORY", default=1.0),
    "messages": env.float("HISTORY_WEIGHT_MESSAGES", default=0.6),
    "sessions": env.float("HISTORY_WEIGHT_SESSIONS", default=0.5),
}
# How fast a result loses by its age, a day: at 0.01 it counts half after 69 days. 0 turns it off.
HISTORY_DECAY_RATE = env.float("HISTORY_DECAY_RATE", default=0.01)
# A text without a word of the query's and with a greater cosine distance than this is no result. It suits the built-in
# model; many others place everything nearer together.
HISTORY_UNRELATED_DISTANCE = env.float("HISTORY_UNRELATED_DISTANCE", default=0.75)
# After this, what the sources found that are done is the answer.
HISTORY_TIMEOUT_SECONDS = env.float("HISTORY_TIMEOUT_SECONDS", default=30.0)

# -- Celery -----------------------------------------------------------------------------------------------------------
# A nudge is only a hint (the pending rows are the queue), so everything here prefers giving up quickly over waiting.
# Celery's name for what redis-py calls unix://.
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
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
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULE = {
    "sweep-pending-embeddings": {
        "task": "memory.sweep_pending",
        "schedule": EMBEDDING_SWEEP_SECONDS,
        "options": {"expires": 10},
    },
    "close-abandoned-turns": {"task": "memory.close_abandoned_turns", "schedule": 60, "options": {"expires": 60}},
}
# Beat's own state: a file that may be lost at any time.
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "celerybeat-schedule")

# -- REST -------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agent_tools.rest.authentication.AccessTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "agent_tools.rest.authentication.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["intake.limits.RequestThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["intake.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "intake.problems.exception_handler",
    # DRF would take `?format=` for a renderer; the list of tools has formats of its own.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Recollect",
    "DESCRIPTION": "Your conversations and notes, searched by meaning and by words.",
    "VERSION": "0.1.0",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    # Two things are called scope.
    "ENUM_NAME_OVERRIDES": {
        "HistoryScopeEnum": ["all", "memory", "daily_log", "sessions"],
        "TokenScopeEnum": ["search", "write"],
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "intake.schemas.add_chat",
        "intake.schemas.add_confirmation",
    ],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
}

# -- How often one may ask -------------------------------------------------------------------------------------------
# For each person (a visitor: each address) and, with _address, for each address in all; empty is without a limit.
# Generous, for people share addresses and agents are quick; they bound what one runaway client costs the others.
RATE_LIMITS = {
    name: env.str(f"RATE_LIMIT_{name.upper()}", default=rate)
    for name, rate in {
        "api": "6000/minute",
        "api_address": "60000/minute",
        "chat": "60/minute",
        "chat_address": "600/minute",
        "export": "30/hour",
        "export_address": "300/hour",
        # For one account from one address; then for all accounts.
        "login": "10/minute",
        "login_address": "100/minute",
        "register_address": "60/hour",
    }.items()
}
# How many proxies of one's own stand before this server, each appending to X-Forwarded-For. With none, what that
# header says is whatever the client wrote there, and is not read.
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=0)

# -- Taking one's data along ------------------------------------------------------------------------------------------
# The parts of an account's export, by dotted path, so that intake imports nobody: each function takes the person and
# yields what JSON can hold, or iterators of it.
ACCOUNT_EXPORTS = {
    "conversations": "intake.exporting.conversations",
    "documents": "memory.exporting.documents",
    "records": "memory.exporting.records",
}

# -- Security ---------------------------------------------------------------------------------------------------------
SESSION_ENGINE = "intake.sessions"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# The longest message, with every character escaped, is a fifth of it. No form holds more either.
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", default=2_621_440)
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
# How long a body may take to arrive, on a bad line too.
BODY_SECONDS = env.float("BODY_SECONDS", default=60.0)
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

# -- Logs: ids, counts and codes; never what somebody said -----------------------------------------------------------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("LOG_LEVEL", default="INFO")},
    "loggers": {"httpx2": {"level": "WARNING"}, "mcp": {"level": "WARNING"}},
}
