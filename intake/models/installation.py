"""Settings of the installation that staff change in the browser; the environment overrides them."""

import asyncio
import base64
import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import DatabaseError, InterfaceError, models
from django.utils import timezone

from core.isolation.acting import acting_as_staff

logger = logging.getLogger(__name__)


REGISTRATION, VISITORS, MODELS = "registration", "visitors", "models"
LANGUAGES, RETENTION, INSTRUCTIONS = "languages", "retention_days", "instructions"
# The search of the web: its `kind`, `address` and `sealed` key.
SEARCH = "search"
# Of the installation by name (`turns`, `bytes`, `file_bytes`), and by user id of those who have their own.
QUOTAS, QUOTAS_OF_USERS = "quotas", "quotas_of_users"
# When this process read them last, by the machine's clock, and what there was, by name.
_kept: list[tuple[float, dict[str, Any]]] = [(-1.0e9, {})]
_lock = threading.Lock()


class InstallationSetting(models.Model):
    """One setting. Every role reads them, to know what applies; only staff write them. Secrets in them are sealed."""

    name = models.CharField(max_length=40, primary_key=True)
    value = models.JSONField()
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "installation_settings"

    def __str__(self) -> str:
        return self.name


def kept_setting(name: str, default: Any = None, *, reads: bool = True) -> Any:
    """The value that staff have kept, as of `KEPT_SETTINGS_SECONDS` ago at most, so that all processes agree soon.

    An event loop must not wait for the database: there it is the value of the last request, as without `reads`.
    """
    with _lock:
        read_at, values = _kept[0]
        is_due = reads and time.monotonic() - read_at >= settings.KEPT_SETTINGS_SECONDS and not _is_in_event_loop()
        if is_due:
            # Only one thread reads.
            _kept[0] = (time.monotonic(), values)
    if is_due:
        try:
            read_kept_settings()
        except (DatabaseError, InterfaceError) as error:
            # A page that needs no database is shown without one.
            logger.warning("The settings that staff keep cannot be read (%s)", type(error).__name__)
    return _kept[0][1].get(name, default)


def forget_kept_settings() -> None:
    """Begin as a new process does."""
    _kept[0] = (-1.0e9, {})


def read_kept_settings() -> None:
    """Read all of them now."""
    _kept[0] = (time.monotonic(), dict(InstallationSetting.objects.values_list("name", "value")))


def keep_setting(name: str, change: Callable[[Any], Any]) -> None:
    """Replace a setting by `change` of its present value, which is empty before the first. The row is locked meanwhile.

    Only for requests of staff.
    """
    with acting_as_staff():
        InstallationSetting.objects.get_or_create(name=name, defaults={"value": ""})
        row = InstallationSetting.objects.select_for_update().get(name=name)
        row.value, row.changed_at = change(row.value), timezone.now()
        row.save(update_fields=["value", "changed_at"])
    read_kept_settings()


def may_visitors_chat() -> bool:
    if settings.VISITORS is not None:
        return bool(settings.VISITORS)
    return bool(kept_setting(VISITORS, default=True))


def languages_offered(*, reads: bool = True) -> list[tuple[str, str]]:
    """Code and name of the languages in which pages are shown; never none."""
    chosen = kept_setting(LANGUAGES, reads=reads) or ()
    return [each for each in settings.LANGUAGES if each[0] in chosen] or list(settings.LANGUAGES)


def retention_days() -> int:
    return int(kept_setting(RETENTION, default=0) if settings.RETENTION_DAYS is None else settings.RETENTION_DAYS)


def default_instructions() -> str:
    return str(kept_setting(INSTRUCTIONS, default=""))


def fixed_quota(name: str) -> int | None:
    """By the environment; None if staff choose it. `name` is one of `turns`, `bytes`, `file_bytes`."""
    fixed: int | None = getattr(settings, f"QUOTA_{'FILE_BYTES' if name == 'file_bytes' else name.upper()}")
    return fixed


def quota_of_everybody(name: str) -> int:
    """0 is no quota."""
    fixed = fixed_quota(name)
    return int((kept_setting(QUOTAS) or {}).get(name, 0)) if fixed is None else fixed


def own_quotas(user_id: int | None) -> dict[str, int]:
    """Those that staff have set for this person alone."""
    return dict((kept_setting(QUOTAS_OF_USERS) or {}).get(str(user_id), {}))


def quota_for(user_id: int | None, name: str) -> int:
    """0 is no quota."""
    return own_quotas(user_id).get(name, quota_of_everybody(name))


def cipher_for(purpose: str) -> MultiFernet:
    """Seals what only this installation may read; it also opens what a key in SECRET_KEY_FALLBACKS has sealed."""
    return MultiFernet(
        [Fernet(_key_for(purpose, secret)) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    )


@lru_cache(maxsize=32)
def _key_for(purpose: str, secret: str) -> bytes:
    derived = HKDF(SHA256(), length=32, salt=None, info=f"recollect: {purpose}".encode()).derive(secret.encode())
    return base64.urlsafe_b64encode(derived)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
