"""Makes people with a token each, for `chaos` and `soak`: by the services, as pages and commands do.

Reads `{"people": how many}`, writes `[[user id, token], …]`.
"""

import json
import sys

import django

django.setup()

from agent_tools.tokens import create_token  # noqa: E402
from intake.models import User  # noqa: E402


def main() -> None:
    count = json.load(sys.stdin)["people"]
    people = [User.objects.create_user(f"person-{number}@evals.invalid") for number in range(count)]
    json.dump([[user.pk, create_token(user=user).secret] for user in people], sys.stdout)


if __name__ == "__main__":
    main()
