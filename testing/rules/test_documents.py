"""The documentation that is written from the code is what the code says now, and no link in it leads nowhere."""

import re
import tomllib
from pathlib import Path

import pytest
from django.conf import settings

from config import VERSION
from config.settings.table import SETTINGS, setting_of
from docs import write_reference

ROOT = Path(settings.BASE_DIR)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def without_code(text):
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(path):
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_settings_is_what_make_docs_writes():
    assert write_reference.SETTINGS.read_text() == write_reference.settings_page(), "Run `make docs`."


def test_the_page_of_commands_is_what_make_docs_writes(monkeypatch):
    monkeypatch.delenv("RECOLLECT_URL", raising=False)
    page = write_reference.COMMANDS.read_text()
    assert page == write_reference.commands_page(page), "Run `make docs`."


def test_the_settings_read_the_table_and_all_of_it():
    source = "".join(path.read_text() for path in (ROOT / "config" / "settings").glob("*.py"))
    read = {*re.findall(r"\bread\(\"([A-Z_]+)\"", source)}
    # `make up` reads the number of web processes itself; those of models and endpoints are read by their last word.
    by_kind = {name for name in SETTINGS if "…" in name or name.startswith("EMBEDDING_") or name == "WEB_PROCESSES"}
    assert read | by_kind == {*SETTINGS}


def test_the_example_of_an_environment_names_settings_and_what_compose_reads():
    names = re.findall(r"^#([A-Z_]+)=", (ROOT / ".env.example").read_text(), re.MULTILINE)
    compose = (ROOT / "docker-compose.yml").read_text() + (ROOT / "docker-compose.scale.yml").read_text()
    assert len(names) > 50
    assert [name for name in names if setting_of(name) is None and f"${{{name}:" not in compose] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_between_pages_leads_somewhere(page):
    for target, anchor in LINK.findall(without_code(page.read_text())):
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{target} is not there"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{target}#{anchor} is no heading"


def test_the_package_reads_it_and_the_newest_section_of_the_changelog_names_it():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert package["project"]["dynamic"] == ["version"]
    source = ROOT / package["tool"]["hatch"]["version"]["path"]
    assert re.findall(r'^VERSION = "(.+)"$', source.read_text(), re.MULTILINE) == [VERSION]
    newest = re.search(r"^## (\S+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest[1] == VERSION
