"""Reads an import's export in batches, counts the skipped items, and identifies the others by digests."""

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from core.text import kept, pg_text
from imports.models import Import, ItemKind
from imports.reading import products
from imports.reading.files import Files, open_files
from imports.reading.items import (
    ImportedConversation,
    ImportedDocument,
    ImportedProject,
    ImportedRecord,
    Notice,
    Skipped,
)
from imports.storing.uploads import reading_limits, upload_path

LONGEST_ID = 200


def key_of(*ids: str) -> bytes:
    """BLAKE2b-128 of the product, the kind of thing and its ids there, the outermost first."""
    # The lengths keep ("ab", "c") apart from ("a", "bc").
    framed = "".join(f"{len(part)}:{part}" for part in ids)
    return hashlib.blake2b(framed.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# Of all the texts, in their order.
hash_of = key_of


def short_id(external_id: str) -> str:
    """An id for storing and selecting; a very long one is replaced by its digest."""
    external_id = pg_text(external_id)
    return external_id if len(external_id) <= LONGEST_ID else hash_of(external_id).hex()


MAX_LISTED = 100
LONGEST_SENTENCE = 500

Wanted = ImportedConversation | ImportedDocument | ImportedRecord | ImportedProject


@dataclass
class SkippedCounts:
    """The skipped items and the notices: the first hundred of each, and their numbers."""

    count: int = 0
    listed: list[dict[str, Any]] = field(default_factory=list)
    notices: list[Any] = field(default_factory=list)
    # Of the files that would come in.
    file_bytes: int = 0
    # Messages of chats that are here, said before their last one, which an earlier version did not read.
    earlier: int = 0

    def add(self, item: Skipped | Notice) -> None:
        if isinstance(item, Notice):
            if len(self.notices) < MAX_LISTED:
                self.notices.append(notice_of(item.text))
            return
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            external_id = None if item.external_id is None else pg_text(item.external_id)[:LONGEST_SENTENCE]
            where, reason = (
                pg_text(item.where)[:LONGEST_SENTENCE],
                _row("reason", item.reason, at_most=LONGEST_SENTENCE),
            )
            self.listed.append({"where": where, **reason, "external_id": external_id})


def open_export(batch: Import) -> AbstractContextManager[Files]:
    """The files of the upload, which are read while it is open. Raises `UnreadableExport`."""
    return open_files(upload_path(batch), reading_limits(), name=batch.filename)


def read(files: Files, batch: Import, left_out: SkippedCounts) -> Iterator[Wanted]:
    """All items that can be imported. Raises `UnreadableExport`."""
    for item in products.read_files(files, batch.product or None):
        if isinstance(item, Skipped | Notice):
            left_out.add(item)
        else:
            yield item


def id_of(item: Wanted) -> str:
    """The id by which the user selects it."""
    if isinstance(item, ImportedRecord | ImportedProject):
        return short_id(str(item.id))
    account = item.account if isinstance(item, ImportedDocument) else ""
    return short_id(f"{item.external_id} ({account})" if account else item.external_id)


def kind_of(item: Wanted) -> ItemKind:
    match item:
        case ImportedConversation():
            return ItemKind.CONVERSATION
        case ImportedDocument():
            return ItemKind.DOCUMENT
        case ImportedRecord():
            return ItemKind.RECORD
        case ImportedProject():
            return ItemKind.PROJECT


def notice_of(text: str) -> Any:
    # With the instructions of a chat.
    notice = _row("text", text, at_most=4_500)
    return notice if "sentence" in notice else notice["text"]


def _row(name: str, text: str, *, at_most: int) -> dict[str, Any]:
    """The text as it is stored, with its values unless it had to be changed."""
    stored = pg_text(text)[:at_most]
    return {name: stored, **(kept(text) if stored == text else {})}
