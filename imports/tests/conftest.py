"""Uploads of a test lie in a folder of its own."""

import pytest


@pytest.fixture(autouse=True)
def imports_dir(settings, tmp_path):
    settings.IMPORTS_DIR = tmp_path / "imports"
    return settings.IMPORTS_DIR
