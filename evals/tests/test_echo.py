import pytest
from django.core.management import CommandError, call_command

from agent_tools.tools import context
from evals import echo
from memory.search import hybrid, sources

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("real_embedder", "copied_scratch")]


@pytest.fixture(autouse=True)
def few_facts(monkeypatch, tmp_path):
    facts = echo.FACTS.read_text().splitlines(keepends=True)
    (tmp_path / "facts.jsonl").write_text("".join(facts[number] for number in (1, 6, 15)))
    monkeypatch.setattr(echo, "FACTS", tmp_path / "facts.jsonl")
    monkeypatch.setattr(echo, "TIMES", (1, 2))
    # Each of seven lives has them beside its own.
    others = echo.read_demo()[:15]
    monkeypatch.setattr(echo, "read_demo", lambda: others)


def test_a_line_for_each_case_and_the_share_that_passed(capsys):
    call_command("run_evals", suite="echo")
    *cases, share = capsys.readouterr().out.splitlines()
    assert len(cases) >= 24
    assert all(" pass  " in case for case in cases)
    assert share == f"{len(cases)} of {len(cases)} passed, 95% must."


def test_it_fails_where_questions_are_taken_for_answers(monkeypatch):
    monkeypatch.setattr(hybrid, "find_echoes", lambda *_: ({}, set()))
    monkeypatch.setattr(sources, "repeats", lambda *_: False)
    with pytest.raises(CommandError, match="evals failed"):
        call_command("run_evals", suite="echo")


def test_recalled_answers_and_prompts_about_nothing_are_counted(capsys, monkeypatch, tmp_path):
    lines = echo.SESSIONS.read_text().splitlines(keepends=True)
    monkeypatch.setattr(echo, "SESSIONS", tmp_path / "sessions.jsonl")
    echo.SESSIONS.write_text("".join(lines[:3]))
    monkeypatch.setattr(echo, "ABOUT_NOTHING", tmp_path / "nothing.txt")
    echo.ABOUT_NOTHING.write_text("Please continue.\nWhich planet has the most moons?\n")
    call_command("run_evals", suite="recall")
    assert capsys.readouterr().out.splitlines()[-1] == "3 of 3 passed, 80% must."
    call_command("run_evals", suite="recall-nothing")
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 passed, 90% must."
    monkeypatch.setattr(context, "FLOOR", 2)
    monkeypatch.setattr(context, "SESSIONS", 0)
    with pytest.raises(CommandError, match="3 of 3 evals failed"):
        call_command("run_evals", suite="recall")
