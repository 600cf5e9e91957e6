"""The file format of a backup: a tar of a manifest, the dump in parts, and their hashes; encrypted on request.

It is written and read as a stream, so that it can go through a pipe. It is never completely in memory, nor on disk
unencrypted.

An encrypted file is in the age format (age-encryption.org/v1), except for its first two lines: they contain the secret
key for the rest, which only the passphrase opens. age's own way to use a passphrase takes as much memory as a second
allows, on a fast machine more than a gigabyte.
"""

import hashlib
import io
import json
import os
import tarfile
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import pyrage
from cryptography.fernet import Fernet, InvalidToken

from config.backup import BackupError

MANIFEST, HASHES, DUMP = "manifest.json", "hashes.json", "dump/"
PART_BYTES = 8 * 2**20
ENCRYPTED = b"recollect backup, encrypted 2\n"
# Of scrypt (RFC 7914), as OWASP's password storage cheat sheet has them: 128 MB, less than a second.
SCRYPT = {"n": 2**17, "r": 8, "p": 1, "maxmem": 2**28, "dklen": 32}
SALT_BYTES = 16
LONGEST_KEY = 1_000
DAMAGED = "The backup is damaged or cut off, and nothing of it is used: take another copy."


def write(out: IO[bytes], manifest: dict[str, Any], dump: IO[bytes], *, passphrase: str | None) -> None:
    """Write a whole backup to `out`, which need not be seekable."""
    if passphrase is None:
        _write_tar(out, manifest, dump)
        return
    identity = pyrage.x25519.Identity.generate()
    salt = os.urandom(SALT_BYTES)
    out.write(ENCRYPTED + b"%s %s\n" % (salt.hex().encode(), _box(passphrase, salt).encrypt(str(identity).encode())))
    with _piped(lambda pipe: _write_tar(pipe, manifest, dump)) as tar:
        pyrage.encrypt_io(tar, out, [identity.to_public()])


def read_manifest(source: IO[bytes], *, passphrase: str | None) -> dict[str, Any]:
    """Read the whole backup once and check every hash; returns its manifest. Raises `BackupError`."""
    manifest: dict[str, Any] = {}
    for name, content in _members(source, passphrase):
        if name == MANIFEST:
            manifest = _as_object(content)
    return manifest


def read_dump(source: IO[bytes], *, passphrase: str | None) -> Iterator[bytes]:
    """The parts of the dump, in order. Raises `BackupError` if one does not match its hash."""
    for name, content in _members(source, passphrase):
        if name.startswith(DUMP):
            yield content


def _write_tar(out: IO[bytes], manifest: dict[str, Any], dump: IO[bytes]) -> None:
    hashes: dict[str, str] = {}
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name, content in _contents(manifest, dump):
            hashes[name] = hashlib.sha256(content).hexdigest()
            _add(tar, name, content)
        _add(tar, HASHES, json.dumps(hashes).encode())


def _contents(manifest: dict[str, Any], dump: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, json.dumps(manifest, indent=1).encode()
    number = 0
    while part := dump.read(PART_BYTES):
        yield f"{DUMP}{number:08}", part
        number += 1


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o600
    tar.addfile(entry, io.BytesIO(content))


def _members(source: IO[bytes], passphrase: str | None) -> Iterator[tuple[str, bytes]]:
    """Each member except the hashes, which come last and must match all earlier members."""
    found: dict[str, str] = {}
    with _opened(source, passphrase) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for entry in tar:
                    content = _content(tar, entry)
                    if entry.name == HASHES:
                        if json.loads(content) != found:
                            raise BackupError(DAMAGED)
                        return
                    found[entry.name] = hashlib.sha256(content).hexdigest()
                    yield entry.name, content
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise BackupError(DAMAGED) from error
    raise BackupError(DAMAGED)


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    # A damaged header may claim any size.
    if file is None or entry.size > PART_BYTES * 4:
        raise BackupError(DAMAGED)
    content = file.read()
    if len(content) != entry.size:
        raise BackupError(DAMAGED)
    return content


@contextmanager
def _opened(source: IO[bytes], passphrase: str | None) -> Iterator[io.BufferedIOBase | IO[bytes]]:
    beginning = source.read(len(ENCRYPTED))
    if beginning != ENCRYPTED:
        yield _Rest(beginning, source)
        return
    if passphrase is None:
        raise BackupError("The backup is encrypted: put its passphrase into RECOLLECT_BACKUP_PASSPHRASE.")
    identity = _identity(source, passphrase)
    with _piped(lambda pipe: pyrage.decrypt_io(source, pipe, [identity])) as stream:
        yield stream


def _identity(source: IO[bytes], passphrase: str) -> Any:
    salt, _, sealed = source.readline(LONGEST_KEY).strip().partition(b" ")
    try:
        key = _box(passphrase, bytes.fromhex(salt.decode())).decrypt(sealed)
        return pyrage.x25519.Identity.from_str(key.decode())
    except (InvalidToken, pyrage.IdentityError, ValueError):
        raise BackupError("The passphrase does not open the backup, or its beginning is damaged.") from None


def _box(passphrase: str, salt: bytes) -> Fernet:
    return Fernet(urlsafe_b64encode(hashlib.scrypt(passphrase.encode(), salt=salt, **SCRYPT)))


class _Rest(io.BufferedIOBase):
    """A stream whose beginning has been read already."""

    def __init__(self, beginning: bytes, rest: IO[bytes]) -> None:
        self._beginning, self._rest = beginning, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        size = -1 if size is None else size
        if not self._beginning:
            return self._rest.read(size)
        piece, self._beginning = self._beginning[:size], self._beginning[size:] if size >= 0 else b""
        return piece


@contextmanager
def _piped(write_to: Callable[[IO[bytes]], None]) -> Iterator[IO[bytes]]:
    """A stream of the output of `write_to`, which runs in a thread; its failure is raised at the end of the block."""
    reading, writing = os.pipe()
    failures: list[BaseException] = []

    def work() -> None:
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            try:
                write_to(pipe)
            except BrokenPipeError:
                raise
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        with os.fdopen(reading, "rb") as stream:
            yield stream
    finally:
        thread.join()
    if failures:
        raise BackupError(DAMAGED) from failures[0]


def _as_object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BackupError(DAMAGED)
    return value
