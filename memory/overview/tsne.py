"""Places by t-SNE instead, with openTSNE: for those who installed the extra `map` and set `MAP_LAYOUT=tsne`.

It keeps the neighbours of each text together where the default keeps clusters together, and takes minutes for what
that does in seconds.
"""

import numpy as np

from memory.embedders.base import Matrix

SEED = 7
PERPLEXITY = 30
# With fewer there are no neighbours to speak of, and perplexity has no meaning.
LEAST_TEXTS = 10


def places_of(reduced: Matrix, *, beginning: Matrix) -> Matrix:
    """Where each of (N, R) lies (N, 2); from `beginning` on, so that what is redrawn stays where it was."""
    from openTSNE import TSNE

    spread = beginning.std(axis=0).max() or 1.0
    embedding = TSNE(
        perplexity=min(PERPLEXITY, (len(reduced) - 1) // 3),
        # As openTSNE recommends for its own beginnings.
        initialization=((beginning - beginning.mean(axis=0)) / spread * 1e-4).astype(np.float64),
        random_state=SEED,
        n_jobs=1,
    ).fit(reduced)
    return np.asarray(embedding, dtype=np.float32)
