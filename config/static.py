"""Static files with hashed names, so that browsers may cache them forever."""

import hashlib
import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from django.core.files.base import ContentFile
from django.core.files.storage import InMemoryStorage
from django.core.management import call_command
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from config.bundling import bundle

NAME_OF_CONTENT = re.compile(r"\.[0-9a-f]{12}\.\w+$")


# The modules that pages name, or load later; each is served with all its imports.
ENTRIES = ("intake/chat.js", "intake/room.js", "intake/palette.js", "intake/previews.js", "memory/map.js")

# One JavaScript module imports another by its name, which has to change with the other's content too. Only in our own:
# to look through Swagger UI and the admin's, several times each, would take two seconds of each start.
APPS = ("agent_tools", "imports", "intake", "memory")
IMPORTS = (
    (r"""(?P<matched>import (?P<names>\{[^}]*\}) from "(?P<url>\.[^"]+)";)""", """import %(names)s from "%(url)s";"""),
    (r"""(?P<matched>import\("(?P<url>\.[^"]+)"\))""", """import("%(url)s")"""),
)


class StaticStorage(ManifestStaticFilesStorage):
    patterns = (*ManifestStaticFilesStorage.patterns, *((f"{app}/*.js", IMPORTS) for app in APPS))
    # The depth of our modules' imports.
    max_post_process_passes = 8

    def post_process(self, paths: dict[str, tuple[Any, str]], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        return super().post_process({**paths, **_bundled(paths)}, dry_run, **options)


def _bundled(paths: dict[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """The entries, as if they had been written in one piece."""
    pieces = InMemoryStorage()
    bundles = {}
    for entry in ENTRIES:
        if entry in paths:
            folder, _, name = entry.rpartition("/")
            pieces.save(entry, ContentFile(bundle(name, partial(_read, paths, folder)).encode()))
            bundles[entry] = (pieces, entry)
    return bundles


def _read(paths: dict[str, tuple[Any, str]], folder: str, name: str) -> str:
    storage, path = paths[posixpath.normpath(f"{folder}/{name}")]
    with storage.open(path) as file:
        return str(file.read().decode())


# In the folder of what was collected: a digest of what it was made of.
MADE_OF = "made-of.txt"


def collect() -> None:
    """Run `collectstatic`, which takes over a second, unless the folder holds what it would write."""
    note = Path(settings.STATIC_ROOT, MADE_OF)
    with suppress(FileNotFoundError):
        if note.read_text() == _made_of():
            return
    call_command("collectstatic", interactive=False, verbosity=0)
    note.write_text(_made_of())


def _made_of() -> str:
    """A digest of every file, of what rewrites it and of the manifest: contents, as an installer may keep times."""
    parts = [django.__version__.encode(), Path(__file__).read_bytes()]
    for finder in get_finders():
        for path, storage in finder.list([]):
            with storage.open(path) as file:
                parts += [path.encode(), hashlib.file_digest(file, "sha256").digest()]
    parts.append(Path(settings.STATIC_ROOT, StaticStorage.manifest_name).read_bytes())
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


class ServedStaticFiles(StaticFiles):
    """Each has its declared content type, and browsers may cache it if its name is hashed."""

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers["X-Content-Type-Options"] = "nosniff"
        if response.status_code == HTTPStatus.OK and NAME_OF_CONTENT.search(path):
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
