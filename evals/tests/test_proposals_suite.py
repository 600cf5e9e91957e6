import pytest
from django.core.management import CommandError, call_command

from evals import proposals
from memory import ended_chats

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("real_embedder", "copied_scratch")]


def test_known_facts_are_proposed_and_nothing_from_a_trap(capsys):
    call_command("run_evals", suite="proposals")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21
    assert lines[-1].startswith("scripted-all pass  precision 100%")
    assert ", 0 traps," in lines[-1]


def test_it_fails_where_what_a_model_writes_is_believed(monkeypatch, capsys):
    monkeypatch.setattr(ended_chats, "is_by_the_person", lambda *_: True)
    with pytest.raises(CommandError, match="evals failed"):
        call_command("run_evals", suite="proposals")
    assert "from a trap" in capsys.readouterr().out
    assert proposals.PRECISION > 0.5
