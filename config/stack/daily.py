"""The backups that are made by themselves: where they stand and how old the last one is. Imports nothing of Django."""

from pathlib import Path

# A little less than a day, so that a backup of a day does not come later from day to day.
DAY_SECONDS = 23.5 * 3600


def daily_backups(folder: Path) -> list[Path]:
    """The daily backups in a folder, the oldest first: their names begin with the time."""
    return sorted(folder.glob("*-daily.backup"))


def last_daily_backup(folder: Path) -> Path | None:
    return next(reversed(daily_backups(folder)), None)
