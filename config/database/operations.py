"""The module in which Django expects the compilers of the engine `config.database`."""

from django.db.backends.postgresql import operations

from core.isolation.acting import is_cluster


class DatabaseOperations(operations.DatabaseOperations):
    @property
    def compiler_module(self) -> str:  # type: ignore[override]
        """Called once per thread. A single server uses Django's own compilers."""
        return "config.database.compiler" if is_cluster(self.connection) else "django.db.backends.postgresql.compiler"
