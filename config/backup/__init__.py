"""Backups: one file with all that the database holds, checked before it is restored and after."""


class BackupError(Exception):
    """One sentence for the operator: the fault and the way out."""
