"""A process that could show somebody what is not theirs does not start, and says what to do."""

import pytest
from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.isolation.checks import personal_models, problems, refuse_unless_isolated
from core.isolation.connecting import connected_as, connected_as_owner
from core.isolation.policies import BOUND, apply_bound_policies, isolate
from core.isolation.roles import Roles
from testing.cluster import cluster_urls
from testing.examiner import as_a_worker, as_the_application

pytestmark = pytest.mark.django_db

ROLES = settings.DATABASE_ROLES


def ids(role=ROLES.web):
    return [found.id for found in problems(connection, roles=(role,))]


def test_the_applications_and_the_workers_roles_pass():
    with as_the_application():
        assert ids() == []
        refuse_unless_isolated(ROLES.web)
    with as_a_worker():
        assert ids(ROLES.worker) == []


def test_a_role_that_passes_over_policies_is_refused():
    (first, *_) = problems(connection, roles=(ROLES.web,))
    assert first.id == "core.E001"
    assert "create_roles" in first.hint


def test_the_owner_of_the_tables_is_refused():
    with connected_as_owner():
        assert ids() == ["core.E002"]


@pytest.mark.parametrize("statement", ["NO FORCE ROW LEVEL SECURITY", "DISABLE ROW LEVEL SECURITY"])
def test_a_personal_table_without_forced_policies_is_named(statement):
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE term_blocks {statement}")
    with as_the_application():
        (found,) = problems(connection, roles=(ROLES.web,))
    assert (found.id, "guards term_blocks." in found.msg) == ("core.E003", True)


def test_a_personal_table_without_a_policy_for_the_application_is_named():
    with connection.cursor() as cursor:
        cursor.execute("DROP POLICY person ON term_blocks")
    with as_the_application():
        assert ids() == ["core.E003"]


def test_a_worker_that_logs_in_as_the_application_is_refused_and_the_other_way_round():
    with (
        as_the_application(),
        pytest.raises(ImproperlyConfigured, match=r"core\.E004: .*recollect_web.*Put recollect_worker"),
    ):
        refuse_unless_isolated(ROLES.worker)
    with as_a_worker(), pytest.raises(ImproperlyConfigured, match=r"core\.E004"):
        refuse_unless_isolated(ROLES.web)


@pytest.mark.medium
def test_the_command_says_the_same():
    with as_the_application():
        call_command("check", databases=["default"])
    with pytest.raises(Exception, match=r"core\.E001"):
        call_command("check", databases=["default"])


def test_every_table_with_a_person_is_personal_or_says_why_not():
    assert {"intake.Conversation", "intake.Turn", "memory.Embedding", "memory.TermBlock"} <= {
        model._meta.label for model in personal_models()
    }
    for label, reason in settings.NOT_PERSONAL.items():
        assert apps.get_model(label)
        assert reason


def test_a_role_is_missing_is_said_before_anything_is_migrated(settings):
    settings.DATABASE_ROLES = Roles("nowhere")
    with pytest.raises(
        CommandError, match=r"no role nowhere_staff, nowhere_web, nowhere_worker: run .manage.py create_roles"
    ):
        call_command("migrate", verbosity=0)


def test_an_owner_who_may_make_no_roles_is_told_so(settings):
    settings.DATABASE_ROLES = Roles("nowhere")
    with pytest.raises(CommandError, match="The role recollect may not make or change nowhere_web"):
        call_command("create_roles")


@pytest.mark.parametrize("prefix", ["", "Capital", "1st", 'a"b', "a; DROP ROLE postgres", "x" * 60])
def test_a_prefix_that_is_no_name_is_refused(prefix):
    with pytest.raises(ValueError, match="DATABASE_ROLE_PREFIX"):
        Roles(prefix)


def test_another_connection_leaves_the_first_and_its_transaction_as_they_are():
    from intake.tests.factories import a_person

    a_person()
    kept = connection.connection
    with connected_as(settings.DATABASE_WORKER_URL), connection.cursor() as cursor:
        assert not connection.in_atomic_block
        cursor.execute("SELECT current_user, current_database()")
        assert cursor.fetchone() == (ROLES.worker, "test_recollect")
    assert connection.in_atomic_block
    assert connection.connection is kept


def test_a_table_is_isolated_by_one_line_and_released_by_its_reverse():
    operation = isolate("notes")
    assert operation.sql[0] == "ALTER TABLE notes ENABLE ROW LEVEL SECURITY"
    assert not any("worker" in statement or "staff" in statement for statement in operation.sql)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE notes (id int, user_id bigint)")
        cursor.execute("INSERT INTO notes VALUES (1, 1), (2, 2)")
        for statement in operation.sql:
            cursor.execute(statement)
        with as_the_application():
            cursor.execute("SELECT set_config('app.user_id', '2', true)")
            cursor.execute("SELECT id FROM notes")
            assert cursor.fetchall() == [(2,)]
        for statement in operation.reverse_sql:
            cursor.execute(statement)
        cursor.execute("SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = 'notes'::regclass")
        assert cursor.fetchone() == (False, False)


# -- The policies of bound callers, after tables were made anew ---------------------------------------------------------

has_bound_callers = pytest.mark.skipif(bool(cluster_urls()), reason="A cluster has no policies for them.")


def bound_tables():
    """The tables that have the policy, if the role may read this table without one."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'intake_chat_preferences', 'SELECT')", [ROLES.bound])
        (may_read,) = cursor.fetchone()
        cursor.execute("SELECT tablename FROM pg_policies WHERE policyname = 'bound'")
        return {name for (name,) in cursor.fetchall()} if may_read else set()


@has_bound_callers
@pytest.mark.parametrize(
    "lost",
    ["DROP POLICY bound ON memory_proposals", "REVOKE ALL ON intake_chat_preferences FROM {role}"],
    ids=["policy", "right"],
)
def test_a_policy_or_right_that_a_new_table_lacks_is_applied_and_no_other_time(lost):
    with connection.cursor() as cursor:
        cursor.execute(lost.format(role=ROLES.bound))
    assert bound_tables() != BOUND.keys()
    apply_bound_policies()
    assert bound_tables() == BOUND.keys()
    with CaptureQueriesContext(connection) as asked:
        apply_bound_policies()
    assert not [query["sql"] for query in asked if "CREATE POLICY" in query["sql"]]


@pytest.mark.medium
@has_bound_callers
@pytest.mark.django_db(transaction=True)
def test_a_migration_that_is_undone_and_applied_again_leaves_the_policies():
    call_command("migrate", "memory", "0005", verbosity=0, interactive=False)
    without = bound_tables()
    call_command("migrate", "memory", verbosity=0, interactive=False)
    assert without == BOUND.keys() - {"memory_proposals"}
    assert bound_tables() == BOUND.keys()
