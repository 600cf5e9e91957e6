"""`manage.py sbom` names everything that an installation is made of, in CycloneDX 1.6, the same way each time."""

import json
import re
import tomllib
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import jsonschema
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from config import VERSION
from config.ops import release

ROOT = Path(settings.BASE_DIR)
DIGEST = "a" * 64
# The specification's rules for all that the document uses; nothing else may be in it.
TEXT = {"type": "string", "minLength": 1}
DECLARED = {"acknowledgement": {"enum": ["declared"]}}


def strict(required, **optional):
    return {
        "type": "object",
        "required": list(required),
        "properties": required | optional,
        "additionalProperties": False,
    }


LICENCES = {
    "oneOf": [
        {"type": "array", "minItems": 1, "items": strict({"license": strict({"name": TEXT}, **DECLARED)})},
        {"type": "array", "minItems": 1, "maxItems": 1, "items": strict({"expression": TEXT}, **DECLARED)},
    ]
}
PROPERTIES = {"type": "array", "items": strict({"name": TEXT, "value": TEXT})}
HASH = strict({"alg": {"enum": ["SHA-256"]}, "content": {"type": "string", "pattern": "^[0-9a-f]{64}$"}})
COMPONENT = strict(
    {"type": {"enum": ["library", "application"]}, "name": TEXT, "version": TEXT, "bom-ref": TEXT},
    scope={"enum": ["required", "optional"]},
    purl={"type": "string", "pattern": r"^pkg:pypi/[a-z0-9-]+@[\w.%-]+$"},
    hashes={"type": "array", "minItems": 1, "uniqueItems": True, "items": HASH},
    licenses=LICENCES,
    properties=PROPERTIES,
)
SERIAL = r"^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
SCHEMA = strict(
    {
        "$schema": {"const": "http://cyclonedx.org/schema/bom-1.6.schema.json"},
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"type": "string", "pattern": SERIAL},
        "version": {"type": "integer", "minimum": 1},
        "metadata": strict({"component": COMPONENT, "properties": PROPERTIES}),
        "components": {"type": "array", "uniqueItems": True, "items": COMPONENT},
    }
)


def written(*arguments):
    out = StringIO()
    call_command("sbom", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.mark.parametrize("lock", ["server", "local"])
def test_it_is_valid_and_names_each_package_of_the_lock_with_its_hashes(lock):
    document = json.loads(written("--lock", lock))
    jsonschema.Draft7Validator(SCHEMA).validate(document)
    references = [component["bom-ref"] for component in document["components"]]
    assert len(references) == len(set(references))
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    locked = {(name, number) for name, number in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}
    assert len(locked) > 100
    assert {(component["name"], component["version"]) for component in document["components"]} >= locked
    digests = [each["content"] for component in document["components"] for each in component.get("hashes", ())]
    assert sorted(digests) == sorted(re.findall(r"sha256:(\w+)", text))


def test_it_is_the_same_each_time_and_another_content_has_another_serial_number():
    assert written("--lock", "server") == written("--lock", "server")
    serials = {json.loads(written("--lock", lock))["serialNumber"] for lock in ("server", "local")}
    assert len(serials) == 2


def test_it_names_the_product_with_its_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    document = json.loads(written())
    product = document["metadata"]["component"]
    assert (product["type"], product["name"], product["version"]) == ("application", "recollect", VERSION)
    assert product["licenses"][0]["expression"] == project["license"]
    # Where the suite runs, the embedded servers are installed.
    assert document["metadata"]["properties"] == [{"name": "recollect:lock", "value": "local.txt"}]


def test_what_is_installed_has_its_licence_and_what_is_for_another_platform_says_so():
    components = {component["name"]: component for component in json.loads(written())["components"]}
    assert components["django"]["scope"] == "required"
    assert components["django"]["licenses"] == [{"expression": "BSD-3-Clause", "acknowledgement": "declared"}]
    windows = components["pywin32"]
    assert windows["scope"] == "optional"
    assert windows["properties"] == [{"name": "recollect:marker", "value": "sys_platform == 'win32'"}]


def test_another_version_than_the_locks_is_named_as_it_is_installed_and_without_hashes():
    locked = release.parse(f"django==1.0 \\\n    --hash=sha256:{DIGEST}\n", name="server.txt")
    found = release.strangers(locked)
    old, new = release.document("server", [*locked, *found])["components"]
    assert (old["version"], old["scope"], len(old["hashes"])) == ("1.0", "optional", 1)
    assert (new["version"], new["scope"], "hashes" in new) == (version("django"), "required", False)


def test_a_local_version_is_escaped_in_its_package_url():
    assert release.LockedPackage("Torch_Lib", "2.1+cpu").purl == "pkg:pypi/torch-lib@2.1%2Bcpu"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("django>=5\n", "server.txt, line 1"),
        (f"--hash=sha256:{DIGEST}\n", "server.txt, line 1"),
        (f"django==5 \\\n    --hash=md5:{DIGEST}\n", "server.txt, line 2"),
        ("# a comment\ndjango==5\n", "no hash for django"),
    ],
)
def test_a_lock_that_does_not_say_all_is_refused(text, message):
    with pytest.raises(CommandError, match=message):
        release.parse(text, name="server.txt")


def test_it_goes_into_a_file_or_says_why_not(tmp_path):
    call_command("sbom", str(tmp_path / "bom.json"), "--lock", "server", stderr=StringIO())
    assert (tmp_path / "bom.json").read_text() == written("--lock", "server")
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("sbom", str(tmp_path / "nowhere" / "bom.json"), stderr=StringIO())


def test_an_installation_without_its_lock_is_told_so(settings, tmp_path):
    settings.BASE_DIR = tmp_path
    with pytest.raises(CommandError, match=r"server\.txt cannot be read"):
        written("--lock", "server")
