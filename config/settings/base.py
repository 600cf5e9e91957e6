"""Settings of every deployment, by subject, each building on the one before: site, accounts, limits, search.

Here are the database, the chat and the workers. What a deployment may change stands in config/settings/table.py.
"""

import re

from psycopg_pool import ConnectionPool

from config.settings.search import *
from config.settings.table import read
from core.isolation.roles import Roles

# Database, its roles, and Redis

# Three roles, three addresses (docs/isolation.md). Web processes log in with DATABASE_URL (the web role), workers and
# commands that do a worker's work with DATABASE_WORKER_URL, migrations with DATABASE_OWNER_URL (the tables' owner).
DATABASE_OWNER_URL, DATABASE_WORKER_URL = read("DATABASE_OWNER_URL"), read("DATABASE_WORKER_URL")
DATABASE_BACKUP_URL = read("DATABASE_BACKUP_URL")
DATABASE_ROLES = Roles(read("DATABASE_ROLE_PREFIX"))
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
DATABASES = {"default": {**read("DATABASE_URL"), "ENGINE": "config.database"}}
DATABASES["default"]["PASSWORD"] = DATABASES["default"].get("PASSWORD") or read("DATABASE_PASSWORD")
DATABASES["default"]["OPTIONS"] = {
    **DATABASES["default"].get("OPTIONS", {}),
    "pool": {
        "min_size": 1,
        "max_size": read("DATABASE_POOL_MAX"),
        "timeout": 5,
        # While PostgreSQL is unavailable the pool tries every second; by default it doubles its pauses up to a minute.
        "reconnect_timeout": 1.0,
        "reconnect_failed": ConnectionPool.check,
    },
    "connect_timeout": 5,
}
# Whether the client of a network endpoint raises an error if it is called inside a transaction. Otherwise it logs one.
REFUSES_CALLS_IN_TRANSACTIONS = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = read("REDIS_URL")

# Chat: language model, tools, notes

LLM_MODEL, LLM_BASE_URL, LLM_API_KEY = read("LLM_MODEL"), read("LLM_BASE_URL"), read("LLM_API_KEY")
LLM_THINKING, LLM_VISION = read("LLM_THINKING"), read("LLM_VISION")
LLM_CONTEXT_TOKENS = max(0, read("LLM_CONTEXT_TOKENS"))
LLM_MODELS = {
    name: {
        what: read(f"LLM_…_{what}", chosen=re.sub("[^A-Z0-9]", "_", name.upper()))
        for what in ("MODEL", "BASE_URL", "API_KEY", "THINKING", "CONTEXT_TOKENS", "VISION")
    }
    for name in dict.fromkeys(map(str.strip, read("LLM_MODELS")))
    if name
}
LLM_TIMEOUT_SECONDS = read("LLM_TIMEOUT_SECONDS")
CHAT_TITLES = read("CHAT_TITLES")
PROPOSAL_TOKENS_A_DAY = max(0, read("PROPOSAL_TOKENS_A_DAY"))

# Celery: workers and scheduled tasks

# A message only wakes a worker (the pending rows are the queue), so every time-out here is short. Celery's name for
# redis-py's unix:// is redis+socket://.
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# A child loads the embedding model before it takes work. Celery would kill, and start anew, each that is not up in 4 s.
CELERY_WORKER_PROC_ALIVE_TIMEOUT = 120.0
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
        "schedule": 5,
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
