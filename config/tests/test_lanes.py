"""What starts the product, servers or a browser, or measures, is `extended`; `make test` runs one of each kind."""

import re
import tomllib
from pathlib import Path

import pytest
from django.conf import settings

from testing.plugin import QUICK, deal

ROOT = Path(settings.BASE_DIR)
# What starts the product or its servers, or runs a benchmark. These are names in code, so none of them has a false hit
# but this module.
STARTS = re.compile(
    r"\bbegin_migrated\b|\bThrowawayServers\(|\bEmbedded(?:Postgres|Redis)\(|\bstart_worker\(|\bWeb\(|\"-m\", \"config\.stack"
    r"|call_command\(\s*\"(?:benchmark|chaos|soak)\"|\bimporting_worker\b"
)
MODULES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for app in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["testpaths"]
    for path in (ROOT / app).rglob("test_*.py")
    if path != Path(__file__)
}


# The kinds of which `make test` runs one, and the module with it.
REPRESENTATIVES = {
    "guards off one after the other": "config/tests/test_endpoints.py",
    "the served matrix": "config/tests/test_endpoints_served.py",
    "a start of the product": "config/tests/test_up.py",
    "a worker": "memory/tests/test_real_worker.py",
    "an importing worker": "imports/tests/test_real_importer.py",
    "a backup restored": "config/tests/test_backup.py",
    "a kept database migrated": "config/tests/test_kept_data.py",
    "pages under axe": "config/tests/test_browser_every_page.py",
    "a killed web process": "config/tests/test_browser_killed.py",
    "MCP over stdio": "agent_tools/tests/test_mcp_stdio.py",
    "the first page's examples": "config/tests/test_browser_first_page.py",
    "the chat in a browser": "chat/tests/test_browser_chat.py",
    "the memory in a browser": "chat/tests/test_browser_pages.py",
    "an import in a browser": "chat/tests/test_browser_import.py",
    "an account in a browser": "chat/tests/test_browser_accounts.py",
    "staff in a browser": "config/tests/test_browser_staff.py",
    "an agent's log-in in a browser": "agent_tools/tests/test_browser_oauth.py",
}


def is_marked(text):
    return re.search(r"^pytestmark = (?:\[\s*)?pytest\.mark\.extended\b", text, re.MULTILINE) is not None


@pytest.mark.medium
def test_a_module_that_starts_servers_or_measures_is_marked_extended():
    """The whole module, or each of its tests that does."""
    starting = {name for name, text in MODULES.items() if STARTS.search(text) or "/test_browser" in name}
    assert len(starting) > 15, "the expression finds nothing any more"
    assert sorted(name for name in starting if "pytest.mark.extended" not in MODULES[name]) == []


def test_make_test_runs_one_of_each_kind():
    marked = {name for name, text in MODULES.items() if "pytest.mark.medium" in text}
    assert set(REPRESENTATIVES.values()) <= marked


def test_the_isolation_matrix_is_in_the_quick_lane():
    matrix = [name for name in MODULES if re.search(r"/test_(endpoints|isolation)\.py$", name)]
    assert len(matrix) >= 2
    assert [name for name in matrix if is_marked(MODULES[name])] == []


def test_the_three_commands_and_the_check_before_a_change_lands_name_these_lanes():
    makefile, ci = (ROOT / "Makefile").read_text(), (ROOT / ".ci/run").read_text()
    lanes = {"quick": QUICK, "test": "not extended or medium", "test-all": None}
    for target, expression in lanes.items():
        recipe = re.search(rf"^{target}: install .*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
        named = re.search(r'-m "([^"]+)"', recipe)
        assert (named and named[1]) == expression, target
    assert "make check" in ci and "make test ||" in ci
    assert """make test-all ARGS='-m "extended and not medium"'""" in ci


def test_a_test_that_sets_the_clock_has_a_page_of_its_own():
    """A clock stays in its context, which the other tests of the module use."""
    setting = {name: text for name, text in MODULES.items() if ".clock.install(" in text}
    assert setting
    for name, text in setting.items():
        for test in re.findall(r"^def test_.*?(?=^def |\Z)", text, re.MULTILINE | re.DOTALL):
            assert ".clock.install(" not in test or "is_alone=True" in test, name


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("slow", [0, 1, 7, 40])
def test_slow_modules_come_first_in_the_processes_and_none_is_lost(processes, slow):
    modules = [[(f"slow {number}", test) for test in range(1 + number % 3)] for number in range(slow)]
    others = [("quick", test) for test in range(100)]
    dealt = deal(modules, others, processes=processes)
    assert sorted(dealt) == sorted([*others, *(test for module in modules for test in module)])
    hands = processes if processes < 3 else processes - 1
    begun = [module[0] for module in modules[:hands]]
    parts, left = [], list(dealt)
    for number in range(processes):
        size = len(left) // (processes - number)
        parts, left = [*parts, left[:size]], left[size:]
    assert [part[0] for part in parts[: len(begun)]] == begun
    # Within each part nothing slow is behind anything quick, from where another process would take it last.
    assert all(part == sorted(part, key=lambda test: test[0] == "quick") for part in parts)
