"""Commands of a person against the running application; nothing of theirs stays in a home directory."""

import pytest

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from imports.tests.over_rest import a_worker
from intake.tests.factories import a_person
from recollect_cli.commands import main


@pytest.fixture
def alice(server):
    return a_person()


@pytest.fixture
def recollect(server, alice, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("RECOLLECT_URL", server)
    monkeypatch.setenv("RECOLLECT_TOKEN", create_token(user=alice, scopes=list(TokenScope)).secret)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def importing_worker(server, settings, tmp_path):
    settings.IMPORTS_DIR = tmp_path / "uploads"
    with a_worker():
        yield
