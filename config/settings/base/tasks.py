"""How workers are nudged, by Celery, and what beat starts."""

from config.settings.base.data import REDIS_URL
from config.settings.base.environment import VAR_DIR
from config.settings.base.search import EMBEDDING_SWEEP_SECONDS

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
    "pack-loose-vectors": {"task": "memory.pack_loose", "schedule": 600, "options": {"expires": 600}},
    "close-abandoned-turns": {"task": "memory.close_abandoned_turns", "schedule": 60, "options": {"expires": 60}},
}
# Beat's own state: a file that may be lost at any time.
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "celerybeat-schedule")
