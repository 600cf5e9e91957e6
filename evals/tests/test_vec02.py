import pytest
from django.core.management import call_command

from evals import vec02
from memory.index import vectors
from testing.examiner import take_policies_away

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("real_embedder", "copied_scratch")]


def failures():
    return {verdict.id: verdict.failure for verdict in vec02.run() if verdict.failure}


def test_the_suite_passes_a_line_for_each_eval(capsys):
    call_command("run_evals", suite="vec-02")

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["V2-01", "pass"], ["V2-02", "pass"], ["V2-03", "pass"]]


@pytest.fixture
def unbound(monkeypatch):
    """The query for the nearest turns is bound to the caller nowhere, neither for vectors nor for what is shown."""
    for name in ("_NEAR", "_NEAREST"):
        of_one = getattr(vectors, name)
        everybodys = of_one.replace("user_id = %(user_id)s AND ", "").replace("WHERE user_id = %(user_id)s)", ")")
        assert "user_id" not in everybodys
        monkeypatch.setattr(vectors, name, everybodys)


def test_it_passes_when_the_database_alone_refuses(unbound):
    assert failures() == {}


def test_it_fails_when_neither_the_application_nor_the_database_refuses(unbound):
    take_policies_away()

    failed = failures()

    assert "turns of somebody else" in failed["V2-02"]
    assert "Expected nothing" in failed["V2-03"]


def test_it_fails_when_nothing_is_found(monkeypatch):
    monkeypatch.setattr(vectors, "nearest", lambda *_, **asked: ([], 0))

    assert "found nothing" in failures()["V2-01"]


def test_an_error_is_a_failure_and_not_the_end_of_the_suite(monkeypatch):
    def fail(**arguments):
        raise RuntimeError("broken")

    monkeypatch.setattr("agent_tools.tools.chat_history.search", fail)

    assert {id_: text.split(":")[0] for id_, text in failures().items()} == dict.fromkeys(
        ("V2-01", "V2-02", "V2-03"), "RuntimeError"
    )
