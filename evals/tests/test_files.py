"""The suite about files: every document is read in its own format, and enough answers are found."""

import pytest
from django.core.management import CommandError, call_command

from evals import files
from intake.attachments.reading.formats import read_file


@pytest.mark.parametrize("name", [name for name, _ in files.documents()])
def test_every_answer_is_in_its_document(name):
    data = dict(files.documents())[name]
    text = " ".join(" ".join(part.text for part in read_file(data, name, "").parts).split())
    asked = [question for question in files.questions() if question.file == name]
    assert len(asked) == 5
    assert [question.answer for question in asked if question.answer not in text] == []


@pytest.mark.extended
@pytest.mark.django_db
@pytest.mark.usefixtures("real_embedder", "copied_scratch")
def test_the_passage_with_the_answer_is_among_the_first_five(capsys):
    call_command("run_evals", suite="files")
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("FILES-") for line in lines) == 50


@pytest.mark.extended
@pytest.mark.django_db
@pytest.mark.usefixtures("copied_scratch")
def test_the_suite_fails_if_too_few_are_found(monkeypatch):
    monkeypatch.setattr(files, "is_found", lambda user, question: question.file == "lease.pdf")
    with pytest.raises(CommandError):
        call_command("run_evals", suite="files")
