"""The product on a Citus cluster: how the schema is placed, and that a personal query asks one node.

`CITUS_URLS` names the cluster (testing/cluster.py). Any other module of the suite runs on it as well then.
"""

import re
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from django.apps import apps
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from config.tests.endpoints.matrix import a_matrix
from core.citus.distribute import plan_tables
from core.citus.routing import owner_fields, placed_tables
from core.ids import uuid7
from core.isolation.acting import Caller, acting_as
from core.isolation.checks import personal_models
from core.isolation.policies import isolate
from intake.chats import deleting
from intake.chats.services import Progress, TurnRequest, create_turn, save_progress
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import index
from memory.index import segments
from memory.models import Embedding, IndexedText
from memory.search.history import HistoryRequest, search_history
from testing.cluster import VARIABLE, cluster_urls, make_database
from testing.emptying import empty
from testing.examiner import as_a_worker, as_the_application

pytestmark = [
    pytest.mark.extended,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not cluster_urls(), reason=f"{VARIABLE} names no Citus cluster."),
]


@contextmanager
def superuser(node=0):
    with psycopg.connect(cluster_urls()[node], dbname=connection.settings_dict["NAME"], autocommit=True) as server:
        yield server


def rows_of(table):
    with superuser() as server:
        return server.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def say(user, *messages):
    for message in messages:
        a_turn(user, message)
    index.embed_pending()


def found(user, query):
    request = HistoryRequest(query=query, max_results=10)
    with as_the_application(), acting_as(user):
        return [result.excerpt.text for result in search_history(request, user=user, now=NOW).results]


def test_every_personal_table_is_distributed_by_its_user_and_every_other_lies_on_each_node():
    placed = placed_tables(connection)
    plan = plan_tables()
    assert {table for table, method in placed.items() if method == "h"} == set(plan.personal)
    assert {table for table, method in placed.items() if method == "n"} == set(plan.shared)
    assert {"users", "embedding_models"} <= set(plan.shared)
    assert "import_jobs" in plan.personal
    with superuser() as server:
        columns = server.execute(
            "SELECT DISTINCT column_to_column_name(logicalrelid, partkey), colocationid FROM pg_dist_partition "
            "WHERE partmethod = 'h'"
        ).fetchall()
    assert [column for column, _ in columns] == ["user_id"]


def test_running_it_again_places_nothing(capsys):
    call_command("distribute")
    assert "Every table is placed already." in capsys.readouterr().out


def test_policies_are_in_force_on_each_node_so_that_nobody_and_a_stranger_see_nothing():
    alice, bob = a_person(), a_person("bob@example.com")
    a_turn(alice, "The roof is leaking")
    turns = Turn.objects.values_list("user_message", flat=True)
    with as_the_application():
        assert list(turns.all()) == []
        with acting_as(bob):
            assert list(turns.all()) == []
            assert list(turns.filter(user=alice)) == []
        with acting_as(alice):
            assert list(turns.all()) == ["The roof is leaking"]
    # Asked of a node itself, as the role of the application.
    with superuser(1) as node:
        node.execute("SET ROLE recollect_web")
        assert node.execute("SELECT count(*) FROM intake_conversation_turns").fetchone() == (0,)
        with node.transaction():
            node.execute("SET LOCAL citus.propagate_set_commands = 'local'")
            node.execute(f"SET LOCAL app.user_id = '{alice.pk}'")
            assert node.execute("SELECT count(*) FROM intake_conversation_turns").fetchone() == (1,)


def test_what_people_say_on_different_nodes_is_indexed_and_found_by_them_alone():
    people = [a_person(f"{number}@example.com") for number in range(6)]
    for person in people:
        say(person, *(f"The plumber comes on day {number} to {person.email}" for number in range(12)))
    with as_a_worker():
        segments.flush()
    assert not Embedding.objects.filter(vector=None).exists()
    for person in people:
        texts = found(person, "When does the plumber come?")
        assert texts
        assert all(person.email in text for text in texts)


def test_answers_that_are_being_written_are_saved_together_on_the_nodes_of_their_users():
    people = [a_person(f"{number}@example.com") for number in range(6)]
    turns = []
    for person in people:
        with as_the_application(), acting_as(person):
            turns.append(create_turn(TurnRequest(message="Hi"), caller=caller_for(person), now=NOW))
    parts = [Progress(turn_id=turn.pk, user_id=turn.user_id, text=f"Half of {turn.pk}") for turn in turns]
    with as_the_application():
        assert save_progress(parts, now=NOW) == {turn.pk for turn in turns}
    for turn in turns:
        turn.refresh_from_db()
        assert turn.assistant_message == f"Half of {turn.pk}"


def test_a_deleted_chat_and_a_deleted_account_leave_nothing_on_any_node():
    alice, bob = a_person(), a_person("bob@example.com")
    say(alice, *(f"Alice and her boat {number}" for number in range(12)))
    say(bob, "Bob and his boat")
    with as_the_application(), acting_as(alice):
        first = Conversation.objects.for_user(alice).earliest("id")
        deleting.delete_conversation(caller=caller_for(alice), conversation_id=first.pk)
    assert "Alice and her boat 0" not in " ".join(found(alice, "boat"))
    with as_the_application():
        deleting.delete_account(user=alice)
    left = {model._meta.db_table for model in personal_models() if model.objects.filter(user=alice.pk).exists()}
    assert left == set()
    assert IndexedText.objects.filter(user=bob).count() == 1


@pytest.fixture
def undistributed():
    """Another database of the cluster, as `migrate` leaves it, in the place of the suite's own."""
    name = "test_undistributed"
    make_database(cluster_urls(), urlsplit(settings.DATABASE_OWNER_URL).password, name=name)
    kept = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = type(kept)({**kept.settings_dict, "NAME": name}, DEFAULT_DB_ALIAS)
    call_command("migrate", verbosity=0)
    yield
    connection.close()
    connections[DEFAULT_DB_ALIAS] = kept


def test_a_schema_that_is_not_distributed_is_named_by_the_check_and_a_filled_one_is_distributed_whole(undistributed):
    alice = a_person()
    say(alice, *(f"The roof leaks since {number}" for number in range(12)))
    before = {table: rows_of(table) for table in plan_tables().tables}
    (error,) = [error for error in run_checks(databases=["default"]) if error.id == "core.E006"]
    assert "intake_conversation_turns" in error.msg
    assert "manage.py distribute" in error.hint
    call_command("distribute", verbosity=0)
    assert {table: rows_of(table) for table in before} == before
    assert "core.E006" not in {error.id for error in run_checks(databases=["default"])}
    assert found(alice, "roof")


def test_rows_without_an_owner_are_named_and_nothing_is_changed(undistributed):
    table = "intake_conversations"
    with superuser() as server:
        server.execute(
            f"INSERT INTO {table} (id, title, source, external_id, turn_count, has_versions, started_at, last_active_at, "
            "titled_by) VALUES (gen_random_uuid(), 'From before', 'chat', '', 0, false, now(), now(), 'line')"
        )
    with pytest.raises(CommandError, match=f"{table} has 1 rows without an owner"):
        call_command("distribute", verbosity=0)
    assert not placed_tables(connection)


def test_a_backup_is_restored_onto_a_distributed_cluster_without_users_and_lies_on_its_nodes(
    undistributed, settings, tmp_path, capsys
):
    alice = a_person()
    say(alice, *(f"The roof leaks since {number}" for number in range(3)))
    call_command("distribute", verbosity=0)
    settings.DATABASE_BACKUP_URL = cluster_urls()[0]
    call_command("backup", str(tmp_path / "all.backup"))
    before = {table: rows_of(table) for table in plan_tables().tables}
    with pytest.raises(CommandError, match="users already"):
        call_command("restore", str(tmp_path / "all.backup"))
    empty(DEFAULT_DB_ALIAS)
    call_command("restore", str(tmp_path / "all.backup"))
    assert "all compared equal" in capsys.readouterr().out
    assert {table: rows_of(table) for table in before} == before
    assert set(placed_tables(connection)) == set(plan_tables().tables)
    assert found(alice, "roof")


@pytest.fixture
def later_note():
    """A personal table that no migration has made yet, as the application knows it from a later version on."""

    class LaterNote(models.Model):
        id = models.UUIDField(primary_key=True, default=uuid7)
        user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
        conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, db_constraint=False)
        text = models.TextField()

        class Meta:
            app_label = "intake"
            db_table = "later_notes"

        def __str__(self):
            return self.text

    owner_fields.cache_clear()
    yield LaterNote
    del apps.all_models["intake"]["laternote"]
    apps.clear_cache()
    owner_fields.cache_clear()


@pytest.fixture
def migrate_later(monkeypatch):
    """Runs `migrate` with one migration more, as a later version has it."""
    names = ["0004_isolation"]
    load = MigrationLoader.load_disk
    later = {}

    def load_with_later(loader):
        load(loader)
        loader.disk_migrations |= later

    monkeypatch.setattr(MigrationLoader, "load_disk", load_with_later)

    def migrate(*operations):
        migration = migrations.Migration(f"{len(names) + 4:04}_later", "intake")
        migration.dependencies = [("intake", names[-1])]
        migration.operations = list(operations)
        names.append(migration.name)
        later["intake", migration.name] = migration
        call_command("migrate", "intake", verbosity=0)

    return migrate


def on_each_node(statement):
    found = []
    for node in range(1, len(cluster_urls())):
        with superuser(node) as server:
            # Shards are hidden there from everybody who does not ask for them.
            server.execute("SET citus.override_table_visibility = off")
            found.append(server.execute(statement).fetchone()[0])
    return found


def test_later_migrations_reach_every_node_and_a_new_personal_table_is_placed_after_them(
    undistributed, later_note, migrate_later, capsys
):
    alice, bob = a_person(), a_person("bob@example.com")
    turn = a_turn(alice, "The roof is leaking")
    call_command("distribute", verbosity=0)
    too_early = "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, user_id bigint NOT NULL REFERENCES users"
    migrate_later(migrations.RunSQL(f"CREATE TABLE later_notes ({too_early})"))
    with pytest.raises(CommandError, match="later_notes has an identity column and refers to a table"):
        call_command("distribute", verbosity=0)
    column = models.IntegerField(default=3)
    migrate_later(
        migrations.RunSQL("DROP TABLE later_notes"),
        migrations.AddField("conversation", "later", column),
        migrations.AddIndex("turn", models.Index(fields=["user", "said_at"], name="later_turns")),
        migrations.CreateModel(
            "LaterNote",
            [
                ("id", models.UUIDField(primary_key=True)),
                ("user", models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)),
                ("conversation", models.ForeignKey("intake.Conversation", models.CASCADE, db_constraint=False)),
                ("text", models.TextField()),
            ],
            {"db_table": "later_notes"},
        ),
        isolate("later_notes"),
    )
    with as_the_application(), acting_as(alice), connection.cursor() as cursor:
        cursor.execute("SELECT later FROM intake_conversations WHERE user_id = %s", [alice.pk])
        assert cursor.fetchall() == [(3,)]
    assert all(on_each_node("SELECT count(*) FROM pg_class WHERE relname ~ '^later_turns_[0-9]+$'"))

    (error,) = [error for error in run_checks(databases=["default"]) if error.id == "core.E006"]
    assert "later_notes lie on its coordinator alone" in error.msg
    call_command("distribute")
    assert capsys.readouterr().out == "later_notes: by user_id, 0 rows.\n1 tables were placed.\n"
    assert "core.E006" not in {error.id for error in run_checks(databases=["default"])}
    migrate_later(
        migrations.RunSQL(
            "ALTER TABLE later_notes ADD CONSTRAINT later_notes_conversation FOREIGN KEY (user_id, conversation_id) "
            "REFERENCES intake_conversations (user_id, id) ON DELETE CASCADE"
        ),
        migrations.RunSQL(["CREATE POLICY later ON later_notes TO recollect_worker USING (true)"]),
        migrations.RunSQL(["GRANT SELECT ON later_notes TO recollect_worker"]),
    )
    assert all(
        on_each_node("SELECT count(*) FROM pg_policy WHERE polname = 'later' AND polrelid::regclass::text ~ '_[0-9]+$'")
    )
    with as_the_application():
        with acting_as(alice):
            later_note.objects.create(user=alice, conversation_id=turn.conversation_id, text="Call the roofer")
        with acting_as(bob):
            assert not later_note.objects.exists()
    with as_a_worker():
        assert later_note.objects.get().text == "Call the roofer"
    with as_the_application(), acting_as(alice):
        deleting.delete_conversation(caller=caller_for(alice), conversation_id=turn.conversation_id)
    assert rows_of("later_notes") == 0


# By the beginning of the statement, as it is sent: what asks more than one node while somebody waits, and why.
ON_SEVERAL_NODES: dict[str, str] = {}


def explained(sql, params, user_id):
    with as_the_application(), acting_as(Caller(user_id=user_id)), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (COSTS OFF) {sql}", params)
        return "\n".join(line for (line,) in cursor.fetchall())


def test_every_personal_query_of_every_endpoint_is_one_task_on_one_node(monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    walked = a_matrix()
    personal = re.compile(rf"\b({'|'.join(plan_tables().personal)})\b")
    asked = {}

    def recorded(execute, sql, params, many, context):
        acting = getattr(connection, "acting", None)
        if acting is not None and acting.user_id and personal.search(sql) and not many:
            asked[sql] = (params, int(acting.user_id))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(recorded):
        walked.open_all()
    plans = {sql: explained(sql, *rest) for sql, rest in asked.items()}
    assert not walked.found
    assert len(plans) > 100
    spread = {
        sql: plan
        for sql, plan in plans.items()
        if set(re.findall(r"Task Count: (\d+)", plan)) != {"1"} or "Distributed Subplan" in plan
    }
    unknown = [sql for sql in spread if not any(sql.startswith(beginning) for beginning in ON_SEVERAL_NODES)]
    assert not unknown, "\n\n".join(f"{sql[:400]}\n{spread[sql][:600]}" for sql in unknown[:8])
