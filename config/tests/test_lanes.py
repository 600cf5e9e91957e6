"""`make quick` leaves out what is slow by what it does: a module that starts servers or a browser, or measures, says so."""

import re
import tomllib
from pathlib import Path

import pytest
from django.conf import settings

from testing.plugin import deal

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


def is_marked(text):
    return re.search(r"^pytestmark = (?:\[\s*)?pytest\.mark\.slow\b", text, re.MULTILINE) is not None


def test_a_module_that_starts_servers_or_measures_is_marked_slow():
    starting = {name for name, text in MODULES.items() if STARTS.search(text) or "/test_browser" in name}
    assert len(starting) > 15, "the expression finds nothing any more"
    assert sorted(name for name in starting if not is_marked(MODULES[name])) == []


def test_the_isolation_matrix_is_in_the_quick_lane():
    matrix = [name for name in MODULES if re.search(r"/test_(endpoints|isolation)\.py$", name)]
    assert len(matrix) >= 2
    assert [name for name in matrix if is_marked(MODULES[name])] == []


@pytest.mark.parametrize(("target", "left_out"), [("quick", {"slow", "long"}), ("test", set())])
def test_make_leaves_out_what_the_lane_says(target, left_out):
    """A `-m` on the command line replaces the one in pyproject.toml, which leaves out `long`."""
    recipe = re.search(rf"^{target}: install .*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    assert set(re.findall(r"not (\w+)", recipe)) == left_out


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
