"""`make audit` says whether a package has a known vulnerability, or that the database cannot be asked."""

import os
import subprocess
from pathlib import Path

import pytest
from django.conf import settings


@pytest.mark.parametrize(
    ("found", "said", "status", "sentence"),
    [
        ("", "No known vulnerabilities found", 0, ""),
        (
            "Name Version ID\nnothing 1.0 PYSEC-1",
            "Found 1 known vulnerability in 1 package",
            1,
            "has a known vulnerability",
        ),
        ("", "Traceback\nConnectionError: no route to the database", 1, "could not all be looked up"),
    ],
)
@pytest.mark.parametrize("client", ["UV", "NPM"])
def test_the_audit_tells_a_vulnerability_from_a_database_that_cannot_be_asked(
    tmp_path, client, found, said, status, sentence
):
    answering, clean = tmp_path / "answering", tmp_path / "clean"
    answering.write_text(
        f"#!/bin/sh\n[ $1 = install ] && exit 0\nprintf '%s' '{found}'\nprintf '%s\\n' '{said}' >&2\nexit {status}\n"
    )
    clean.write_text("#!/bin/sh\n")
    answering.chmod(0o755)
    clean.chmod(0o755)
    # Of the two clients either may find something, or be unable to ask.
    asked = {"UV": str(clean), "NPM": str(clean), client: str(answering)}
    command = [Path(settings.BASE_DIR) / "requirements/audit.sh"]
    ran = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    lines = ran.stderr.splitlines()
    assert [line for line in lines if sentence in line] == lines[-1:]
    assert "Traceback" not in ran.stderr
    assert found in ran.stdout and ("No known" in ran.stdout) is (status == 0)
