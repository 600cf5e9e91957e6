"""The oldest browsers that run the pages: each property, selector, function and member in them, by MDN's data."""

import json
import os
import re
from pathlib import Path

import pytest
from django.conf import settings

pytestmark = pytest.mark.extended

DATA = Path(os.environ.get("CONFORMANCE_DIR", "var/conformance")) / "node_modules/@mdn/browser-compat-data/data.json"
OLDEST = {"safari": (17, 5), "safari_ios": (17, 5), "firefox": (125,), "chrome": (123,)}
# What does without, or is asked for first.
HARMLESS = {
    "overflow-clip-margin": "behind @supports",
    "content-visibility": "behind @supports",
    "backdrop-filter": "with the prefix of Safari beside it",
    "field-sizing": "fields are as high as their lines, and the model's menu as wide as its longest name",
    "text-wrap": "lines are broken as usual",
    "scrollbar-color": "the system's colours",
    "scrollbar-width": "a scroll bar, or the rule for ::-webkit-scrollbar beside it",
    "accent-color": "the system's colour",
    "text-size-adjust": "with the prefix of Safari beside it",
    "forced-color-adjust": "of Windows alone",
    "resize": "not on a phone",
    ":marker": "its colour is what they have",
    "startViewTransition": "asked for first",
}


@pytest.fixture(scope="module")
def data():
    if DATA.exists():
        return json.loads(DATA.read_text())
    reason = f"{DATA} is not there: `make conformance-packages` fetches it."
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def files(ending):
    """Ours: libraries are larger than each of these."""
    static = Path(settings.BASE_DIR).glob(f"[!v]*/static/**/*{ending}")
    return {path.name: path.read_text() for path in static if path.stat().st_size < 60_000}


def is_younger(compat, browser):
    """Whether the oldest of this browser does not have it."""
    stated = compat["support"].get(browser, {"version_added": False})
    for each in stated if isinstance(stated, list) else [stated]:
        added = each["version_added"]
        is_whole = not ({"prefix", "flags", "partial_implementation", "alternative_name"} & each.keys())
        if added and added != "preview" and is_whole and each.get("version_removed") is None:
            numbers = tuple(int(part) for part in re.findall(r"\d+", added))
            if numbers <= OLDEST[browser]:
                return False
    return True


def missing_in(compats):
    """The browsers whose oldest has none of the features of this name."""
    return [browser for browser in OLDEST if all(is_younger(each, browser) for each in compats)]


def named(tree, found=None):
    """By name, what the data says of all features of this name."""
    found = {} if found is None else found
    for name, inner in tree.items():
        if name != "__compat" and isinstance(inner, dict):
            if "__compat" in inner:
                found.setdefault(name, []).append(inner["__compat"])
            named(inner, found)
    return found


def test_the_styles_need_nothing_that_the_oldest_browsers_do_not_have(data):
    css = re.sub(r"/\*.*?\*/", "", "".join(files(".css").values()), flags=re.DOTALL)
    css_data = data["css"]
    used = {
        name: [compat]
        for name in set(re.findall(r"[{;\s]([a-z-]+)\s*:\s", css))
        if (compat := css_data["properties"].get(name, {}).get("__compat"))
    }
    # What begins with a dash is one engine's own.
    selectors = set(re.findall(r"(?<![\w-])::?([a-z][a-z-]+)", css)) & css_data["selectors"].keys()
    used |= {f":{name}": [css_data["selectors"][name]["__compat"]] for name in selectors}
    used |= {
        f"@{name}": [css_data["at-rules"][name]["__compat"]]
        for name in set(re.findall(r"@([a-z-]+)", css)) & css_data["at-rules"].keys()
    }
    functions = named(css_data["types"])
    used |= {f"{name}()": functions[name] for name in set(re.findall(r"([a-z-]+)\(", css)) & functions.keys()}
    assert len(used) > 150
    assert {"overflow-clip-margin", "field-sizing"} <= {name for name, compats in used.items() if missing_in(compats)}
    assert {
        name: where for name, compats in used.items() if (where := missing_in(compats)) and name not in HARMLESS
    } == {}


def test_the_scripts_call_nothing_that_the_oldest_browsers_do_not_have(data):
    js = "".join(files(".js").values())
    known, built_in = {}, data["javascript"]["builtins"]
    for interface in [*data["api"].values(), *built_in.values(), *built_in["Intl"].values()]:
        members = [(name, member) for name, member in interface.items() if isinstance(member, dict)]
        for name, member in members:
            known.setdefault(name.removesuffix("_static"), []).append(member.get("__compat"))
    called = set(re.findall(r"(?<!\?)\.(\w+)\(", js)) - set(
        re.findall(r"^ +(?:static |async |#)*(\w+)\(.*\{$", js, re.MULTILINE)
    )
    used = {name: compats for name in called & known.keys() if all(compats := known[name])}
    assert len(used) > 150
    assert {
        name: where for name, compats in used.items() if (where := missing_in(compats)) and name not in HARMLESS
    } == {}
