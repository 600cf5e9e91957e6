"""Backups: one file with all data of the database, verified before and after it is restored."""


class BackupError(Exception):
    """One sentence for the operator: the fault and the fix."""


# The schema that holds the tables of another version while their rows are carried over.
CARRIED = "restored_from_backup"
