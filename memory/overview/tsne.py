"""Positions by t-SNE, with openTSNE: used with the extra `map` and `MAP_LAYOUT=tsne`.

It keeps the neighbours of each text together, and takes minutes. The default keeps clusters together, and takes
seconds.
"""

import numpy as np

from memory.backends.embedders import Matrix

SEED = 7
PERPLEXITY = 30
# With fewer texts, neighbours and perplexity have no meaning.
LEAST_TEXTS = 10


def places_of(reduced: Matrix, *, beginning: Matrix) -> Matrix:
    """The positions of (N, R) on the map (N, 2); starts at `beginning`, so that a new drawing stays similar."""
    from openTSNE import TSNE

    spread = beginning.std(axis=0).max() or 1.0
    embedding = TSNE(
        perplexity=min(PERPLEXITY, (len(reduced) - 1) // 3),
        # As openTSNE recommends for its own initial positions.
        initialization=((beginning - beginning.mean(axis=0)) / spread * 1e-4).astype(np.float64),
        random_state=SEED,
        n_jobs=1,
    ).fit(reduced)
    return np.asarray(embedding, dtype=np.float32)
