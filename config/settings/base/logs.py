"""Ids, counts and codes; never what somebody said."""

from config.settings.base.environment import env

LEVEL = env.str("LOG_LEVEL", default="INFO")
# Libraries that tell more than anybody wants; psycopg sets itself to this level, and so would not heed a higher one.
QUIET = LEVEL if LEVEL in ("ERROR", "CRITICAL") else "WARNING"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": LEVEL},
    "loggers": {name: {"level": QUIET} for name in ("httpx2", "mcp", "psycopg")},
}
