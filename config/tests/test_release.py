"""`make release` in a scratch repository: what it makes, and what it refuses without a change."""

import shutil
import subprocess
import sys

import pytest

from config import VERSION
from config.stack.paths import BASE_DIR

NEXT = f"{int(VERSION.split('.')[0]) + 1}.0.0"
# Of the project's files those that a release reads; the wheel holds what there is of the folders.
FILES = ("CHANGELOG.md", "LICENSE", "manage.py", "pyproject.toml", ".gitignore", "deploy/release.sh")
FOLDERS = (
    "agent_tools",
    "chat",
    "config",
    "core",
    "evals",
    "imports",
    "intake",
    "memory",
    "recollect_cli",
    "requirements",
    "testing",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "tests", "static", "locale")

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def whole_repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    (folder / "deploy").mkdir()
    for name in FILES:
        shutil.copy(BASE_DIR / name, folder / name)
    for name in FOLDERS:
        shutil.copytree(BASE_DIR / name, folder / name, ignore=LEFT_OUT)
    changelog = folder / "CHANGELOG.md"
    before, _, after = changelog.read_text().partition("## Unreleased\n")
    changelog.write_text(f"{before}## Unreleased\n\n- Something new.\n\n## {after.partition(chr(10) + '## ')[2]}")
    git(folder, "init", "--quiet")
    for name, value in (("user.name", "Test"), ("user.email", "test@example.com")):
        git(folder, "config", name, value)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All")
    return folder


@pytest.fixture
def repository(whole_repository, tmp_path):
    # With the files' times, by which Git knows that nothing has changed.
    return shutil.copytree(whole_repository, tmp_path / "repository")


def git(folder, *arguments):
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def released(folder, version=NEXT, *, bill="echo '{}' > \"$output\""):
    """The tool that writes the bill of materials needs the network: another program stands in for it."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    uv = programs / "uv"
    uv.write_text(f'#!/bin/sh\nwhile [ "$1" != --output-file ]; do shift; done\noutput=$2\n{bill}\n')
    uv.chmod(0o755)
    command = ["sh", "deploy/release.sh", version]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def assert_refused(repository, done, sentence):
    """In one sentence, and with nothing made."""
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1
    assert VERSION in (repository / "config/__init__.py").read_text()
    assert len(git(repository, "log", "--oneline").splitlines()) == 1
    assert not (repository / "dist").exists()


def test_a_release_has_a_tag_a_dated_section_a_wheel_a_bill_and_checksums(repository):
    done = released(repository)
    assert done.returncode == 0, done.stderr
    assert git(repository, "tag") == f"v{NEXT}\n"
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "-1", "--format=%s") == f"Release {NEXT}\n"
    changelog = (repository / "CHANGELOG.md").read_text()
    assert f"## Unreleased\n\n## {NEXT} - 20" in changelog
    assert f'VERSION = "{NEXT}"' in (repository / "config/__init__.py").read_text()
    made = sorted(path.name for path in (repository / "dist").iterdir())
    wheel = f"recollect_server-{NEXT}-py3-none-any.whl"
    assert made == [f"recollect-{NEXT}.cdx.json", f"recollect-{NEXT}.sha256", wheel]
    check = ["sha256sum", "--check", "--strict", f"recollect-{NEXT}.sha256"]
    assert subprocess.run(check, cwd=repository / "dist", check=False, capture_output=True).returncode == 0


def test_a_tree_with_changes_is_refused(repository):
    (repository / "manage.py").write_text("changed")
    assert_refused(
        repository, released(repository), "Not everything is committed: commit it, or remove it.  M manage.py"
    )


def test_a_tag_that_exists_is_refused(repository):
    git(repository, "tag", f"v{NEXT}")
    assert_refused(repository, released(repository), f"The tag v{NEXT} exists")


@pytest.mark.parametrize("version", ["", "1.1", "v9.0.0", "9.0.0 beta", VERSION, "0.3.0"])
def test_a_version_that_is_none_or_not_above_the_last_is_refused(repository, version):
    sentence = "is not above" if version in (VERSION, "0.3.0") else "is not a version: name one"
    assert_refused(repository, released(repository, version), sentence)


def test_a_failure_on_the_way_leaves_the_repository_as_it_was(repository):
    done = released(repository, bill="exit 3")
    assert done.returncode == 3
    assert git(repository, "status", "--porcelain") == git(repository, "tag") == ""
    assert VERSION in (repository / "config/__init__.py").read_text()


@pytest.mark.parametrize("lines", ["", "### Changed\n\n"])
def test_a_changelog_with_nothing_new_is_refused(repository, lines):
    (repository / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## Unreleased\n\n{lines}## 1.0.0 - 2026-11-26\n\n- Old.\n"
    )
    git(repository, "commit", "--quiet", "--all", "--amend", "--message", "All")
    assert_refused(repository, released(repository), "has no line under")
