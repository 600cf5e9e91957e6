"""How the database is emptied after a test that commits: nothing may be left for the next one."""

import threading
import time

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction

from intake.models import Conversation, Turn, User
from intake.tests.factories import a_person, a_turn
from testing.emptying import KEPT, empty
from testing.examiner import let_the_examiner_look

pytestmark = pytest.mark.django_db(transaction=True)


def tables_with_rows():
    with connection.cursor() as cursor:
        found = set()
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT EXISTS (SELECT FROM "{table}")')
            if cursor.fetchone()[0]:
                found.add(table)
        return found


def test_every_table_is_emptied_but_what_the_migrations_wrote():
    user = a_person()
    user.groups.add(Group.objects.create(name="Keepers"))
    user.user_permissions.add(Permission.objects.first())
    a_turn(user, "Something to be indexed")
    assert {"users", "users_groups", "intake_conversation_turns", "pending_terms", "embeddings"} <= tables_with_rows()
    types, permissions = ContentType.objects.count(), Permission.objects.count()
    empty(DEFAULT_DB_ALIAS)
    assert tables_with_rows() == KEPT | {"django_migrations"}
    assert (ContentType.objects.count(), Permission.objects.count()) == (types, permissions)


def test_a_transaction_that_is_still_writing_is_waited_for():
    has_written = threading.Event()

    def write():
        let_the_examiner_look()
        try:
            with transaction.atomic():
                Conversation.objects.create(title="late")
                has_written.set()
                time.sleep(0.3)
        finally:
            connections[DEFAULT_DB_ALIAS].close()

    thread = threading.Thread(target=write)
    thread.start()
    assert has_written.wait(5)
    empty(DEFAULT_DB_ALIAS)
    thread.join(5)
    assert not Conversation.objects.exists()


def test_the_next_test_finds_nothing_of_the_one_before():
    assert not (User.objects.exists() or Turn.objects.exists())
    a_turn(a_person(), "Left for the next")


def test_nor_does_the_one_before_of_the_next():
    assert not (User.objects.exists() or Turn.objects.exists())
    a_turn(a_person(), "Left for the next")
