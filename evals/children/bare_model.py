"""The embedding model and nothing around it, for `benchmark indexing`.

Reads batches of texts (`[[text, …], …]`), writes `{"seconds"}`: what embedding them took, once the model was warm.
"""

import json
import sys
import time

import django

django.setup()

from memory.embedders import get_embedder  # noqa: E402


def main() -> None:
    batches = json.load(sys.stdin)
    embedder = get_embedder()
    embedder.embed_documents(batches[0])
    begun = time.perf_counter()
    for batch in batches:
        embedder.embed_documents(batch)
    json.dump({"seconds": time.perf_counter() - begun}, sys.stdout)


if __name__ == "__main__":
    main()
