"""Modules put into one file: what they mean stays the same, and what is not understood is refused."""

import hashlib
import os
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import staticfiles_storage

from config.bundling import bundle
from config.ops.about import SHIPPED_FILES
from config.static import ENTRIES, collect

A = 'import { b, c } from "./b.js";\n\nexport const a = b + c();\n'
B = 'import { d } from "../other/d.js";\n\nconst hidden = 1;\nexport const b = hidden + d;\nexport function c() {\n  return 10;\n}\n'
D = "const hidden = 100;\nexport const d = hidden;\nexport class D {}\nexport async function* e() {}\n"


def test_each_module_runs_once_after_those_that_it_imports():
    script = bundle("a.js", {"a.js": A, "b.js": B, "../other/d.js": D}.__getitem__)
    assert re.findall(r"^const (\$\w+) = ", script, re.MULTILINE) == ["$___other_d", "$b", "$a"]
    assert "const { b, c } = $b;" in script
    assert "return { d, D, e };" in script
    assert script.endswith("\nexport const { a } = $a;")


@pytest.mark.parametrize(
    "text",
    [
        'import x from "./d.js";',
        'import * as x from "./d.js";',
        'import "./d.js";',
        'import { d as x } from "./d.js";',
        "export default 1;",
        "export { x };",
        "export let x = 1;",
    ],
)
def test_a_form_that_is_not_known_is_refused_and_named(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        bundle("a.js", {"a.js": text, "d.js": D}.__getitem__)


def test_a_bundle_has_no_comments_of_whole_lines():
    code = 'const a = "https://x"; // b\n  const c = `\n  d // e`;\nconst f = 4 /* g */ / 2;'
    text = f"/** About\n * this. */\n// More\n{code}\n  /* Again */\n  // And again\nconst h = 1;\n"
    script = bundle("a.js", {"a.js": text}.__getitem__)
    assert code in script and "const h = 1;" in script
    assert not {"About", "More", "Again", "And again"} & set(re.findall("About|More|Again|And again", script))


def test_modules_in_a_circle_are_refused():
    modules = {"a.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./a.js";\nexport const b = 1;'}
    with pytest.raises(ValueError, match=r"a\.js imports b\.js imports a\.js"):
        bundle("a.js", modules.__getitem__)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_pages_are_served_imports_nothing_but_what_they_fetch_later(entry):
    served = Path(staticfiles_storage.path(staticfiles_storage.stored_name(entry))).read_text()
    assert not re.search(r"^import ", served, re.MULTILINE)
    for later in re.findall(r'import\("(.+?)"\)', served):
        assert re.fullmatch(r"\./\w+\.[0-9a-f]{12}\.js", later)


def test_the_library_of_diagrams_that_is_served_is_the_one_that_is_named_and_audited():
    version, _ = SHIPPED_FILES["mermaid"]
    served = Path(finders.find("mermaid/mermaid.min.js")).read_bytes()
    script = (Path(settings.BASE_DIR) / "requirements/vendor.sh").read_text()
    assert f'version:"{version}"'.encode() in served
    assert f"\npackage=mermaid@{version}\ndigest={hashlib.sha256(served).hexdigest()}\n" in script


def test_static_files_are_collected_again_only_after_a_change(settings, tmp_path):
    settings.STATIC_ROOT, settings.STATICFILES_DIRS = tmp_path / "collected", [tmp_path / "own"]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    source, manifest = tmp_path / "own" / "a.css", tmp_path / "collected" / "staticfiles.json"
    source.parent.mkdir()
    source.write_text("a {}")
    collect()
    first = manifest.stat().st_ino, manifest.read_text()
    collect()
    assert (manifest.stat().st_ino, manifest.read_text()) == first
    # Of the same length, and as an installer may leave it, of the same time.
    times = source.stat().st_atime_ns, source.stat().st_mtime_ns
    source.write_text("b {}")
    os.utime(source, ns=times)
    collect()
    changed = manifest.read_text()
    assert changed != first[1]
    manifest.unlink()
    collect()
    assert manifest.read_text() == changed
