"""First step of every make target: leaves .venv holding what a lock names, or says in one sentence what is in the way.

Runs before anything is installed, so it keeps to the standard library. Usage: `install.py LOCK [--this-python]`.
"""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
VENV = PROJECT / ".venv"
PYTHON = VENV / "bin" / "python"
# There while an installation runs: found at the start, it means that one was interrupted.
UNFINISHED = VENV / "unfinished"
STAMP = VENV / "installed.json"
LOG = VENV / "install.log"
OLDEST = (3, 11)
# Each lock also holds everything that the ones before it hold.
LOCKS = ("base", "local", "dev")
SHOWN_LOG_LINES = 15


def main() -> None:
    """Install the lock named by the first argument; `--this-python` insists on the interpreter that runs this file."""
    lock, insist = sys.argv[1], "--this-python" in sys.argv[2:]
    try:
        fault = find_fault(insist)
        if fault or not VENV.exists():
            make_venv(fault)
        if read_stamp().get(lock) != digest(lock):
            install(lock)
    except PermissionError as error:
        sys.exit(
            f"{error.filename} is not writable for this user: make it so, or work in a copy of the project that is."
        )
    except OSError as error:
        sys.exit(f"Installing into {VENV} failed ({error}): remove what is in the way and run the same command again.")


def find_fault(insist: bool) -> str:
    """Say why the existing .venv cannot be used, or nothing when it can be (or is not there)."""
    if not VENV.exists():
        return ""
    if UNFINISHED.exists():
        return "its installation was interrupted"
    if read_stamp().get("project", str(PROJECT)) != str(PROJECT):
        return "the project has moved"
    version = venv_version()
    if version is None:
        return "its Python does not run"
    if version < OLDEST or (insist and version != sys.version_info[:2]):
        return f"it was made with Python {version[0]}.{version[1]}"
    return ""


def venv_version() -> tuple[int, ...] | None:
    """Return the (major, minor) version of the Python in .venv, or None when there is none that runs."""
    try:
        answer = subprocess.check_output([PYTHON, "-S", "-c", "import sys; print(*sys.version_info[:2])"])
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(map(int, answer.split()))


def make_venv(fault: str) -> None:
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("Python's venv module is incomplete: on Debian or Ubuntu, `apt install python3-venv` brings the rest.")
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    say(f"Making .venv anew with {version}: {fault}." if fault else f"Making .venv with {version}.")
    if VENV.is_dir():
        shutil.rmtree(VENV)
    VENV.mkdir()
    UNFINISHED.touch()
    venv.create(VENV, with_pip=True, symlinks=True)


def install(lock: str) -> None:
    """Run pip over the lock, as it stands and from wheels only: nothing is resolved and nothing is compiled here."""
    UNFINISHED.touch()
    requirements = lock_file(lock)
    total = sum("==" in line for line in requirements.read_text().splitlines())
    say(f"Installing {total} packages; the first time this takes a minute or two.")
    command: list[str | Path] = [
        PYTHON,
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--progress-bar=off",
    ]
    # Byte code is written on first import: compiling what is never imported would take a third of the time.
    command += ["--no-compile", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", requirements]
    if run_with_progress(command, total):
        say("\n".join(LOG.read_text(errors="replace").splitlines()[-SHOWN_LOG_LINES:]))
        sys.exit("pip could not install the requirements: see the lines above, and run the same command again.")
    held = LOCKS[: LOCKS.index(lock) + 1]
    STAMP.write_text(json.dumps({"project": str(PROJECT)} | {name: digest(name) for name in held}))
    UNFINISHED.unlink()


def run_with_progress(command: list[str | Path], total: int) -> int:
    """Run pip with its own words in a log, and show the person how far it is; returns its exit status."""
    fetched = 0
    with (
        LOG.open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip,
    ):
        for line in pip.stdout or ():
            log.write(line)
            if line.startswith("Collecting "):
                fetched += 1
                show_progress(f"  fetching {fetched} of {total}: {line.split()[1].split('==')[0]}", fetched)
            elif line.startswith("Installing collected packages"):
                show_progress("  unpacking")
    show_progress("")
    return pip.returncode


def show_progress(text: str, step: int = 0) -> None:
    """Rewrite one line on a terminal; elsewhere print every twentieth step."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text}", end="", flush=True)
    elif text and step % 20 == 0:
        say(text)


def read_stamp() -> dict[str, str]:
    try:
        stamp: dict[str, str] = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}
    return stamp


def digest(lock: str) -> str:
    return hashlib.sha256(lock_file(lock).read_bytes()).hexdigest()


def lock_file(lock: str) -> Path:
    return PROJECT / "requirements" / f"{lock}.txt"


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
