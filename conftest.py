"""What every test may use, and what all of them need once."""

import pytest
from django.core.management import call_command

pytest_plugins = ["intake.testing.fixtures", "intake.testing.browser"]


@pytest.fixture(scope="session", autouse=True)
def static_files() -> None:
    """Pages name their static files by the manifest that `collectstatic` writes, here as in production."""
    call_command("collectstatic", interactive=False, verbosity=0)
