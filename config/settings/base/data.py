"""The database, as whom each process logs in to it, and the broker."""

from config.settings.base.environment import env
from core.isolation.roles import DEFAULT_PREFIX, Roles

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
    # At once: what is sent to be prepared (core.db.statements) is sent again and again.
    "prepare_threshold": 0 if env.bool("DATABASE_PREPARED_STATEMENTS", default=True) else None,
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.str("REDIS_URL", default="redis://localhost:6379/0")
