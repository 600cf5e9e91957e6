"""Where Django looks for the compilers of the engine `config.database`."""

from django.db.backends.postgresql import operations

from core.isolation.acting import is_cluster


class DatabaseOperations(operations.DatabaseOperations):
    @property
    def compiler_module(self) -> str:  # type: ignore[override]
        """Asked once by each thread. A single server has Django's own."""
        return "config.database.compiler" if is_cluster(self.connection) else "django.db.backends.postgresql.compiler"
