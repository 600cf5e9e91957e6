"""Backups: one file with all data of the database, verified before and after it is restored."""


class BackupError(Exception):
    """One sentence for the operator: the fault and the fix."""
