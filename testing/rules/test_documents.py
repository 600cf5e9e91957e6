"""The documentation that is written from the code is what the code says now, and no link in it leads nowhere."""

import contextlib
import re
import tomllib
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.core.management import get_commands
from django.urls import Resolver404, resolve

from config import VERSION
from config.settings.table import SETTINGS, setting_of
from docs import write_reference
from evals.benchmarks import BENCHMARKS
from evals.management.commands.run_evals import SUITES

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


# --- What pages name is there. The changelog and the decisions also name what was. ---

NAMING = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "decisions"]
# Paths of other programs, of machines and of files, and what is said of a path in general.
# Beginnings of ours, /mcp, which is no view of Django's, and paths of other programs, of machines and in examples.
NOT_VIEWS = re.compile(
    r"/(?:v1|mcp|api|api/v1|api/v1/memory|\.well-known|recollect)/?$|/\.well-known/oauth-protected-resource/mcp"
    r"|/(?:api/(?:v0|show|ps|authz)|props|info|rerank|hooks|var|tmp|path|mnt|opt)\b"
)
CODE = re.compile(r"`([^`\n]+)`")


def named(pattern, page):
    return {found for span in CODE.findall(page.read_text()) for found in re.findall(pattern, span)}


@pytest.mark.parametrize("page", NAMING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_path_that_a_page_names_leads_to_a_view(page):
    missing = []
    for path in named(r"^(?:(?:GET|POST|PUT|PATCH|DELETE),? )*(/[\w.{}/-]*)(?:\?[^ ]*)?$", page):
        filled = re.sub(r"\{n\}", "1", path)
        filled = re.sub(r"\{name\}", "search_memory", filled)
        filled = re.sub(r"\{\w+\}", "0199a0a0-0000-7000-8000-000000000000", filled)
        if NOT_VIEWS.match(path):
            continue
        for candidate in (filled, f"{filled}/"):
            with contextlib.suppress(Resolver404):
                resolve(candidate)
                break
        else:
            missing.append(path)
    assert missing == []


def test_each_setting_that_a_page_names_is_read_somewhere():
    """By code, by Compose or by a script. The pages of settings and commands are written from these."""
    files = [
        "docker-compose*.yml",
        "Makefile",
        "deploy/*.sh",
        "config/tests/endpoints/*.py",
        "*/*.py",
        "*/[!t]*/**/*.py",
    ]
    read = "".join(path.read_text() for pattern in files for path in ROOT.glob(pattern) if ".venv" not in path.parts)
    # Those of a model or an endpoint with a name of one's own, of Ollama, and a type of record.
    by_kind = re.compile(r"LLM_[A-Z]+_[A-Z_]+|[A-Z_]+_…|OLLAMA_[A-Z_]+|ARCHITECTURAL_DECISION")
    wanting = {
        f"{page.name}: {name}"
        for page in NAMING
        if page.name not in ("settings.md", "cli.md")
        for name in named(r"(?<![\w/.-])[A-Z][A-Z0-9]*_[A-Z0-9_…]*[A-Z0-9…](?![\w.])", page)
        if not by_kind.fullmatch(name) and not re.search(rf"\b{name}\b", read)
    }
    assert wanting == set()


def test_each_command_that_a_page_names_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    written = re.findall(r"^\*\*`recollect ([a-z]+)", write_reference.COMMANDS.read_text(), re.MULTILINE)
    named_ones = {
        r"(?<![\w/])make ([a-z][a-z-]+)": targets,
        r"manage\.py ([a-z_]+)": {*get_commands()},
        r"manage\.py benchmark ([a-z]+)": {*BENCHMARKS},
        r"--suite ([a-z0-9-]+)": {*SUITES},
        # Those of the wheel beside the command line's.
        r"(?<![\w/.-])recollect ([a-z]+)\b(?!:)": {*written, "up", "down", "manage"},
    }
    wanting = {
        f"{page.name}: {name}"
        for page in NAMING
        for pattern, there in named_ones.items()
        for name in named(pattern, page)
        if name not in there
    }
    rows = re.findall(r"^\| `([a-z]+)[^`|]*` \| [^|]*\| 20", (ROOT / "docs/measuring.md").read_text(), re.MULTILINE)
    assert wanting == set() and len(rows) > 8 and {*rows} <= {*BENCHMARKS}


def test_each_table_that_the_architecture_names_is_there_and_each_personal_one_is_named():
    page = (ROOT / "docs/architecture.md").read_text()
    tables = {model._meta.db_table for model in apps.get_models()}
    named_there = {
        name
        for row in re.findall(r"^\| (`[^|]*`) \|", page.split("## Tables")[1].split("\n## ")[0], re.M)
        for name in CODE.findall(row)
    }
    assert named_there <= tables
    personal = {
        name for path in ROOT.glob("*/migrations/*.py") for name in re.findall(r"isolate\(\"(\w+)\"", path.read_text())
    }
    personal &= tables
    assert personal - named_there == set()


# Words of other programs' pages, and of files.
OF_OTHERS = {
    *("Settings", "Connectors", "Add custom connector", "Connect", "Authenticate", "Apps & Connectors", "Advanced"),
    *("Developer mode", "Create", "OAuth", "Continuous Archiving", "What you must do"),
}
BUTTON = re.compile(r"(?<![*\w])\*(?!\*)([A-Z][^*\n]*?)\*(?!\*)")


def said_on_pages():
    """The sentences of the interface, with a blank in place of each value."""
    catalogue = "".join(path.read_text() for path in (ROOT / "locale/de/LC_MESSAGES").glob("*.po"))
    joined = re.sub(r'"\n"', "", catalogue)
    return {
        re.sub(r"%\(\w+\)s|\\", "", text).strip(" :.…")
        for text in re.findall(r'^msgid(?:_plural)? "(.*)"$', joined, re.M)
    }


WITH_BUTTONS = ["../README", "using", "install", "chat", "memory", "operations", "mcp", "security", "endpoint"]


@pytest.mark.parametrize("name", WITH_BUTTONS)
def test_each_button_that_a_page_names_is_on_a_page(name):
    said, page = said_on_pages(), (ROOT / f"docs/{name}.md").read_text()
    buttons = {part.strip() for found in BUTTON.findall(without_code(page)) for part in found.split("→")}
    plain = {re.sub(r"[\d]+", "", button).strip(" :.…") for button in buttons}
    assert {button for button in plain if button not in said | OF_OTHERS} == set()


MEASURED = """\
README.md#What it needs
README.md#How well it finds
docs/measuring.md
docs/reliability.md
docs/install.md#What it needs
docs/install.md#make up
docs/operations.md#Processes
docs/scale.md#Compared with a single server
docs/scale.md#How many machines
"""


def test_each_figure_of_what_was_measured_stands_with_its_date():
    """And its command: in its row, in the sentence above its table, or in its paragraph."""
    wanting = []
    for name, title in re.findall("(.+?)(?:#(.+))?\n", MEASURED):
        text = (ROOT / name).read_text()
        text = text.split(f"## {title}\n")[1].split("\n## ")[0] if title else text
        above = ""
        for block in re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).split("\n\n"):
            is_table = block.startswith("|")
            rows = block.split("\n")[2:] if is_table else [block]
            has = [re.search(r"\d[\d.,]* (?:ms|GB|MB|KB|s|%|turns/s)\b|\| \d+\.\d", row) is not None for row in rows]
            dated = [re.search(r"2026(?:-\d\d|\b)", row) is not None for row in rows]
            if not re.search(r"2026", (above if is_table else "") + block.split("\n")[0]) and any(
                h and not d for h, d in zip(has, dated, strict=True)
            ):
                wanting.append(block[:80])
            above = block
    assert wanting == []
