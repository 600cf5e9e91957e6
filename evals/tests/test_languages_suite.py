import pytest
from django.core.management import CommandError, call_command

from evals import languages
from memory.search import chat_history, hybrid
from memory.search.literal import LiteralHits

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("real_embedder", "copied_scratch")]


@pytest.fixture(autouse=True)
def english_and_what_russians_type(monkeypatch, tmp_path):
    rows = languages.QUESTIONS.read_text().splitlines(keepends=True)
    kept = [row for row in rows if '"english"' in row or ('"russian"' in row and '"as typed"' in row)]
    (tmp_path / "questions.jsonl").write_text("".join(kept))
    monkeypatch.setattr(languages, "QUESTIONS", tmp_path / "questions.jsonl")


def test_a_line_for_each_language_and_kind(capsys):
    call_command("run_evals", suite="languages")
    english, russian, *_ = capsys.readouterr().out.splitlines()
    assert english.startswith("english, meaning pass  6 of 6 in the first 5")
    assert russian.startswith("russian, as typed pass  3 of 3 in the first 5")


def test_it_fails_where_nothing_is_found(monkeypatch):
    monkeypatch.setattr(chat_history, "find_literal", lambda *_, **__: LiteralHits())
    monkeypatch.setattr(chat_history, "find_related", lambda *_, **__: hybrid.Found([], 0, None, 0.0, 0.0))
    monkeypatch.setattr(chat_history, "is_nearest_only", lambda *_: True)
    with pytest.raises(CommandError, match="of 3 evals failed"):
        call_command("run_evals", suite="languages")
