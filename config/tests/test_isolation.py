"""Isolation, twice: with either of the two taken away the other still refuses, at every endpoint; with both gone one leaks.

What is proved of rows is proved of every personal table: `rows_everywhere` has to know a new one, or a test says so.
"""

import json
from datetime import timedelta

import numpy as np
import pytest
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.test import Client
from django.utils import timezone

from config.tests.endpoints.house import files_of, let_in
from core.isolation import acting
from core.isolation.acting import ActingAsAnother, Caller, acting_as, acting_as_staff, change_for_each
from core.isolation.checks import personal_models
from imports.tests.factories import an_import
from intake.accounts import activity, visitors
from intake.chats import services
from intake.chats.idempotency import once
from intake.chats.services import Progress
from intake.chats.tree import conversation_path
from intake.models import (
    Activity,
    ActivityEntry,
    ChatPreferences,
    Conversation,
    KnownAnswer,
    PausedTurn,
    Project,
    ToolConsent,
    ToolLogin,
    ToolServer,
    Turn,
    User,
)
from intake.models.conversations import ConversationQuerySet, TurnQuerySet
from intake.tests.factories import NOW, a_person, a_turn, a_visitor, a_visitors_turn
from memory import documents, index, proposals, records
from memory.backends.embedders import get_embedder
from memory.index import segments, vectors
from memory.models import Corpus, Embedding, EmbeddingQuerySet, IndexedText
from memory.models.documents import Scope
from memory.tasks import close_abandoned_turns
from memory.tests.indexed import words
from memory.tests.overview.drawn import draw
from testing.cluster import cluster_urls
from testing.emptying import delete_past_signals
from testing.examiner import as_a_worker, as_the_application, take_policies_away

pytestmark = pytest.mark.django_db

PERSONAL = sorted(personal_models(), key=lambda model: model._meta.label)
# The web role may add to these and read them, and nothing else.
APPEND_ONLY = [ActivityEntry]
SECRET = "Rumpelstiltskin"


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def bob():
    return a_person("bob@example.com")


def rows_everywhere(*users):
    """A row of each person in every personal table; returns a turn, the last one's, that holds the secret."""
    turn_of = {}
    for user in users:
        turn = a_turn(user, f"My name is {SECRET}", f"Hello {SECRET}")
        turn_of[user.pk] = turn.pk
        for number in range(10):
            a_turn(user, f"Turn {number}")
    forgotten = [a_turn(user, "Forget this") for user in users]
    index.embed_pending()
    segments.flush()
    for user in users:
        draw(user)
    for user, gone in zip(users, forgotten, strict=True):
        with acting_as(user):
            # From a segment, so that it leaves a tombstone.
            Turn.objects.get(pk=gone.pk).delete()
            documents.append(user=user, day=None, text=f"I am {SECRET}", now=NOW)
            documents.replace(user=user, day=None, content=f"I was {SECRET}", expected=None, now=NOW)
            once(caller=Caller(user_id=user.pk), key="key", operation="any", data={}, run=dict, now=NOW)
            records.create(user=user, content=f"They are called {SECRET}", now=NOW)
            proposals.propose(user=user, drafts=[{"content": f"Call them {SECRET}"}], now=NOW)
            ChatPreferences.objects.create(user=user, how_to_answer=f"Call me {SECRET}")
            PausedTurn.objects.create(user=user, turn_id=turn_of[user.pk], calls={"a": SECRET}, state={}, until=NOW)
            ToolServer.objects.create(user=user, name=SECRET, address=f"https://{SECRET}.example")
            ToolConsent.objects.create(user=user, tool=SECRET, address="https://a.example", fingerprint=SECRET)
            ToolLogin.objects.create(user=user, address=f"https://{SECRET}.example", sealed=SECRET)
            KnownAnswer.objects.create(user=user, digest=SECRET, turn_id=1)
            Project.objects.create(user=user, name=SECRET)
        activity.note(user, Activity.LOGGED_IN)
        an_import(user, word=SECRET)
        files_of(user, SECRET)
        let_in(user, f"agent of {user.pk}")
    return turn


# Which refuses to move a row to somebody, or to keep one that is nobody's, before it asks a node.
BY_CITUS = "modifying the partition value|NULL in the partition column"


def refused(sql="", *, by=DatabaseError):
    """Within a savepoint, so that the test goes on."""
    return pytest.raises(by, match=f"{sql or 'permission denied|row-level security'}|{BY_CITUS}")


# -- Rows ---------------------------------------------------------------------------------------------------------------


def of_every_table(check, models=PERSONAL):
    """What is wrong at any of them. The rows are the same for all, and making them takes most of the time."""
    wrong = []
    for model in models:
        with transaction.atomic():
            try:
                check(model)
            except (AssertionError, pytest.fail.Exception, DatabaseError) as error:
                wrong.append(f"{model._meta.label}: {error}")
            transaction.set_rollback(True)
    return wrong


@pytest.mark.medium
def test_every_personal_table_shows_each_person_their_own_rows_and_nobody_any(alice, bob):
    rows_everywhere(alice, bob)
    visitor = a_visitor()

    def check(model):
        assert set(model.objects.values_list("user", flat=True)) == {alice.pk, bob.pk}, "rows_everywhere leaves it out"
        with as_the_application():
            assert not model.objects.exists()
        with acting_as(alice):
            assert set(model.objects.values_list("user", flat=True)) == {alice.pk}
        with acting_as(Caller(user_id=None)):
            assert not model.objects.exists()
        with acting_as(visitor):
            assert not model.objects.exists()

    assert of_every_table(check) == []


@pytest.mark.medium
def test_nobody_changes_deletes_or_takes_somebody_elses_rows_or_gives_away_their_own(alice, bob):
    rows_everywhere(alice, bob)

    def kept(model):
        # As himself: on a cluster no other role may look in the transaction in which the application's has written.
        with acting_as(bob):
            return model.objects.count()

    def check(model):
        before = kept(model)
        with acting_as(alice):
            if model not in APPEND_ONLY:
                assert model.objects.filter(user=bob).update(user=alice) == 0
                assert delete_rows_of(bob, model) == 0
            with refused(), transaction.atomic():
                model.objects.filter(user=alice).update(user=bob)
        assert kept(model) == before > 0

    assert of_every_table(check) == []


def test_what_is_wrong_at_one_table_is_said_with_its_name_and_the_others_are_tried_nevertheless():
    tried = []

    def check(model):
        tried.append(model)
        assert model is not PERSONAL[1], "it leaks"

    (wrong,) = of_every_table(check)
    assert wrong.startswith(f"{PERSONAL[1]._meta.label}: it leaks")
    assert tried == PERSONAL


def delete_rows_of(user, model):
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table} WHERE user_id = %s", [user.pk])
        return cursor.rowcount


@pytest.mark.parametrize("model", APPEND_ONLY, ids=lambda model: model._meta.label)
def test_what_is_noted_of_a_person_is_changed_and_removed_by_nobody_but_a_worker_after_a_year(alice, model):
    rows_everywhere(alice)
    model.objects.update(at=timezone.now() - timedelta(days=364))
    for person in (acting_as(alice), acting_as_staff()):
        with person:
            for write in (lambda: model.objects.update(count=2), lambda: delete_rows_of(alice, model)):
                with refused("permission denied"), transaction.atomic():
                    write()
    with as_a_worker():
        assert activity.remove_old() == 0
    model.objects.update(at=timezone.now() - timedelta(days=367))
    with as_a_worker():
        assert activity.remove_old() == 1
        with refused("permission denied"), transaction.atomic():
            model.objects.create(user=alice, what=Activity.LOGGED_IN)


def test_one_message_with_several_peoples_changes_makes_each_as_its_own_person(alice, bob):
    turns = [a_turn(user, "Hello", "Hi") for user in (alice, bob)]
    everything = "UPDATE intake_conversation_turns SET assistant_message = %s"
    with as_the_application():
        # Without a word of whose rows: it is the policies that choose.
        mine = [(user.pk, everything, [user.email]) for user in (alice, bob)]
        assert change_for_each(mine) == [1, 1]
        assert not Turn.objects.exists()
        with pytest.raises(ActingAsAnother), acting_as(alice):
            change_for_each(mine)
    for turn in turns:
        turn.refresh_from_db()
    assert [turn.assistant_message for turn in turns] == [alice.email, bob.email]


def test_on_a_cluster_no_message_has_a_setting_and_something_else(alice, bob, monkeypatch):
    """Citus sends the nodes the whole message that a setting stands in."""
    for user in (alice, bob):
        a_turn(user, "Hello", "Hi")
    mine = "UPDATE intake_conversation_turns SET assistant_message = %s WHERE user_id = %s"
    sent = []

    def recorded(execute, sql, params, many, context):
        sent.append(sql)
        return execute(sql, params, many, context)

    with as_the_application(), connection.execute_wrapper(recorded):
        monkeypatch.setattr(acting, "is_cluster", lambda connection: True)
        changes = [(user.pk, mine, [user.email, user.pk]) for user in (alice, bob)]
        assert change_for_each(changes) == [1, 1]
    assert sent.count(mine) == 2
    assert not [message for message in sent if "SET LOCAL" in message and ";" in message]


def test_nobody_says_something_in_somebody_elses_name(alice, bob):
    theirs = a_turn(bob, "Mine").conversation
    with acting_as(alice):
        with refused(), transaction.atomic():
            Conversation.objects.create(user=bob)
        with refused(), transaction.atomic():
            Conversation.objects.create(user=None)
        with refused(), transaction.atomic():
            Turn.objects.create(conversation=theirs, user=bob, turn_number=2, user_message="Forged")


def test_visitors_reach_their_own_rows_and_no_others(alice):
    mine, yours = a_visitor(), a_visitor()
    turn = a_visitors_turn(mine, "Hello")
    for other in (yours, alice, Caller(user_id=None)):
        with acting_as(other):
            assert not Conversation.objects.exists()
            assert not Turn.objects.exists()
            assert Turn.objects.filter(pk=turn.pk).update(user_message="Changed") == 0
    with acting_as(mine):
        assert Conversation.objects.get().turns.get() == turn
        with refused(), transaction.atomic():
            Turn.objects.update(user=alice)


def test_a_person_who_was_a_visitor_a_moment_ago_takes_what_was_theirs_and_nothing_else(alice):
    mine, yours = a_visitor(), a_visitor()
    turns = [a_visitors_turn(visitor, f"Hello from {visitor}") for visitor in (mine, yours)]
    with as_the_application():
        assert visitors.move_to_account(visitor=mine, user=alice) == 1
    with acting_as(alice):
        assert list(Turn.objects.all()) == turns[:1]
    with acting_as(yours):
        assert list(Turn.objects.all()) == turns[1:]
    assert list(User.objects.filter(is_visitor=True)) == [yours]


def test_a_policy_is_one_equality_without_a_subquery():
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename, qual, with_check FROM pg_policies WHERE policyname = 'person'")
        policies = cursor.fetchall()
    assert {table for table, *_ in policies} == {model._meta.db_table for model in PERSONAL}
    assert {condition for _, *conditions in policies for condition in conditions} == {
        "(user_id = (NULLIF(current_setting('app.user_id'::text, true), ''::text))::bigint)"
    }


# -- Endpoints --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bobs_secret(bob):
    return rows_everywhere(bob)


@pytest.fixture
def endpoints(alice, bobs_secret):
    """What a person can open in a browser or with a token; gives everything that comes back."""
    browser = Client()
    browser.force_login(alice)
    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=alice)
    agent = Client(headers={"authorization": f"Token {token}"})

    def open_all():
        pages = ["/", "/conversations/", conversation_path(bobs_secret.conversation_id, turn_number=1)]
        told = [browser.get(page).content.decode() for page in pages]
        for mode in ("semantic", "hybrid"):
            body = json.dumps({"query": SECRET, "mode": mode})
            answer = agent.post("/api/v1/tools/search_chat_history/", data=body, content_type="application/json")
            assert answer.status_code == 200
            told.append("".join(result["snippet"] for result in answer.json()["results"]))
        return "\n".join(told)

    return open_all


@pytest.fixture
def no_filters(monkeypatch):
    """The application forgets whose rows it asks for."""
    for queryset in (ConversationQuerySet, TurnQuerySet, EmbeddingQuerySet):
        for name in ("for_user", "for_caller"):
            if hasattr(queryset, name):
                monkeypatch.setattr(queryset, name, lambda self, *_: self.all())


@pytest.fixture
def no_policies(bobs_secret):
    take_policies_away()


def test_with_the_applications_filters_gone_the_database_refuses(no_filters, endpoints):
    assert SECRET not in endpoints()


def test_with_the_databases_policies_gone_the_application_refuses(no_policies, endpoints):
    assert SECRET not in endpoints()


def test_with_both_gone_the_endpoints_stand_open_so_that_these_tests_prove_something(
    no_policies, no_filters, endpoints
):
    assert SECRET in endpoints()


# -- Staff and workers ----------------------------------------------------------------------------------------------------


def test_staff_are_refused_every_table_that_holds_words(alice):
    rows_everywhere(alice)

    def check(model):
        with acting_as_staff(), refused("permission denied"), transaction.atomic():
            model.objects.exists()

    assert of_every_table(check, [model for model in PERSONAL if model is not Embedding]) == []


@pytest.mark.medium
def test_staff_see_everybodys_vectors_and_change_nothing_but_their_progress(alice, bob):
    rows_everywhere(alice, bob)
    with acting_as_staff():
        assert {row.user_id for row in Embedding.objects.exclude(vector=None)} == {alice.pk, bob.pk}
        assert Embedding.objects.update(vector=None, embedded_at=None, next_attempt_at=timezone.now()) >= 2
        for change in ({"user": alice}, {"source_id": "0190c0de-0000-7000-8000-000000000000"}, {"length": 0}):
            with refused("permission denied"), transaction.atomic():
                Embedding.objects.update(**change)
        with refused("permission denied"), transaction.atomic():
            delete_past_signals(Embedding.objects.all())


def test_a_worker_reads_what_it_indexes_and_can_change_no_word_of_it(alice):
    turn = a_turn(alice, "Original")
    with as_a_worker():
        assert Turn.objects.get().user_message == "Original"
        for change in ({"user_message": "Changed"}, {"assistant_message": "Changed"}, {"user": None}):
            with refused("permission denied"), transaction.atomic():
                Turn.objects.filter(pk=turn.pk).update(**change)
        with refused("permission denied"), transaction.atomic():
            delete_past_signals(Turn.objects.filter(pk=turn.pk))
        with refused("permission denied"), transaction.atomic():
            Embedding.objects.update(user=alice)


@pytest.mark.parametrize("label", ["intake.User", "intake.Session", "agent_tools.AccessToken"])
def test_a_worker_cannot_find_out_who_anybody_is(label):
    with as_a_worker(), refused("permission denied"), transaction.atomic():
        apps.get_model(label).objects.first()


def test_a_worker_removes_visitors_and_no_other_user(alice):
    a_visitors_turn(a_visitor(), "Hello")
    a_turn(alice, "Hello")
    with as_a_worker(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM users")
    assert list(User.objects.all()) == [alice]
    assert set(Conversation.objects.values_list("user", flat=True)) == {alice.pk}
    assert set(Turn.objects.values_list("user", flat=True)) == {alice.pk}


def test_a_worker_closes_and_indexes_what_a_dead_server_left_open(alice, monkeypatch):
    monkeypatch.setattr("intake.chats.running.LEASE", timedelta())
    caller = Caller(user_id=alice.pk)
    with acting_as(caller):
        turn = services.create_turn(services.TurnRequest(message="Anybody there?"), caller=caller, now=NOW)
    services.save_progress([Progress(turn_id=turn.pk, user_id=alice.pk, text="Half an")], now=NOW)
    with as_a_worker():
        close_abandoned_turns()
    turn.refresh_from_db()
    assert (turn.assistant_message, turn.status) == ("Half an", "interrupted")
    assert turn.error["detail"] == "Interrupted: the server was restarted."
    assert IndexedText.objects.filter(user=alice).exists()


def test_a_worker_indexes_what_changed_while_its_vector_was_made(alice):
    turn = a_turn(alice, "I adopted a cat")
    Turn.objects.filter(pk=turn.pk).update(user_message="I adopted a dog")
    index.embed_pending()
    assert set(words()) == {"adopt", "dog", "note"}
    assert Embedding.objects.get().state == "embedded"


# -- Acting -------------------------------------------------------------------------------------------------------------


def who():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('app.user_id', true)")
        name, user_id = cursor.fetchone()
    return name, user_id or ""


def test_acting_as_the_same_person_again_costs_nothing(alice, django_assert_num_queries):
    with acting_as(alice), django_assert_num_queries(0), acting_as(alice), acting_as(Caller(user_id=alice.pk)):
        pass


def test_acting_as_somebody_else_meanwhile_is_refused_and_the_first_stays_who_they_are(alice, bob):
    with acting_as(alice):
        for other in (bob, Caller(user_id=None)):
            with pytest.raises(ActingAsAnother), acting_as(other):
                pytest.fail("it went on")
        with pytest.raises(ActingAsAnother), acting_as_staff():
            pytest.fail("it went on")
        assert who() == (settings.DATABASE_ROLES.web, str(alice.pk))


def test_within_a_transaction_everything_is_as_before_once_it_is_over(alice):
    before = who()
    with acting_as(alice):
        assert who() == (settings.DATABASE_ROLES.web, str(alice.pk))
    assert who() == before
    with pytest.raises(ZeroDivisionError), acting_as(alice):
        raise ZeroDivisionError
    assert who() == before
    with acting_as_staff():
        assert who() == (settings.DATABASE_ROLES.staff, "")
    assert who() == before


def test_work_that_fails_is_undone(alice):
    with pytest.raises(ZeroDivisionError), acting_as(alice):
        Conversation.objects.create(user=alice)
        raise ZeroDivisionError
    assert not Conversation.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_goes_back_to_the_pool_carries_nothing(alice):
    """By the application's own login, in a thread of its own, as it is in a web process."""
    from concurrent.futures import ThreadPoolExecutor

    a_turn(alice, "Mine")

    def work():
        try:
            with acting_as(alice):
                used = connection.connection
                seen = [Turn.objects.count()]
            with pytest.raises(ZeroDivisionError), acting_as(alice):
                raise ZeroDivisionError
            seen += [Turn.objects.count(), who(), connection.connection is used]
            return seen
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(work).result() == [1, 0, (settings.DATABASE_ROLES.web, ""), True]


@pytest.mark.django_db(transaction=True)
def test_whom_a_transaction_that_could_not_begin_was_for_the_next_one_is_not(alice, monkeypatch):
    def away():
        raise OperationalError("The database is away.")

    with monkeypatch.context() as patched, pytest.raises(OperationalError):
        patched.setattr(connection, "close_if_health_check_failed", away)
        with acting_as(alice):
            pytest.fail("it went on")
    with transaction.atomic():
        assert who()[1] == ""


@pytest.mark.django_db(transaction=True)
def test_rows_are_locked_piece_by_piece_within_a_transaction(alice):
    turns = [a_turn(alice, f"Turn {number}").pk for number in range(3)]
    with acting_as(alice):
        locked = Turn.objects.select_for_update().order_by("pk").iterator(chunk_size=1)
        assert [turn.pk for turn in locked] == turns


@pytest.mark.parametrize("identity", ["", "abc", "1; DROP TABLE users", "99999999999999999999"])
def test_an_identity_that_is_none_shows_nothing(alice, identity):
    a_turn(alice, "Mine")
    with as_the_application(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.user_id', %s, true)", [identity])
        # On a cluster it does not reach the nodes.
        if identity and not cluster_urls():
            with pytest.raises(DatabaseError), transaction.atomic():
                Turn.objects.count()
        else:
            assert Turn.objects.count() == 0


def test_a_search_in_the_database_alone_finds_nothing_of_others(alice, bob):
    rows_everywhere(bob)
    vector = np.ones(384, dtype=np.float32)

    def found(**limits):
        scope = Scope(bob, (Corpus.CHAT,), **limits)
        return vectors.nearest(scope, vectors.Meaning(get_embedder(), vector), limit=50)[0]

    only = tuple(Conversation.objects.filter(user=bob).values_list("pk", flat=True))
    assert len(found()) == len(found(only=only)) == 11
    with acting_as(alice):
        assert found() == found(only=only) == []


# -- Keys ---------------------------------------------------------------------------------------------------------------

# A row may be from before there were owners: there `id` stays the key.
PERHAPS_WITHOUT_OWNER = {"intake_conversations", "intake_conversation_turns"}


def keys_of(model):
    """The columns of each key: primary ("p"), unique ("u") and foreign to another personal table ("f")."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT contype, array(SELECT attname FROM pg_attribute
                                   WHERE attrelid = conrelid AND attnum = ANY(conkey))::text[]
              FROM pg_constraint
             WHERE conrelid = %(table)s::regclass
               AND (contype IN ('p', 'u') OR contype = 'f' AND confrelid = ANY(%(personal)s::regclass[]))
            """,
            {"table": model._meta.db_table, "personal": [each._meta.db_table for each in PERSONAL]},
        )
        return [(kind, set(columns)) for kind, columns in cursor.fetchall()]


def test_every_key_of_a_personal_table_contains_the_user():
    def check(model):
        table = model._meta.db_table
        without = [(kind, columns) for kind, columns in keys_of(model) if "user_id" not in columns]
        may_be_nobodys = table in PERHAPS_WITHOUT_OWNER and not cluster_urls()
        assert without == ([("p", {"id"})] if may_be_nobodys else [])
        assert not may_be_nobodys or ("u", {"user_id", "id"}) in keys_of(model)

    assert of_every_table(check) == []


def test_no_personal_table_has_a_trigger_of_its_own():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
            "WHERE NOT tgisinternal AND relnamespace = 'public'::regnamespace"
        )
        assert cursor.fetchall() == []
