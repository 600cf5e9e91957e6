"""A worker that one text kills: loaded into that of `chaos` alone, by Celery's `--include`; it changes the settings.

Models crash on some input or other, by a fault in their native code or by asking for more memory than there is; the
process is gone before it can say so. Here it is one word that does it.
"""

import os
import signal
from collections.abc import Sequence

from django.conf import settings

from evals.reliability.faults import MORTAL, POISON
from memory.backends.e5 import BuiltInEmbedder
from memory.backends.embedders import Matrix


class MortalEmbedder(BuiltInEmbedder):
    """The built-in model with a weakness."""

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        if any(POISON in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed_documents(texts)


settings.EMBEDDING_MAX_ATTEMPTS, settings.EMBEDDING_LEASE_SECONDS = map(int, os.environ[MORTAL].split(","))
settings.EMBEDDER = {**settings.EMBEDDER, "BACKEND": f"{__name__}.{MortalEmbedder.__name__}"}
