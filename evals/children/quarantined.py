"""How many rows staff are shown as quarantined, for `chaos`: what the health page of the admin says, as staff.

Writes the number.
"""

import json
import sys

import django

django.setup()

from django.utils import timezone  # noqa: E402

from core.isolation.acting import acting_as_staff  # noqa: E402
from memory.health import index_health  # noqa: E402


def main() -> None:
    json.load(sys.stdin)
    with acting_as_staff():
        json.dump(index_health(now=timezone.now()).quarantined.value, sys.stdout)


if __name__ == "__main__":
    main()
