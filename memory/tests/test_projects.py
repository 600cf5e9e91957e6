"""A search of one project finds all that is of it and nothing else; a session is left out of its own search."""

from datetime import timedelta

import numpy as np
import pytest

from core.errors import InvalidInput
from core.isolation.acting import acting_as
from intake.chats import temporary
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index, projects, records
from memory.backends.embedders import get_embedder
from memory.index import vectors as stored
from memory.index.vectors import Meaning
from memory.models import Corpus, Embedding
from memory.models.documents import Scope
from memory.search import SearchMode, search_chat_history
from memory.search.history import HistoryRequest, search_history
from memory.search.sources import Kind
from memory.tests.attached import attach
from memory.tests.vectors import by_brute_force, directions, fill, nearest

pytestmark = pytest.mark.django_db

QUERY = directions(1, seed=3)[0]
WORDS = "Which database holds the orders"


@pytest.fixture
def alice():
    return a_person()


def label(turn, project, **fields):
    Conversation.objects.filter(pk=turn.conversation_id).update(project=project, **fields)
    return turn


def a_project_among_others(user, *, others=60):
    """Two turns of the project, and many of another one that have more of the words."""
    for number in range(others):
        label(a_turn(user, f"{WORDS}, number {number}?", f"The orders are in database {number}."), "me/shop")
    wanted = a_turn(user, "Where do orders go?", "Into Postgres, a database.")
    label(wanted, "me/app")
    a_turn(user, "And who holds them?", "Nobody.", conversation=wanted.conversation)
    index.embed_pending()
    return wanted


def found_by(user, query=WORDS, **request):
    return search_history(HistoryRequest(query=query, **request), user=user, now=NOW).results


# -- The vectors ------------------------------------------------------------------------------------------------------


def two_sources(user):
    """One far from the query and one near to it."""
    far = directions(35, seed=5)
    near = QUERY + 0.02 * directions(202, seed=6)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    rows = fill(user, far), fill(user, near.astype(np.float32))
    return far, [each[0].source_id for each in rows]


@pytest.mark.parametrize("limit", [1, 5, 20, 35])
def test_the_nearest_of_some_sources_are_exactly_theirs(alice, limit):
    far, (wanted, other) = two_sources(alice)
    expected = by_brute_force(far, QUERY)[:limit]
    assert nearest(alice, QUERY, limit=limit, only=(wanted,)) == expected
    assert nearest(alice, QUERY, limit=limit, hidden=(other,)) == expected
    assert nearest(alice, QUERY, limit=limit, only=(wanted, other), hidden=(other,)) == expected


def test_the_days_count_beside_the_sources(alice):
    far, (wanted, other) = two_sources(alice)
    since, until = NOW + timedelta(hours=10), NOW + timedelta(hours=20)
    expected = [place for place in by_brute_force(far, QUERY) if 10 <= place < 20]
    assert nearest(alice, QUERY, limit=35, only=(wanted,), since=since, until=until) == expected
    assert nearest(alice, QUERY, limit=35, hidden=(other,), since=since, until=until) == expected


def test_no_source_at_all_has_nothing(alice):
    two_sources(alice)
    assert nearest(alice, QUERY, limit=5, only=()) == []


# -- The searches -----------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("has_bits", [True, False])
@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_search_of_a_project_finds_its_turns_below_many_others(alice, mode, has_bits):
    wanted = a_project_among_others(alice)
    if not has_bits:
        Embedding.objects.update(bits=None)
    found = search_chat_history(user=alice, query=WORDS, limit=5, mode=mode, project="me/app")
    assert {hit.key for hit in found.matches} <= {(wanted.conversation_id, 1), (wanted.conversation_id, 2)}
    assert wanted.conversation_id in {hit.key[0] for hit in found.matches}
    assert {hit.project for hit in found.matches} == {"me/app"}


@pytest.mark.medium
@pytest.mark.parametrize("mode", list(SearchMode))
@pytest.mark.parametrize("name", ["id", "external id"])
def test_a_session_is_left_out_of_its_own_search(alice, mode, name):
    own = a_turn(alice, WORDS, "In Postgres.")
    for number in range(40):
        a_turn(alice, WORDS, f"In Postgres, {number}.", conversation=own.conversation)
    other = a_turn(alice, "The database with the orders moved", "To a new server.")
    label(own, "", external_id="session-1")
    index.embed_pending()
    session = {"id": str(own.conversation_id), "external id": "session-1"}[name]
    found = search_chat_history(user=alice, query=WORDS, limit=5, mode=mode, exclude_session=session)
    assert [hit.key[0] for hit in found.matches] == [other.conversation_id]
    history = found_by(alice, exclude_session=session)
    assert {each.reference.conversation_id for each in history} == {other.conversation_id}


def test_an_unknown_session_leaves_nothing_out(alice):
    a_turn(alice, WORDS, "In Postgres.")
    index.embed_pending()
    for session in ("nothing like an id", "0190c0de-0000-7000-8000-000000000001"):
        assert search_chat_history(user=alice, query=WORDS, limit=5, exclude_session=session).matches


@pytest.mark.parametrize(
    "query",
    [
        WORDS,
        "rders",
        '"orders go"',
        "orders from:me",
        "orders -shop",
        'in:"where do orders go?" orders',
        "orders today",
    ],
)
def test_every_way_to_ask_stays_within_the_project(alice, query):
    wanted = a_project_among_others(alice, others=10)
    found = found_by(alice, query, project="me/app")
    assert {each.reference.conversation_id for each in found} == {wanted.conversation_id}
    assert {each.reference.project for each in found} == {"me/app"}


def test_titles_files_records_and_documents_are_of_the_project(alice):
    wanted = a_project_among_others(alice, others=5)
    inside, outside = (attach(alice, b"Orders: a database of them", name) for name in ("in.txt", "out.txt"))
    for file, project in ((inside, "me/app"), (outside, "me/shop")):
        Conversation.objects.filter(pk=file.conversation_id).update(project=project)
    with acting_as(alice):
        record = records.create(user=alice, content="Orders are in a database", project_id="me/app", now=NOW)
        for project in ("me/shop", ""):
            records.create(user=alice, content=f"Orders of {project} in a database", project_id=project, now=NOW)
        own = []
        for project in ("", "me/app", "me/shop"):
            for day in (None, NOW.date()):
                text = f"Orders of {project}: in which database? {day}"
                own.append(documents.append(user=alice, day=day, project=project, text=text, now=NOW).id)
    index.embed_pending()
    found = [each.reference for each in found_by(alice, "orders database", project="me/app", max_results=50)]
    assert {each.project for each in found} == {"me/app"}
    assert {each.record_id for each in found if each.record_id} == {record.id}
    assert {each.attachment_id for each in found if each.attachment_id} == {inside.pk}
    of_chats = {each.conversation_id for each in found if each.kind in (Kind.MESSAGE, Kind.SESSION)}
    assert wanted.conversation_id in of_chats <= {wanted.conversation_id, inside.conversation_id}
    assert {each.document_id for each in found if each.document_id} == set(own[2:4])


def test_an_open_search_leaves_out_other_projects_alone(alice):
    wanted = a_project_among_others(alice, others=5)
    plain = a_turn(alice, "Orders are in a database", "Yes.")
    with acting_as(alice):
        general = documents.append(user=alice, day=None, text="Orders: in which database?", now=NOW)
        documents.append(user=alice, day=None, project="me/shop", text="The shop's orders, a database", now=NOW)
        records.create(user=alice, content="Orders of the shop: a database", project_id="me/shop", now=NOW)
    index.embed_pending()
    found = [each.reference for each in found_by(alice, project="me/app", is_open=True, max_results=50)]
    assert {each.project for each in found} == {"me/app", ""}
    assert {plain.conversation_id, wanted.conversation_id} == {each.conversation_id for each in found} - {None}
    assert [each.document_id for each in found if each.document_id] == [general.id]


def test_a_project_is_the_callers_own(alice):
    bob = a_person("bob@example.com")
    label(a_turn(bob, WORDS, "Bob's"), "me/app")
    a_turn(alice, WORDS, "Alice's")
    index.embed_pending()
    assert found_by(alice, project="me/app") == []
    assert search_chat_history(user=alice, query=WORDS, limit=5, project="me/app").matches == []


@pytest.mark.parametrize("name", ["me/app", "https://github.com/me/app.git", "git@github.com:me/app", " me/app "])
def test_a_project_is_named_by_its_label_or_its_address(alice, name):
    wanted = a_project_among_others(alice, others=3)
    assert {each.reference.conversation_id for each in found_by(alice, project=name)} == {wanted.conversation_id}


@pytest.mark.parametrize("name", ["/", "me", "me/ap", "%", "ME/APP"])
def test_what_is_no_label_of_a_text_finds_nothing(alice, name):
    a_project_among_others(alice, others=3)
    assert found_by(alice, project=name) == []


def test_distances_are_measured_within_the_scope(alice):
    _, (wanted, other) = two_sources(alice)
    for limits in ({"only": (wanted,)}, {"hidden": (other,)}):
        scope = Scope(alice, (Corpus.CHAT,), **limits)
        _, unrelated, *_ = stored.distances(scope, Meaning(get_embedder(), QUERY), passages=30, hits=[])
        assert unrelated is not None


# -- Its documents ----------------------------------------------------------------------------------------------------


def test_a_folder_of_a_project_names_its_documents_too(alice):
    with acting_as(alice):
        projects.save_project(user=alice, name="Shop", labels=["me/shop"])
        for name in ("Shop", "me/shop", "https://github.com/me/shop.git", "/src/Shop"):
            assert temporary.project_named(name, user=alice) == "Shop"
        assert temporary.project_named("", user=alice) == ""
        for name in ("x" * 201, "-Shop", "\0"):
            with pytest.raises(InvalidInput):
                temporary.project_named(name, user=alice)


def test_the_documents_of_a_project_are_written_apart_from_the_general_ones(alice):
    day = NOW.date()
    with acting_as(alice):
        for project in ("", "Garden"):
            documents.append(user=alice, day=day, project=project, text=f"Log of {project}", now=NOW)
        state = documents.read(user=alice, day=day, project="Garden").state
        documents.replace(user=alice, day=day, project="Garden", content="Sown", expected=[state], now=NOW)
        documents.append(user=alice, day=day, project="Garden", text="Watered", now=NOW)
        documents.take_back(user=alice, day=day, project="Garden", text="Watered", at=None, now=NOW)
        moved = documents.move(
            user=alice, day=day, project="Garden", to=day - timedelta(days=1), expected=None, now=NOW
        )
        assert (moved.project, moved.content) == ("Garden", "Sown\n")
        assert documents.read(user=alice, day=day).content == "Log of \n"
        assert [each.date for each in documents.list_daily_logs(user=alice).logs] == [day]
        assert [each.date for each in documents.list_daily_logs(user=alice, project="Garden").logs] == [moved.date]
        documents.delete(user=alice, day=moved.date, project="Garden", expected=None)
        assert documents.exists(user=alice, day=day)
