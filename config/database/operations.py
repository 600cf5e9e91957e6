"""Where Django looks for the compilers of the engine `config.database`."""

from django.db.backends.postgresql import operations


class DatabaseOperations(operations.DatabaseOperations):
    compiler_module = "config.database.compiler"
