"""A setting of an earlier version that is still set is named with the way out, and nothing starts without it."""

import asyncio
from types import SimpleNamespace

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured

from config import asgi
from config.settings.table import SETTINGS
from core import checks
from memory.tasks import refuse_unless_isolated_by_each_login

SENTINELS = "redis+sentinel://:password@one:26379,two:26379/primary"


def found():
    return [(one.id, one.msg, one.hint) for one in run_checks() if one.id in ("core.E007", "core.W007")]


@pytest.mark.medium
@pytest.mark.parametrize("name", ["DATABASE_REPLICA_URL", "DATABASE_REPLICA_STALENESS_SECONDS", "REDIS_URL"])
def test_a_replica_or_sentinels_are_an_error_with_the_way_out_and_nothing_starts(name, monkeypatch):
    assert found() == []
    if name == "REDIS_URL":
        # For the check alone: threads of this process go on asking the broker.
        monkeypatch.setattr(checks, "settings", SimpleNamespace(REDIS_URL=SENTINELS))
    else:
        monkeypatch.setenv(name, "2")
    ((id_, message, hint),) = found()
    assert (id_, name in message) == ("core.E007", True)
    assert f"A proxy's {'REDIS_URL' if name == 'REDIS_URL' else 'DATABASE_URL'} does both" in hint
    with pytest.raises(ImproperlyConfigured, match=f"core.E007: {name}"):
        asyncio.run(asgi.lifespan(None).__aenter__())
    # Tasks that later tests run in this process have its one login.
    monkeypatch.setattr("core.isolation.connecting._logins", {})
    with pytest.raises(SystemExit, match=f"The worker cannot start: core.E007: {name}"):
        refuse_unless_isolated_by_each_login()


@pytest.mark.medium
def test_a_setting_that_protected_nothing_is_a_warning_and_an_empty_one_nothing(monkeypatch):
    monkeypatch.setenv("DATABASE_REPLICA_URL", "")
    assert found() == []
    monkeypatch.setenv("TURN_ABANDONED_SECONDS_FILE", "/run/secrets/it")
    assert [id_ for id_, _, _ in found()] == ["core.W007"]
    monkeypatch.setenv("RATE_LIMIT_LOGIN", "3/minute")
    monkeypatch.setenv("HISTORY_WEIGHT_MEMORY", "2")
    ways_out = {message.split(" ")[0]: (id_, hint.split(" ")[0]) for id_, message, hint in found()}
    assert ways_out["RATE_LIMIT_LOGIN"] == ("core.E007", "RATE_LIMITS")
    assert ways_out["HISTORY_WEIGHT_MEMORY"] == ("core.W007", "HISTORY_WEIGHTS")


def test_no_setting_is_both_read_and_refused():
    former = " ".join([*checks.NO_LONGER_STARTS.values(), *checks.NO_LONGER_READ.values()]).split()
    assert len(former) == len({*former}) > 75
    assert not {*former} & {*SETTINGS}
