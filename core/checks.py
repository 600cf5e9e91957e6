"""Settings of earlier versions that nothing reads any more: a check names the way out, and nothing starts with some."""

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

ONE_ADDRESS = (
    "Remove it. A proxy's {name} does both: it sends what is written to the primary that lives, and finds it again "
    "when another one takes over (docs/scale.md)."
)
DATABASE = ONE_ADDRESS.format(name="DATABASE_URL")
NO_LONGER_STARTS = {"DATABASE_REPLICA_URL": DATABASE, "DATABASE_REPLICA_STALENESS_SECONDS": DATABASE}
NO_LONGER_READ = {"TURN_ABANDONED_SECONDS": "ANSWER_LEASE_SECONDS says when a killed process's answer is closed."}


@register()
def check_former_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if settings.REDIS_URL.startswith("redis+sentinel:"):
        hint = ONE_ADDRESS.format(name="REDIS_URL")
        found.append(Error("REDIS_URL names sentinels, which are no longer asked.", hint=hint, id="core.E007"))
    for kind, id_, ways_out in ((Error, "core.E007", NO_LONGER_STARTS), (Warning, "core.W007", NO_LONGER_READ)):
        for name, hint in ways_out.items():
            if os.environ.get(name) or os.environ.get(f"{name}_FILE"):
                found.append(kind(f"{name} is set, and is no longer read.", hint=hint, id=id_))
    return found


def refuse_former_settings() -> None:
    """Raise `ImproperlyConfigured` with each error of the check: a process would serve without what was asked for."""
    if errors := [one for one in check_former_settings() if one.is_serious()]:
        raise ImproperlyConfigured("\n".join(f"{one.id}: {one.msg} {one.hint}" for one in errors))
