"""Migrations are frozen, and a database whose tables differ from the models is refused."""

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.isolation import fitting
from core.isolation.connecting import connected_as_owner


def test_no_recorded_migration_has_changed_and_every_one_is_recorded():
    """If this fails for a new file, run `manage.py record_migrations`; undo any change to another file."""
    assert fitting.migration_hashes() == fitting.recorded_hashes()


def test_only_the_hashes_of_new_migrations_are_recorded(tmp_path, monkeypatch, settings):
    settings.BASE_DIR = tmp_path
    monkeypatch.setattr(fitting, "RECORDED", tmp_path / "hashes")
    folder = tmp_path / "notes" / "migrations"
    folder.mkdir(parents=True)
    (folder / "0001_notes.py").write_text("first")
    assert fitting.record_new_migrations() == ["notes/migrations/0001_notes.py"]
    before = fitting.recorded_hashes()
    (folder / "0001_notes.py").write_text("edited")
    (folder / "0002_titles.py").write_text("second")
    assert fitting.record_new_migrations() == ["notes/migrations/0002_titles.py"]
    assert fitting.recorded_hashes()["notes/migrations/0001_notes.py"] == before["notes/migrations/0001_notes.py"]
    assert fitting.recorded_hashes() != fitting.migration_hashes()


@pytest.mark.django_db
def test_the_tables_of_this_version_fit_its_models():
    assert fitting.differences() == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("change", "undo", "said"),
    [
        (
            "ALTER TABLE users RENAME language TO tongue",
            "ALTER TABLE users RENAME tongue TO language",
            "users.language is missing",
        ),
        (
            "ALTER TABLE memory_maps RENAME TO maps",
            "ALTER TABLE maps RENAME TO memory_maps",
            "the table memory_maps is missing",
        ),
        (
            "ALTER TABLE users ALTER language TYPE text",
            "ALTER TABLE users ALTER language TYPE varchar({0})",
            "users.language is text instead of character varying",
        ),
        (
            "ALTER TABLE access_tokens ADD colour text NOT NULL DEFAULT '';"
            "ALTER TABLE access_tokens ALTER colour DROP DEFAULT",
            "ALTER TABLE access_tokens DROP colour",
            "access_tokens.colour is unknown and needs a value",
        ),
    ],
)
def test_each_kind_of_difference_is_refused_in_one_sentence(change, undo, said):
    length = fitting.tables_expected()["users"]["language"].type.partition("(")[2].rstrip(")")
    with connected_as_owner(), connection.cursor() as cursor:
        cursor.execute(change)
    try:
        with pytest.raises(CommandError, match="does not fit this version") as refusal:
            fitting.refuse_unless_fitting()
        assert said in str(refusal.value)
        assert len(str(refusal.value).splitlines()) == 1
        with pytest.raises(CommandError, match="does not fit this version"):
            call_command("migrate", verbosity=0, interactive=False)
    finally:
        with connected_as_owner(), connection.cursor() as cursor:
            cursor.execute(undo.format(length))


@pytest.mark.django_db(transaction=True)
def test_health_reads_what_a_login_reads(client):
    assert client.get("/healthz").json()["database"]
    with connected_as_owner(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE users RENAME language TO tongue")
    try:
        answer = client.get("/healthz")
        assert (answer.status_code, answer.json()["database"]) == (503, False)
    finally:
        with connected_as_owner(), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE users RENAME tongue TO language")


@pytest.mark.django_db
def test_health_asks_a_database_that_is_away_no_second_question(client, monkeypatch):
    """Each waits for the pool as long as it may, and the supervisor starts a process again that answers too late."""
    monkeypatch.setattr("config.ops.endpoints.reads_a_login", lambda: False)
    with CaptureQueriesContext(connection) as queries:
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()["database"], answer.json()["embedder"]) == (503, False, False)
    assert not [query for query in queries.captured_queries if "FROM" in query["sql"]]
