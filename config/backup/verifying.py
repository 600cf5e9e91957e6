"""Compares a product with the manifest of a backup."""

from collections.abc import Iterator
from typing import Any

from config.backup import contents, server
from config.backup.contents import TableContents


def differences(manifest: dict[str, Any]) -> Iterator[str]:
    """A sentence for each table and setting that is not as the backup says."""
    wanted = {name: TableContents(**table) for name, table in manifest["tables"].items()}
    with server.reading_everything():
        found = contents.tables()
    yield from contents.differences(wanted, found)
    for name, value in contents.kept_settings().items():
        if name in manifest["settings"] and manifest["settings"][name] != value:
            yield f"The setting {name} was {manifest['settings'][name]} and is {value}."


def total_rows(manifest: dict[str, Any]) -> int:
    return sum(int(table["rows"]) for table in manifest["tables"].values())
