"""Flushes pending terms as a worker does, for `benchmark search`: one of several that do so at once.

Writes `{"texts"}`: of how many.
"""

import json
import sys

import django

django.setup()

from memory.term_segments import flush  # noqa: E402

if __name__ == "__main__":
    json.dump({"texts": flush()}, sys.stdout)
