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
# One process for all queues. What may eat memory or hang runs in a child process with limits: exports, files. As many
# threads as there are tasks, each of which runs once at a time (config/celery.py), so that none waits for another.
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = 24
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    # How long a worker waits for the next message before it asks again; a message comes at once all the same.
    "polling_interval": 30,
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# What takes long, or acts as people, has queues of its own, so that a larger installation can split the work.
CELERY_TASK_ROUTES = {
    "imports.*": {"queue": "imports"},
    "memory.remove_old_turns": {"queue": "people"},
    "memory.remove_expired_sessions": {"queue": "people"},
    "memory.read_ended_chats": {"queue": "people"},
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
# Their tasks log in as the web role and act as one person at a time; all others log in as the worker.
QUEUES_OF_USERS = {"imports", "people"}
# Each periodic task: after how many seconds it comes again, and after how many while something waits that a message
# normally leads a worker to at once (config/schedule.py).
SCHEDULE = {
    "memory.sweep_pending": (60, 5),
    "memory.close_abandoned_turns": (60, 5),
    "memory.sweep_deleted": (60, 60),
    # Each run goes on where the last one stopped; each user is swept once a day.
    "memory.sweep_lost": (60, 60),
    "memory.read_attachments": (60, 10),
    "memory.draw_maps": (60, 30),
    "memory.read_ended_chats": (60, 60),
    "imports.sweep": (30, 10),
    "memory.remove_temporary_chats": (300, 300),
    # Those of visitors who have registered since.
    "memory.index_older_attachments": (3600, 3600),
    "memory.remove_silent_visitors": (3600, 3600),
    "memory.remove_forgotten_files": (3600, 3600),
    "memory.remove_old_turns": (3600, 3600),
    "memory.remove_expired_sessions": (3600, 3600),
    "agent_tools.sweep_oauth": (3600, 3600),
    "memory.remove_old_activity": (86_400, 86_400),
}
