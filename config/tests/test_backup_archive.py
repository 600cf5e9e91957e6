"""The file of a backup: what goes in comes out, and a file that is not as it was written is refused."""

import io
import os
from contextlib import nullcontext
from unittest.mock import patch

import pytest
from django.core.management import CommandError

from config.ops import backup_file, comparison

MANIFEST = {"format": "recollect-backup/1", "tables": {}}
DUMP = bytes(range(256)) * 40


def given(passphrase):
    return patch.dict(os.environ, {"RECOLLECT_BACKUP_PASSPHRASE": passphrase or ""})


def written(passphrase=None, dump=DUMP):
    out = io.BytesIO()
    with given(passphrase):
        backup_file.write(out, MANIFEST, io.BytesIO(dump))
    return out.getvalue()


def manifest_of(content, passphrase=None):
    with given(passphrase):
        return backup_file.read_manifest(io.BytesIO(content))


def read(content, passphrase=None):
    manifest = manifest_of(content, passphrase)
    with given(passphrase):
        return manifest, b"".join(backup_file.read_dump(io.BytesIO(content)))


@pytest.fixture(scope="module")
def encrypted():
    """Made once: a passphrase takes half a second on purpose."""
    return written("correct horse")


@pytest.mark.medium
def test_the_manifest_and_the_dump_come_back_as_they_went_in(encrypted):
    assert read(written()) == (MANIFEST, DUMP)
    assert read(encrypted, "correct horse") == (MANIFEST, DUMP)


def test_a_dump_of_several_parts_keeps_their_order(monkeypatch):
    monkeypatch.setattr(backup_file, "PART_BYTES", 1000)

    assert read(written()) == (MANIFEST, DUMP)


def test_an_encrypted_backup_shows_nothing_of_what_is_in_it(encrypted):
    assert DUMP[:64] not in encrypted
    assert b"recollect-backup/1" not in encrypted


def test_a_changed_byte_of_any_part_is_refused():
    content = written()
    # The blanks that fill up a tar carry nothing.
    for position in range(0, len(content) - 20 * 512, 97):
        if not content[position]:
            continue
        flipped = bytearray(content)
        flipped[position] ^= 1
        try:
            assert read(bytes(flipped)) == (MANIFEST, DUMP), f"byte {position} changes what is read"
        except CommandError:
            continue


def test_a_changed_byte_of_the_dump_is_refused():
    content = bytearray(written())
    content[content.index(DUMP) + 1000] ^= 1

    with pytest.raises(CommandError, match="damaged"):
        manifest_of(content)


def test_a_changed_byte_of_an_encrypted_backup_is_refused(encrypted):
    content = bytearray(encrypted)
    content[-200] ^= 1

    with pytest.raises(CommandError):
        manifest_of(content, "correct horse")


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.6])
def test_a_backup_that_was_cut_off_is_refused(share):
    content = written()

    with pytest.raises(CommandError):
        manifest_of(content[: int(len(content) * share)])


@pytest.mark.medium
def test_an_encrypted_backup_that_was_cut_off_is_refused(encrypted):
    with pytest.raises(CommandError):
        manifest_of(encrypted[: len(encrypted) // 2], "correct horse")


@pytest.mark.medium
def test_a_wrong_passphrase_and_none_get_a_sentence(encrypted):
    with pytest.raises(CommandError, match="does not open"):
        manifest_of(encrypted, "battery staple")
    with pytest.raises(CommandError, match="RECOLLECT_BACKUP_PASSPHRASE"):
        manifest_of(encrypted)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(2000), bytes(20_000)])
def test_a_file_that_is_no_backup_is_refused(content):
    with pytest.raises(CommandError):
        manifest_of(content)


def test_an_index_that_workers_have_packed_is_no_difference_and_a_lost_vector_is(monkeypatch):
    def described(**rows):
        return {name: {"rows": number, "hash": f"{name} {number}"} for name, number in rows.items()}

    before = described(users=2, embeddings=5, term_blocks=1, pending_terms=9, embedding_blocks=0)
    monkeypatch.setattr(comparison.backup, "reading_everything", nullcontext)
    monkeypatch.setattr(comparison, "_changed_tables", lambda _: set())
    monkeypatch.setattr(comparison, "applied_migrations", lambda: None)

    def differences(**rows):
        monkeypatch.setattr(comparison, "tables", lambda: described(**rows))
        return [line.partition(":")[0] for line in comparison.differences({"tables": before})]

    assert differences(users=2, embeddings=5, term_blocks=2, pending_terms=0) == []
    assert differences(users=2, embeddings=4, term_blocks=2, pending_terms=0) == ["embeddings"]
    assert differences(users=1, embeddings=5, term_blocks=1, pending_terms=9) == ["users"]
    monkeypatch.setattr(comparison, "tables", lambda: described(users=2, embeddings=5, term_blocks=2))
    just_restored = list(comparison.differences({"tables": before}, was_just_restored=True))
    assert [line.partition(":")[0] for line in just_restored] == ["embedding_blocks", "pending_terms", "term_blocks"]
