"""Makes a release: `make release VERSION=1.1.0`. Needs no network, and pushes nothing.

It dates the changelog's section, writes the version, builds the wheel, the bill of materials and their checksums into
dist/, commits both files, and tags the commit. Until the commit a failure leaves the repository as it was.
"""

import hashlib
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from config import VERSION
from config.stack import StackError
from config.stack.paths import BASE_DIR

CHANGELOG, VERSION_FILE = Path("CHANGELOG.md"), Path("config/__init__.py")
UNRELEASED = "## Unreleased\n"


def main() -> None:
    try:
        made = release(sys.argv[1] if len(sys.argv) > 1 else "", today=datetime.now(UTC).date())
    except StackError as refusal:
        sys.exit(str(refusal))
    print("\n".join(made))  # noqa: T201


def release(version: str, *, today: date) -> list[str]:
    """Return lines that say what was made. Raises StackError, and changes nothing, if something is in the way."""
    _check_version(version)
    _check_repository(version)
    changelog = dated(_read(CHANGELOG), version, today=today)
    try:
        _write(CHANGELOG, changelog)
        _write(VERSION_FILE, _read(VERSION_FILE).replace(f'VERSION = "{VERSION}"', f'VERSION = "{version}"'))
        files = _build(version)
        _git("commit", "--quiet", "--message", f"Release {version}", str(CHANGELOG), str(VERSION_FILE))
    except BaseException:
        _git("checkout", "--quiet", "HEAD", "--", str(CHANGELOG), str(VERSION_FILE))
        raise
    _git("tag", "--annotate", "--message", f"Recollect {version}", f"v{version}")
    return [f"Committed and tagged v{version}.", *files, f"To publish it: git push origin HEAD v{version}"]


def dated(changelog: str, version: str, *, today: date) -> str:
    """The changelog with its unreleased lines under the version. Raises StackError if there are none."""
    before, found, after = changelog.partition(UNRELEASED)
    lines, _, _ = after.partition("\n## ")
    if not found or not re.search(r"^- ", lines, re.MULTILINE):
        raise StackError(f'{CHANGELOG} has no line under "Unreleased": write what is new for those who upgrade.')
    return f"{before}{UNRELEASED}\n## {version} - {today}\n{after}"


def _check_version(version: str) -> None:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version, re.ASCII):
        raise StackError(f'"{version}" is not a version: name one, as in `make release VERSION=1.1.0`.')
    if _ordered(version) <= _ordered(VERSION):
        raise StackError(f"Version {version} is not above {VERSION}, the version of config/__init__.py.")


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _check_repository(version: str) -> None:
    if changed := [line[3:] for line in _git("status", "--porcelain").splitlines()]:
        more = f" and {len(changed) - 1} more" if changed[1:] else ""
        raise StackError(f"Not everything is committed ({changed[0]}{more}): commit it, or remove it.")
    if _git("tag", "--list", f"v{version}"):
        raise StackError(f"The tag v{version} exists: choose the next version.")


def _build(version: str) -> list[str]:
    """Build in new processes, which read the version that has just been written."""
    target = BASE_DIR / "dist"
    target.mkdir(exist_ok=True)
    _run(sys.executable, "-m", "config.ops.wheel", "dist")
    wheel, bill = target / f"recollect_server-{version}-py3-none-any.whl", target / f"recollect-{version}.cdx.json"
    _run(sys.executable, "manage.py", "sbom", str(bill), "--lock", "local")
    sums = target / f"recollect-{version}.sha256"
    # As `sha256sum --check` reads it.
    sums.write_text(
        "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (wheel, bill))
    )
    return [str(path.relative_to(BASE_DIR)) for path in (wheel, bill, sums)]


def _git(*arguments: str) -> str:
    return _run("git", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)  # noqa: S603 - fixed commands
    if done.returncode:
        raise StackError(f"`{' '.join(command)}` failed: {(done.stderr.strip() or done.stdout.strip())[-500:]}")
    return done.stdout


def _read(path: Path) -> str:
    return (BASE_DIR / path).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    (BASE_DIR / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
