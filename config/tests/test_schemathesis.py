"""The API against its own description: what schemathesis makes of the OpenAPI document is sent to the served application.

`make schemathesis` sends much more of the same; what is expected of every answer stands in schemathesis.toml.
"""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from django.conf import settings

from config.tests.endpoints import house

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

CONFIG = settings.BASE_DIR / "schemathesis.toml"
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "2")
# Three runs that several processes can share; the last of them excludes these, so that no operation is left out.
KEPT, CALLED = "memory|projects", "tools|tokens"
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")


def run(address, folder, *options, **headers):
    given = [part for name, value in headers.items() for part in ("-H", f"{name.replace('_', '-')}: {value}")]
    command = [Path(sys.executable).with_name("schemathesis"), "--config-file", CONFIG, "run"]
    scale = ["--max-examples", EXAMPLES, "--seed", SEED, "--continue-on-failure", "--no-color", "--no-shrink"]
    schema = f"{address}/api/v1/schema/"
    return subprocess.run(
        [*command, schema, *scale, *options, *given], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def alice(server):
    return house.move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))


@pytest.mark.parametrize(
    "paths",
    [
        ["--include-path-regex", f"^/api/v1/({KEPT})/"],
        ["--include-path-regex", f"^/api/v1/({CALLED})/"],
        ["--exclude-path-regex", f"^/api/v1/({KEPT}|{CALLED})/"],
    ],
    ids=["what is kept", "what is called", "everything else"],
)
def test_every_operation_answers_as_it_is_described(server, alice, tmp_path, paths):
    done = run(server, tmp_path, *paths, Authorization=f"Bearer {alice.secret}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_tokens_are_managed_as_it_is_described(server, alice, log_in, tmp_path):
    """By a person in their session, since a token may not; without credentials the run above has tried them."""
    client = log_in(alice.user)
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in client.cookies.jar)
    only = ["--include-path-regex", "^/api/v1/tokens/", "--exclude-checks", "ignored_auth"]
    done = run(server, tmp_path, *only, Cookie=cookies, X_CSRFToken=client.cookies["csrftoken"])
    assert done.returncode == 0, done.stdout + done.stderr
