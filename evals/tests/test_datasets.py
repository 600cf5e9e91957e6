from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.core.management import CommandError

from evals.datasets.loading import embed_all, load_turns
from evals.datasets.reading import read_dataset
from evals.tests.conftest import query, turn
from intake.models import Conversation, Turn
from memory.models import Embedding

A_TURN = turn("alice", "travel", 1, "Hello")
A_QUERY = query("alice", "Hello?", ["travel", 1])


def refusal(folder):
    with pytest.raises(CommandError) as caught:
        read_dataset(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_a_folder_that_is_missing_is_named(tmp_path):
    assert refusal(tmp_path / "nowhere") == f"There is no folder {tmp_path / 'nowhere'}."


def test_a_file_that_is_missing_is_named(tmp_path):
    assert "turns.jsonl cannot be read: No such file" in refusal(tmp_path)


def test_a_line_that_is_no_json_is_numbered_and_blank_lines_count(write_dataset):
    message = refusal(write_dataset([A_TURN, "", '{"user": '], [A_QUERY]))

    assert "turns.jsonl, line 3: " in message
    assert "JSON" in message


def test_a_field_that_is_missing_or_wrong_is_named(write_dataset):
    assert "turns.jsonl, line 1: user: Field required" in refusal(write_dataset(["{}"], [A_QUERY]))
    assert "line 1: turn: " in refusal(write_dataset([A_TURN | {"turn": "first"}], [A_QUERY]))
    assert "queries.jsonl, line 1: gold: " in refusal(write_dataset([A_TURN], [A_QUERY | {"gold": []}]))


def test_gold_that_points_nowhere_is_refused(write_dataset):
    message = refusal(write_dataset([A_TURN], [A_QUERY, query("alice", "And?", ["travel", 2])]))

    assert "queries.jsonl, line 2: gold names turn 2 of 'travel'" in message


def test_gold_of_somebody_else_points_nowhere(write_dataset):
    turns = [A_TURN, turn("bob", "home", 1, "Hi")]

    assert "gold names turn 1 of 'home'" in refusal(write_dataset(turns, [query("alice", "Hi?", ["home", 1])]))


def test_a_query_of_somebody_who_said_nothing_is_refused(write_dataset):
    message = refusal(write_dataset([A_TURN], [query("carol", "Hi?", ["travel", 1])]))

    assert "queries.jsonl, line 1: the user 'carol' has no turns." in message


def test_a_turn_that_comes_twice_is_refused(write_dataset):
    assert "line 2: this turn is there already." in refusal(write_dataset([A_TURN, A_TURN], [A_QUERY]))


def test_no_queries_are_refused(write_dataset):
    assert "holds no query." in refusal(write_dataset([A_TURN], []))


def test_times_without_a_zone_are_utc_and_others_keep_theirs(write_dataset):
    turns = [A_TURN, turn("alice", "travel", 2, "Hi", at="2026-01-05T09:30:00+02:00")]

    first, second = read_dataset(write_dataset(turns, [A_QUERY])).turns

    assert first.at == datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
    assert second.at == datetime(2026, 1, 5, 9, 30, tzinfo=timezone(timedelta(hours=2)))


def test_a_byte_order_mark_and_line_separators_inside_a_text_do_no_harm(write_dataset):
    folder = write_dataset([A_TURN], [A_QUERY])
    line = (folder / "turns.jsonl").read_text().replace("Hello", "Hello\u2028world")
    (folder / "turns.jsonl").write_text("\ufeff" + line)

    assert read_dataset(folder).turns[0].user_message == "Hello\u2028world"


@pytest.mark.django_db
def test_people_and_what_they_said_are_saved_by_the_services(a_dataset):
    loaded = load_turns(read_dataset(a_dataset).turns, report=lambda line: None)

    said = Turn.objects.for_user(loaded.users["alice"]).in_order()
    assert [turn.user_message for turn in said] == [
        "The ferry to the island leaves at noon",
        "Remember my passport number",
    ]
    assert said[0].said_at == datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
    assert {loaded.origins[turn.conversation_id, turn.turn_number] for turn in said} == {("travel", 1), ("travel", 2)}
    assert Conversation.objects.for_user(loaded.users["bob"]).count() == 1


@pytest.mark.django_db
def test_every_part_gets_its_vector(a_dataset):
    lines = []
    load_turns(read_dataset(a_dataset).turns, report=lines.append)
    embed_all(report=lines.append)

    assert not Embedding.objects.filter(vector=None).exists()
    assert lines[-1] == "3 of 3 parts embedded."


@pytest.mark.django_db
def test_parts_without_a_vector_are_no_basis_for_figures(a_dataset, monkeypatch):
    load_turns(read_dataset(a_dataset).turns, report=lambda line: None)

    def fail(self, texts):
        raise RuntimeError("broken")

    monkeypatch.setattr("memory.backends.embedders.FakeEmbedder.embed_documents", fail)

    with pytest.raises(CommandError, match="3 parts could not be embedded \\(RuntimeError\\)"):
        embed_all(report=lambda line: None)
