"""The wheel of the server, for machines without the repository: `make wheel`, `python -m config.ops.wheel FOLDER`.

It has the command line, and as `recollect_server` the files that the container has too. Its packages are not declared,
but locked: some of them declare gigabytes that nothing here reads (`tool.uv.dependency-metadata`), and a declared
version has no hash. `recollect up` installs the lock (`recollect_cli.serving`).
"""

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from config import VERSION
from config.stack.paths import BASE_DIR

NAME = "recollect_server"
# As in .dockerignore, which says the same for the image.
FOLDERS = ("agent_tools", "chat", "config", "core", "evals", "imports", "intake", "locale", "memory")
FILES = ("manage.py", "requirements/local.txt", "LICENSE", "CHANGELOG.md")
CLIENT = "recollect_cli"
LEFT_OUT = ("__pycache__", "tests", "node_modules")
UV = "uv=="


def build(target: Path) -> Path:
    """Write the wheel into the folder, and return its path."""
    target.mkdir(parents=True, exist_ok=True)
    wheel = target / f"{NAME}-{VERSION}-py3-none-any.whl"
    partial = wheel.with_suffix(".part")
    record = []
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _contents():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}")
            _add(archive, name, content)
        listed = f"{_info('RECORD')}"
        _add(archive, listed, "".join(f"{line}\n" for line in [*record, f"{listed},,"]).encode())
    partial.replace(wheel)
    return wheel


def _contents() -> Iterator[tuple[str, bytes]]:
    for path in _files(CLIENT):
        yield path, (BASE_DIR / path).read_bytes()
    for path in sorted([*FILES, *(path for folder in FOLDERS for path in _files(folder))]):
        yield f"{NAME}/{path}", (BASE_DIR / path).read_bytes()
    yield _info("METADATA"), _metadata().encode()
    yield _info("WHEEL"), b"Wheel-Version: 1.0\nGenerator: recollect\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    yield _info("entry_points.txt"), b"[console_scripts]\nrecollect = recollect_cli.__main__:main\n"


def _files(folder: str) -> list[str]:
    """The committed files, without private ones of the working tree. Without git: all files of the folder."""
    listed = subprocess.run(  # noqa: S603 - a fixed command
        ["git", "ls-files", "-z", "--", folder],  # noqa: S607 - git as it is installed
        cwd=BASE_DIR, capture_output=True, text=True, check=False,
    )  # fmt: skip
    paths = [path for path in listed.stdout.split("\0") if path and (BASE_DIR / path).is_file()]
    if not paths:
        paths = [str(path.relative_to(BASE_DIR)) for path in (BASE_DIR / folder).rglob("*") if path.is_file()]
    return sorted(path for path in paths if not set(LEFT_OUT) & set(Path(path).parts) and not path.endswith(".pyc"))


def _metadata() -> str:
    lock = (BASE_DIR / "requirements/installer.txt").read_text().split()
    uv = next(word for word in lock if word.startswith(UV))
    return (
        f"Metadata-Version: 2.1\nName: recollect-server\nVersion: {VERSION}\n"
        "Summary: A self-hosted memory for people and their agents.\n"
        f"License: MIT\nRequires-Python: >=3.11\nRequires-Dist: {uv}\n"
    )


def _info(name: str) -> str:
    return f"{NAME}-{VERSION}.dist-info/{name}"


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # One of a wheel's files has no later date: two builds of one commit are equal, byte for byte.
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.external_attr, entry.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))  # noqa: T201
