"""The migration that gives conversations an owner, on rows that were there before it."""

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from core.isolation.connecting import connected_as_owner

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = [("intake", "0001_people_conversations_turns")]


@pytest.fixture
def old_models():
    """The models as they were before. Afterwards the command applies every migration again: only the command also gives
    tables that are made anew the policies of bound tokens.
    """
    with connected_as_owner():
        executor = MigrationExecutor(connection)
        executor.migrate(BEFORE)
        try:
            yield executor.loader.project_state(BEFORE).apps
        finally:
            call_command("migrate", verbosity=0, interactive=False)


def a_conversation(apps, session_key):
    conversation = apps.get_model("intake", "Conversation").objects.create(session_key=session_key, turn_count=1)
    turn = apps.get_model("intake", "Turn")
    turn.objects.create(conversation=conversation, turn_number=1, user_message="Hello", status="complete")
    return conversation.pk


def owners(conversation_id):
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT conversation.user_id, turn.user_id
              FROM intake_conversations conversation JOIN intake_conversation_turns turn
                ON turn.conversation_id = conversation.id
             WHERE conversation.id = %s
            """,
            [conversation_id],
        )
        return cursor.fetchone()


def test_linked_rows_get_their_owner_and_all_others_stay_without_one(old_models):
    people, links = old_models.get_model("intake", "User"), old_models.get_model("intake", "SessionLink")
    alice = people.objects.create(email="alice@example.com")
    gone = people.objects.create(email="gone@example.com")
    linked = a_conversation(old_models, "alices")
    unlinked = a_conversation(old_models, "nobodys")
    without_session = a_conversation(old_models, "")
    of_the_gone = a_conversation(old_models, "of the gone")
    shared = a_conversation(old_models, "shared")
    for key, user in [("alices", alice), ("of the gone", gone), ("shared", alice), ("shared", gone)]:
        links.objects.create(session_key=key, user=user)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM users WHERE id = %s", [gone.pk])

    MigrationExecutor(connection).migrate([("intake", "0002_conversations_user_id")])

    assert owners(linked) == (alice.pk, alice.pk)
    for other in (unlinked, without_session, of_the_gone, shared):
        assert owners(other) == (None, None)


def test_the_owners_index_has_the_name_the_specification_gives_it():
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_ic_user_id'")
        assert cursor.fetchone()[0].endswith("ON public.intake_conversations USING btree (user_id)")
