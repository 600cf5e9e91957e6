"""The file of a backup: a tar of a manifest, the dump in parts, and their hashes; encrypted on request.

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
import sys
import tarfile
import tempfile
import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

import pyrage
from cryptography.fernet import Fernet, InvalidToken
from django.core.management import CommandError

MANIFEST, HASHES, DUMP = "manifest.json", "hashes.json", "dump/"
PART_BYTES = 8 * 2**20
ENCRYPTED = b"recollect backup, encrypted 2\n"
# Of scrypt (RFC 7914), as OWASP's password storage cheat sheet has them: 128 MB, less than a second.
SCRYPT = {"n": 2**17, "r": 8, "p": 1, "maxmem": 2**28, "dklen": 32}
DAMAGED = "The backup is damaged or cut off, and nothing of it is used: take another copy."


def passphrase() -> str | None:
    """The passphrase comes from the environment: every process of the machine could read one on a command line."""
    return os.environ.get("RECOLLECT_BACKUP_PASSPHRASE") or None


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """The file, seekable; standard input is copied unchanged to a temporary file."""
    if name != "-":
        try:
            with Path(name).open("rb") as file:
                yield file
        except FileNotFoundError:
            raise CommandError(f"There is no file {name}.") from None
        except IsADirectoryError:
            raise CommandError(f"{name} is a folder: name the file of the backup.") from None
        except PermissionError:
            raise CommandError(f"{name} may not be read by this user: change its owner or its mode.") from None
        return
    with tempfile.TemporaryFile() as file:
        copyfileobj(sys.stdin.buffer, file)
        yield file


def write(out: IO[bytes], manifest: dict[str, Any], dump: IO[bytes]) -> None:
    """Write a whole backup to `out`, which need not be seekable; encrypted if there is a passphrase."""
    secret = passphrase()
    if secret is None:
        _write_tar(out, manifest, dump)
        return
    identity = pyrage.x25519.Identity.generate()
    salt = os.urandom(16)
    out.write(ENCRYPTED + b"%s %s\n" % (salt.hex().encode(), _box(secret, salt).encrypt(str(identity).encode())))
    with _piped(lambda pipe: _write_tar(pipe, manifest, dump)) as tar:
        pyrage.encrypt_io(tar, out, [identity.to_public()])


def _write_tar(out: IO[bytes], manifest: dict[str, Any], dump: IO[bytes]) -> None:
    hashes: dict[str, str] = {}
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:

        def add(name: str, content: bytes) -> None:
            hashes[name] = hashlib.sha256(content).hexdigest()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o600
            tar.addfile(entry, io.BytesIO(content))

        add(MANIFEST, json.dumps(manifest, indent=1).encode())
        for number, part in enumerate(iter(lambda: dump.read(PART_BYTES), b"")):
            add(f"{DUMP}{number:08}", part)
        add(HASHES, json.dumps(hashes).encode())


def read_manifest(source: IO[bytes]) -> dict[str, Any]:
    """Read the whole backup once and check every hash; returns its manifest. Raises `CommandError`."""
    manifest: Any = None
    for name, content in _members(source):
        if name == MANIFEST:
            with suppress(ValueError):
                manifest = json.loads(content)
    if not isinstance(manifest, dict):
        raise CommandError(DAMAGED)
    return manifest


def read_dump(source: IO[bytes]) -> Iterator[bytes]:
    """The parts of the dump, in order. Raises `CommandError` if one does not match its hash."""
    return (content for name, content in _members(source) if name.startswith(DUMP))


def _members(source: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """Each member except the hashes, which come last and must match all earlier members."""
    found: dict[str, str] = {}
    with _decrypted(source) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for entry in tar:
                    file = tar.extractfile(entry)
                    # A damaged header may claim any size.
                    if file is None or entry.size > PART_BYTES * 4:
                        raise CommandError(DAMAGED)
                    content = file.read()
                    if len(content) != entry.size:
                        raise CommandError(DAMAGED)
                    if entry.name == HASHES:
                        if json.loads(content) != found:
                            raise CommandError(DAMAGED)
                        return
                    found[entry.name] = hashlib.sha256(content).hexdigest()
                    yield entry.name, content
        except (tarfile.TarError, ValueError, EOFError) as error:
            raise CommandError(DAMAGED) from error
    raise CommandError(DAMAGED)


@contextmanager
def _decrypted(source: IO[bytes]) -> Iterator[IO[bytes]]:
    source.seek(0)
    if source.read(len(ENCRYPTED)) != ENCRYPTED:
        source.seek(0)
        yield source
        return
    secret = passphrase()
    if secret is None:
        raise CommandError("The backup is encrypted: put its passphrase into RECOLLECT_BACKUP_PASSPHRASE.")
    salt, _, sealed = source.readline(1_000).strip().partition(b" ")
    try:
        key = _box(secret, bytes.fromhex(salt.decode())).decrypt(sealed)
        identity = pyrage.x25519.Identity.from_str(key.decode())
    except (InvalidToken, pyrage.IdentityError, ValueError):
        raise CommandError("The passphrase does not open the backup, or its beginning is damaged.") from None
    with _piped(lambda pipe: pyrage.decrypt_io(source, pipe, [identity])) as stream:
        yield stream


def _box(secret: str, salt: bytes) -> Fernet:
    return Fernet(urlsafe_b64encode(hashlib.scrypt(secret.encode(), salt=salt, **SCRYPT)))


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
        raise CommandError(DAMAGED) from failures[0]
