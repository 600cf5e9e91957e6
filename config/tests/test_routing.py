"""On a cluster each query of the ORM names the person it is about, beside each of their tables; elsewhere nothing is added."""

import re

import pytest
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.models import Exists, OuterRef
from django.test.utils import CaptureQueriesContext

from config.database import base
from core.citus import routing
from core.isolation.acting import Caller, acting_as
from intake.models import Conversation, IdempotentAnswer, Turn
from intake.tests.factories import a_person, a_turn
from testing.cluster import cluster_urls

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def written(query):
    """The first statement that is sent to the database."""
    with CaptureQueriesContext(connection) as captured:
        query()
    return captured[0]["sql"]


def named(sql, user):
    return len(re.findall(rf'"user_id" = {user.pk}\b', sql))


@pytest.fixture
def set_cluster(monkeypatch):
    """Says whether this is one; the engine then chooses its compilers anew."""

    def set_cluster(*, is_one):
        database = connections[DEFAULT_DB_ALIAS]
        for module in (routing, base):
            monkeypatch.setattr(module, "is_cluster", lambda connection: is_one)
        monkeypatch.setattr(database, "ops", base.DatabaseOperations(database))

    return set_cluster


def queries(turn):
    latest = Turn.objects.filter(conversation=OuterRef("pk"))
    return {
        "a look-up by key": (lambda: Turn.objects.filter(pk=turn.pk).first(), 1),
        "a join": (lambda: list(Turn.objects.filter(conversation__title="T")), 2),
        "a row beside": (lambda: list(Turn.objects.select_related("conversation")), 2),
        "a subquery": (lambda: list(Conversation.objects.filter(Exists(latest))), 2),
        "a lock": (lambda: list(Turn.objects.select_for_update(of=("self",)).filter(pk=turn.pk)), 1),
        "a count": (Turn.objects.count, 1),
        "an update": (lambda: Turn.objects.filter(pk=turn.pk).update(error=None), 1),
        "a save": (lambda: turn.save(update_fields=["error"]), 1),
        "a deletion": (lambda: IdempotentAnswer.objects.filter(key="k").delete(), 1),
    }


NAMES = list(queries(None))


@pytest.mark.parametrize("name", NAMES)
def test_each_personal_table_of_a_query_is_compared_with_the_person_on_a_cluster(alice, set_cluster, name):
    set_cluster(is_one=True)
    query, tables = queries(a_turn(alice, "The roof"))[name]
    with acting_as(alice):
        assert named(written(query), alice) == tables


@pytest.mark.skipif(bool(cluster_urls()), reason="Citus refuses what is written for a single server.")
def test_nothing_is_added_on_a_single_server_nor_while_nobody_is_known(alice, set_cluster):
    query, _ = queries(a_turn(alice, "The roof"))["a join"]
    set_cluster(is_one=False)
    with acting_as(alice):
        assert named(written(query), alice) == 0
    set_cluster(is_one=True)
    assert named(written(query), alice) == 0
    with routing.about(alice.pk):
        assert named(written(query), alice) == 2


def test_a_caller_who_is_nobody_asks_one_node_for_rows_that_no_person_has(alice, set_cluster):
    turn = a_turn(alice, "The roof")
    set_cluster(is_one=True)
    with acting_as(Caller(user_id=None)):
        assert '"user_id" = 0' in written(lambda: Turn.objects.select_for_update().filter(pk=turn.pk).first())
