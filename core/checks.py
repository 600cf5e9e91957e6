"""Settings of earlier versions that nothing reads any more: a check names the way out, and nothing starts with some."""

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from core.rate_limits import RATES

ONE_ADDRESS = (
    "Remove it. A proxy's {name} does both: it sends what is written to the primary that lives, and finds it again "
    "when another one takes over (docs/scale.md)."
)
# These protected something: a server, an account, what a model costs, the disk. By the way out, the names.
NO_LONGER_STARTS = {
    ONE_ADDRESS.format(name="DATABASE_URL"): "DATABASE_REPLICA_URL DATABASE_REPLICA_STALENESS_SECONDS",
    "RATE_LIMITS is a factor on all rates, which core/rate_limits.py lists.": " ".join(
        f"RATE_LIMIT_{name.upper()}" for name in RATES
    ),
    "Set PUBLIC_URL to the address of the site, which also begins the links in emails.": "SITE_ADDRESS",
    "Set EMAIL_PORT=465, on which the connection is encrypted from the first byte.": "EMAIL_USE_SSL",
    "Set OAUTH_METADATA_DOCUMENTS, to off for the same as off here.": "OAUTH_CLIENT_DOCUMENTS",
    "Write them at /staff/settings/.": "DEFAULT_INSTRUCTIONS",
    "TOKEN_DAYS_MOST is also the validity of a token whose owner chooses none.": "TOKEN_DAYS",
    "Remove it: the value is fixed (docs/settings.md).": (
        "PROOF_SECONDS VISITOR_FILE_BYTES OAUTH_APP_SCHEMES IMPORTS_BYTES_PER_PERSON IMPORTS_FREE_BYTES"
    ),
}
NO_LONGER_READ = {
    "Choose them at /staff/settings/.": "LANGUAGES_OFFERED",
    "HISTORY_WEIGHTS has all weights, as in HISTORY_WEIGHTS=memory=1,messages=0.6.": (
        "HISTORY_WEIGHT_MEMORY HISTORY_WEIGHT_MESSAGES HISTORY_WEIGHT_SESSIONS HISTORY_WEIGHT_ATTACHMENTS"
    ),
    "Remove it: a worker's queues say what it does.": "IMPORTING_WORKER HOUSEKEEPING_WORKER",
    "Remove it, and add `preload` to the header at your proxy.": "SECURE_HSTS_PRELOAD",
    "Remove it: the value is fixed (docs/settings.md).": (
        "DEBUG TURN_ABANDONED_SECONDS ANSWER_LEASE_SECONDS ATTACHMENT_WAIT_SECONDS BODIES_BYTES "
        "BODIES_BYTES_PER_ADDRESS MAX_BODY_BYTES BODY_SECONDS REQUEST_SECONDS MCP_SECONDS ACCOUNT_DELETION_SECONDS "
        "STREAM_SECONDS STREAMS_PER_PERSON STREAMS_PER_ADDRESS CONCURRENT_CALLS CONCURRENT_ANSWERS PASSWORD_THREADS "
        "PASSWORD_QUEUE DATABASE_POOL_MIN DATABASE_POOL_TIMEOUT CHAT_TOOL_ROUNDS CHAT_NOTES_CHARACTERS PROPOSAL_TOKENS "
        "EMBEDDING_MODEL_DIR EMBEDDING_BATCH_SIZE EMBEDDING_BATCH_SECONDS EMBEDDING_TIMEOUT_SECONDS "
        "EMBEDDING_QUERY_TIMEOUT_SECONDS EMBEDDING_MAX_ATTEMPTS EMBEDDING_LEASE_SECONDS EMBEDDING_SWEEP_SECONDS "
        "HISTORY_TIMEOUT_SECONDS IMPORTS_OPEN_PER_PERSON IMPORTS_EXPIRE_SECONDS IMPORTS_SECONDS IMPORTS_TURN_SECONDS "
        "IMPORTS_AT_ONCE IMPORTS_LEASE_SECONDS SECURE_SSL_REDIRECT SECURE_HSTS_SECONDS"
    ),
}


@register()
def check_former_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if settings.REDIS_URL.startswith("redis+sentinel:"):
        hint = ONE_ADDRESS.format(name="REDIS_URL")
        found.append(Error("REDIS_URL names sentinels, which are no longer asked.", hint=hint, id="core.E007"))
    for kind, id_, ways_out in ((Error, "core.E007", NO_LONGER_STARTS), (Warning, "core.W007", NO_LONGER_READ)):
        for hint, names in ways_out.items():
            for name in names.split():
                if os.environ.get(name) or os.environ.get(f"{name}_FILE"):
                    found.append(kind(f"{name} is set, and is no longer read.", hint=hint, id=id_))
    return found


def refuse_former_settings() -> None:
    """Raise `ImproperlyConfigured` with each error of the check: a process would serve without what was asked for."""
    if errors := [one for one in check_former_settings() if one.is_serious()]:
        raise ImproperlyConfigured("\n".join(f"{one.id}: {one.msg} {one.hint}" for one in errors))
