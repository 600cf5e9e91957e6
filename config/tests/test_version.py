"""One version, wherever it is shown."""

import re
import tomllib
from pathlib import Path

import pytest
from django.conf import settings

from config import VERSION
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db

ROOT = Path(settings.BASE_DIR)


def test_the_package_reads_it_and_the_newest_section_of_the_changelog_names_it():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert package["project"]["dynamic"] == ["version"]
    source = ROOT / package["tool"]["hatch"]["version"]["path"]
    assert re.findall(r'^VERSION = "(.+)"$', source.read_text(), re.MULTILINE) == [VERSION]
    newest = re.search(r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == VERSION


def test_supervisors_read_it_at_healthz(client):
    assert client.get("/healthz").json()["version"] == VERSION


def test_people_read_it_at_the_end_of_their_account_page(client):
    client.force_login(a_person("alice"))
    page = client.get("/settings/account/").text
    assert page.index(f"Recollect {VERSION}") > page.index("Delete")
