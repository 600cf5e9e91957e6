"""The project of a folder: its repository at its host, or else the folder's name."""

import os
import re
from contextlib import suppress
from pathlib import Path

_REMOTE = re.compile(r"(?:[a-z+]{2,10}://)?(?:[^@/\s]{1,100}@)?[^/:\s]{1,200}(?::\d{1,5})?[:/](?P<path>[^\s]{1,300})")


def project_of(folder: str) -> tuple[str, str]:
    """The project and the branch; each is empty where there is none."""
    here = Path(os.path.realpath(folder))
    for root in (here, *here.parents):
        git = root / ".git"
        if git.exists():
            with suppress(OSError):
                return _repository(git) or root.name, _branch(git)
            return root.name, ""
    return ("" if here == Path.home() else here.name), ""


def _repository(git: Path) -> str:
    folder = _folder_of(git)
    common = folder / "commondir"
    if common.is_file():
        folder = (folder / common.read_text(encoding="utf-8").strip()).resolve()
    lines = (folder / "config").read_text(encoding="utf-8", errors="replace").splitlines()
    is_origin = False
    for line in lines:
        if line.lstrip().startswith("["):
            is_origin = line.strip() == '[remote "origin"]'
        elif is_origin and line.partition("=")[0].strip() == "url":
            return repository_name(line.partition("=")[2].strip())
    return ""


def repository_name(address: str) -> str:
    """`me/app` of the address of a remote, as the server labels projects; empty for a path on this machine."""
    found = None if address.startswith(("/", ".", "~", "file:")) else _REMOTE.fullmatch(address)
    return found["path"].strip("/").removesuffix(".git") if found else ""


def _folder_of(git: Path) -> Path:
    """A work tree of its own has a file that names its folder."""
    if git.is_dir():
        return git
    named = git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
    return (git.parent / named).resolve()


def _branch(git: Path) -> str:
    head = (_folder_of(git) / "HEAD").read_text(encoding="utf-8").strip()
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else ""
