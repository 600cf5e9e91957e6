"""Keeps libraries from reporting to their vendors; config/__init__.py calls `switch_off` as every process begins."""

import logging
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

SWITCHES = {
    # onnxruntime reads it when it is imported, and its API comes too late: by then it has asked for its vendor's host,
    # and written an id of this machine into HOME.
    "ORT_DISABLE_TELEMETRY": "1",
    # huggingface_hub, which pip brings along with tokenizers; the locks leave it out.
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # The convention of other libraries (https://donottrack.sh).
    "DO_NOT_TRACK": "1",
}
# Each model that this product makes names it as its producer.
OURS = b"recollect"


def switch_off() -> None:
    """Sets the switches, over other values in the environment. Must run before any of the libraries is imported."""
    os.environ.update(SWITCHES)


def queue_folder() -> Path | None:
    """Where onnxruntime has kept this machine's id and events, if it has: a folder of its own, below its vendor's."""
    with suppress(RuntimeError):
        home = Path.home()
        caches = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
        base = home / "Library" / "Application Support" if sys.platform == "darwin" else caches
        folder = base / "Microsoft" / "DeveloperTools" / ".onnxruntime"
        return folder if folder.is_dir() else None
    return None


def is_ours(folder: Path) -> bool:
    """Whether its events name this product. Other programs of the same user write into the same folder."""
    with suppress(OSError):
        # The newest events are in the log beside the database.
        return any(OURS in file.read_bytes() for file in folder.glob("onnxruntime.db*"))
    return False


def delete_our_queue() -> None:
    """Delete what a start of version 1.0.0 has left there, once: nothing writes it any more."""
    folder = queue_folder()
    if folder is not None and is_ours(folder):
        shutil.rmtree(folder, ignore_errors=True)
        logger.warning("Deleted the events and the id of this machine that onnxruntime had kept for its vendor.")
