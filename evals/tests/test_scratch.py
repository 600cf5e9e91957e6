import os
import signal
import threading
from urllib.parse import urlsplit

import environ
import psycopg
import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections

from evals import scratch
from evals.scratch import copied, database_url, scratch_database
from intake.models import User
from memory.index import writer

pytestmark = [pytest.mark.extended, pytest.mark.django_db]


@pytest.fixture
def empty(monkeypatch):
    """Leaves out the migrations, which take most of the time, where no table is needed."""
    monkeypatch.setattr(scratch, "call_command", lambda *args, **options: None)


def database_names():
    with connection.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        return {name for (name,) in cursor.fetchall()}


def current_database():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        return cursor.fetchone()[0]


def test_what_is_done_in_the_scratch_database_stays_there(copied_scratch):
    before = current_database()
    User.objects.create_user("resident@example.com")

    with scratch_database() as name:
        assert current_database() == name != before
        assert not User.objects.exists()
        User.objects.create_user("guest@example.com")

    assert current_database() == before
    assert [user.email for user in User.objects.all()] == ["resident@example.com"]
    assert name not in database_names()


def test_a_copy_stays_as_it_was_while_the_scratch_database_goes_on(copied_scratch):
    with scratch_database() as name:
        User.objects.create_user("first@example.com")
        with copied(name) as copy:
            User.objects.create_user("second@example.com")
            with copy.standing_in():
                assert [user.email for user in User.objects.all()] == ["first@example.com"]
                copy_name = current_database()
            assert User.objects.count() == 2
            assert copy_name in database_names()
        assert current_database() == name
        assert copy_name not in database_names()


def test_an_open_transaction_outlives_the_scratch_database(empty):
    assert connection.in_atomic_block

    with scratch_database():
        assert not connection.in_atomic_block

    assert connection.in_atomic_block


def test_it_is_dropped_when_the_work_fails(empty):
    with pytest.raises(ZeroDivisionError), scratch_database() as name:
        raise ZeroDivisionError

    assert name not in database_names()


def test_it_is_dropped_when_the_process_is_told_to_end(empty):
    with pytest.raises(SystemExit), scratch_database() as name:
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(5)

    assert name not in database_names()


def test_a_thread_started_meanwhile_finds_the_same_database_and_does_not_keep_it_open(empty):
    seen = []
    done = threading.Event()

    def look():
        seen.append(current_database())
        done.wait(10)
        connection.close()

    with scratch_database() as name:
        thread = threading.Thread(target=look)
        thread.start()
        while not seen:
            thread.join(0.01)

    done.set()
    thread.join()
    assert seen == [name]
    assert name not in database_names()


def test_the_pool_is_left_alone(empty):
    # Under pytest the connection may be of either kind; the scratch one is never from the pool.
    with scratch_database():
        assert connections["default"].pool is None


def test_two_runs_have_a_database_each_and_leave_each_others_alone():
    with scratch._made() as first, scratch._made() as second:
        assert first != second
        assert {first, second} <= database_names()

    assert not {first, second} & database_names()


def test_what_a_killed_run_left_behind_is_dropped_by_the_next():
    with scratch._server() as server:
        abandoned = scratch._prefix(server) + "0" * 12
        server.execute(f"CREATE DATABASE {abandoned}")

    with scratch._made():
        assert abandoned not in database_names()


def test_a_role_that_may_not_create_databases_is_told_what_to_do(monkeypatch):
    class Server:
        info = type("Info", (), {"user": "guest"})

        def execute(self, *args):
            raise psycopg.errors.InsufficientPrivilege

    with pytest.raises(scratch.CommandError, match="ALTER ROLE guest CREATEDB"):
        scratch._create(Server(), "anything", None)


def test_another_process_reaches_it_by_its_address(empty):
    with scratch_database() as name:
        parsed = environ.Env.db_url_config(database_url(name))
        options = {key: value for key, value in parsed["OPTIONS"].items() if value != ""}
        who = {"user": parsed["USER"], "password": parsed["PASSWORD"]}
        with psycopg.connect(dbname=parsed["NAME"], **who, **options) as other:
            assert other.execute("SELECT current_database()").fetchone() == (name,)


def test_an_address_survives_odd_passwords_and_socket_folders(settings):
    configured = connection.settings_dict
    odd = {**configured, "USER": "a b", "PASSWORD": "p@:/?#%", "HOST": "/run/my sockets", "PORT": "", "OPTIONS": {}}
    connection.settings_dict = odd
    try:
        url = database_url("scratch")
    finally:
        connection.settings_dict = configured

    parsed = environ.Env.db_url_config(url)
    assert (parsed["USER"], parsed["PASSWORD"], parsed["NAME"]) == ("a b", "p@:/?#%", "scratch")
    assert parsed["OPTIONS"] == {"host": "/run/my sockets"}
    assert urlsplit(url).scheme == "postgres"


def test_content_types_of_one_database_are_not_taken_for_the_others(copied_scratch):
    resident = ContentType.objects.get_for_model(User).pk

    with scratch_database():
        stored = ContentType.objects.filter(app_label="intake", model="user").values_list("pk", flat=True).get()
        assert ContentType.objects.get_for_model(User).pk == stored

    assert ContentType.objects.get_for_model(User).pk == resident


def test_workers_are_not_woken_for_rows_they_cannot_see(empty):
    before = writer.wake_worker

    with scratch_database():
        assert writer.wake_worker is not before

    assert writer.wake_worker is before
