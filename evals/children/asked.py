"""The calls of `chaos` and `soak` in a process of their own, by the services, as pages and commands do.

`{"people": how many}` makes people, each with a token, and writes `[[user id, token], …]`. `{"quarantined": true}`
writes how many rows the health page of the admin shows to staff as quarantined.
"""

import json
import sys
from typing import Any

import django

django.setup()

from django.utils import timezone  # noqa: E402

from agent_tools.tokens import create_token  # noqa: E402
from core.isolation.acting import acting_as_staff  # noqa: E402
from intake.models import User  # noqa: E402
from memory.health import index_health  # noqa: E402


def main() -> None:
    asked = json.load(sys.stdin)
    json.dump(_people(asked["people"]) if "people" in asked else _quarantined(), sys.stdout)


def _people(count: int) -> list[tuple[int, str]]:
    people = [User.objects.create_user(f"person-{number}@evals.invalid") for number in range(count)]
    return [(user.pk, create_token(user=user).secret) for user in people]


def _quarantined() -> Any:
    with acting_as_staff():
        return index_health(now=timezone.now()).quarantined.value


if __name__ == "__main__":
    main()
