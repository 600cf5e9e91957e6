"""Where Django looks for an engine."""

from typing import Any

from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base

from config.database.pool import RecoveringPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Makes the pool of another class; everything else is Django's."""

    # Django's own, which the stubs do not know.
    _connection_pools: dict[str, Any]
    _configure_connection: Any

    @property
    def pool(self) -> Any:
        options = self.settings_dict["OPTIONS"].get("pool")
        if options and self.alias not in (NO_DB_ALIAS, *self._connection_pools):
            made = RecoveringPool(
                kwargs={**self.get_connection_params(), "autocommit": True},
                open=False,
                configure=self._configure_connection,
                **options,
            )
            # Of several threads the first sets it.
            self._connection_pools.setdefault(self.alias, made)
        return super().pool
