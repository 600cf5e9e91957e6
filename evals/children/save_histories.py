"""Saves what made-up people said, with its index, for `benchmark search`: one of several that do so at once.

Reads `{"people": [[user id, turns, first text], …], "pool", "seed", "now"}`, writes `{"vectors"}`: how many there are.
"""

import json
import sys
from datetime import datetime

import django

django.setup()

from django.db import connection  # noqa: E402

from evals.benchmarks.search.histories import Pool, SyntheticPerson, save  # noqa: E402
from memory.embedders import get_embedder  # noqa: E402


def main() -> None:
    given = json.load(sys.stdin)
    now = datetime.fromisoformat(given["now"])
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    pool = Pool(given["pool"], embedder=get_embedder(), seed=given["seed"])
    vectors = 0
    for number, person in enumerate(given["people"], start=1):
        vectors += save(SyntheticPerson(*person), pool, now=now)
        print(f"Saved {number} of {len(given['people'])} people.", file=sys.stderr)  # noqa: T201
    json.dump({"vectors": vectors}, sys.stdout)


if __name__ == "__main__":
    main()
