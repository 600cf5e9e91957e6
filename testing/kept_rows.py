"""Rows that several tests read, made once in a transaction around the transactions of these tests.

It ends with the module, and before a test that asks for other rows, for none, or commits. What a test changes is undone
at its end, and it gets copies of the objects.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

_makers: dict[str, Callable[[], Any]] = {}


@dataclass
class KeptRows:
    """`made`: what the maker of this name returned."""

    name: str
    made: Any
    around: transaction.Atomic


_kept: list[KeptRows] = []


def kept_rows(make: Callable[[], Any]) -> Any:
    """Decorate a function that makes rows: it becomes a fixture of its name, which no other fixture may have.

    A test asks for at most one of these.
    """
    name = make.__name__
    _makers[name] = make

    def rows(db: None) -> Any:
        """Tests that commit make their own."""
        return deepcopy(_kept[0].made) if _kept else make()

    return pytest.fixture(name=name)(rows)


def release_rows(item: pytest.Item | None = None) -> None:
    """Undo the kept rows, unless this next test reads them."""
    while _kept and not (item and _kept[0].name in rows_read_by(item) and not _commits(item)):
        transaction.set_rollback(True)
        _kept.pop().around.__exit__(None, None, None)


def keep_rows(item: pytest.Item) -> None:
    """Make the rows that this test reads, before its own transaction begins."""
    if _kept or _commits(item):
        return
    for name in rows_read_by(item):
        around = transaction.atomic()
        around.__enter__()
        try:
            made = _makers[name]()
        except BaseException:
            transaction.set_rollback(True)
            around.__exit__(None, None, None)
            raise
        _kept.append(KeptRows(name, made, around))


def rows_read_by(item: pytest.Item) -> list[str]:
    """The names of the makers."""
    return [name for name in getattr(item, "fixturenames", ()) if name in _makers]


def _commits(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("django_db")
    return "transactional_db" in getattr(item, "fixturenames", ()) or bool(marker and marker.kwargs.get("transaction"))
