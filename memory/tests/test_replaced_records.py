"""Records that another one replaces, or whose last day is over: left out by every search, and brought back."""

from datetime import date, timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from core.errors import InvalidInput, NotFound
from core.ids import uuid7
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn
from memory import MemorySearchQuery, index, records, search_memory
from memory.models import Corpus, IndexedText, MemoryRecord
from memory.models.documents import Scope
from memory.search.history import HistoryRequest, search_history

pytestmark = pytest.mark.django_db

OAK, WALNUT, MAPLE = "The worktop is oak", "The worktop is walnut", "The worktop is maple"


@pytest.fixture
def alice():
    return a_person()


def note(user, content=OAK, *, replaces=None, now=NOW, type="fact", **facts):
    made = records.create(user=user, content=content, type=type, now=now, facts={"replaces": replaces, **facts})
    index.embed_pending()
    return made


def by_meaning(user, **narrowed):
    query = MemorySearchQuery(text="worktop", **narrowed)
    return {result.record.content for result in search_memory(query, user=user)}


def by_history(user, query="worktop", **options):
    found = search_history(HistoryRequest(query=query, **options), user=user, now=NOW)
    return {result.excerpt.text for result in found.results}


def listed(user, **options):
    return {record.content for record in records.list_records(user=user, **options).rows}


def everywhere(user, **options):
    """What each way of finding a record finds; it must be the same."""
    found = [
        by_meaning(user, **options),
        by_meaning(user, types=["fact"], **options),
        by_history(user, **options),
        by_history(user, '"worktop"', **options),
        by_history(user, "orktop", **options),
        by_history(user, scope="memory", **options),
        listed(user, **options),
    ]
    assert found == [found[0]] * len(found)
    return found[0]


def test_a_replaced_record_is_left_out_and_found_on_request(alice):
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id, now=NOW + timedelta(days=3))
    assert everywhere(alice) == {WALNUT}
    assert everywhere(alice, include_replaced=True) == {OAK, WALNUT}
    found = records.read(user=alice, record_id=oak.id)
    assert (found.replaced_by, found.replaced_on) == (walnut.id, NOW.date() + timedelta(days=3))
    (result,) = search_memory(MemorySearchQuery(text=OAK, include_replaced=True, top_k=1), user=alice)
    assert result.record.replaced_by == walnut.id


def test_a_search_makes_no_more_statements_with_replaced_records(alice):
    oak = note(alice)
    search = HistoryRequest(query="worktop")

    def statements():
        search_history(search, user=alice, now=NOW)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            search_history(search, user=alice, now=NOW)
        return len(queries)

    before = statements()
    note(alice, WALNUT, replaces=oak.id)
    assert statements() == before


def test_deleting_the_replacing_record_brings_the_replaced_one_back(alice):
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id)
    records.delete(user=alice, record_id=walnut.id)
    assert everywhere(alice) == {OAK}
    assert not records.read(user=alice, record_id=oak.id).is_past(records.today_of(alice))


def test_a_replaced_record_is_brought_back_beside_the_other(alice):
    oak = note(alice)
    note(alice, WALNUT, replaces=oak.id)
    records.bring_back(user=alice, record_id=oak.id, now=NOW)
    assert everywhere(alice) == {OAK, WALNUT}


def test_of_a_chain_the_last_one_is_found(alice):
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id)
    maple = note(alice, MAPLE, replaces=walnut.id)
    assert everywhere(alice) == {MAPLE}
    records.delete(user=alice, record_id=walnut.id)
    assert everywhere(alice) == {MAPLE}
    assert records.read(user=alice, record_id=maple.id).replaces == oak.id
    records.delete(user=alice, record_id=maple.id)
    assert everywhere(alice) == {OAK}


def test_a_circle_is_refused(alice):
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id)
    maple = note(alice, MAPLE, replaces=walnut.id)
    for replaced in (maple, oak):
        with pytest.raises(InvalidInput) as refusal:
            records.rewrite(user=alice, record_id=oak.id, facts={"replaces": replaced.id}, now=NOW)
        assert "cannot replace itself" in str(refusal.value.errors["replaces"][0])
    assert everywhere(alice) == {MAPLE}


def test_a_record_is_replaced_once_and_the_error_names_the_present_one(alice):
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id)
    with pytest.raises(InvalidInput) as refusal:
        note(alice, MAPLE, replaces=oak.id)
    assert str(walnut.id) in str(refusal.value.errors["replaces"][0])
    assert MemoryRecord.objects.count() == 2


def test_the_database_refuses_a_second_replacement(alice):
    oak = note(alice)
    note(alice, WALNUT, replaces=oak.id)
    with pytest.raises(IntegrityError), transaction.atomic():
        MemoryRecord.objects.create(user=alice, content=MAPLE, type="fact", replaces=oak.id)


def test_nobody_replaces_a_record_of_another_user(alice):
    bob = a_person("bob@example.com")
    oak = note(alice)
    for missing in (oak.id, uuid7()):
        with pytest.raises(NotFound):
            note(bob, WALNUT, replaces=missing)
    assert not MemoryRecord.objects.for_user(bob).exists()
    MemoryRecord.objects.create(user=bob, content=WALNUT, type="fact", replaces=oak.id)
    assert everywhere(alice) == {OAK}
    assert records.read(user=alice, record_id=oak.id).replaced_by is None


def test_a_record_is_found_until_its_last_day(alice):
    today = records.today_of(alice)
    note(alice, OAK, valid_until=today)
    note(alice, WALNUT, valid_until=today - timedelta(days=1))
    assert everywhere(alice) == {OAK}
    assert everywhere(alice, include_replaced=True) == {OAK, WALNUT}


def test_a_record_that_holds_later_replaces_on_its_first_day(alice):
    today = records.today_of(alice)
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id, valid_from=today + timedelta(days=1))
    assert everywhere(alice) == {OAK, WALNUT}
    records.rewrite(user=alice, record_id=walnut.id, facts={"valid_from": today}, now=NOW)
    assert everywhere(alice) == {WALNUT}
    assert records.read(user=alice, record_id=oak.id).replaced_on == today


def test_a_last_day_before_the_first_is_refused(alice):
    with pytest.raises(InvalidInput) as refusal:
        note(alice, valid_from=date(2026, 3, 2), valid_until=date(2026, 3, 1))
    assert list(refusal.value.errors) == ["validUntil"]


def test_a_record_is_replaced_by_an_existing_one_and_no_longer(alice):
    oak, walnut = note(alice), note(alice, WALNUT)
    records.rewrite(user=alice, record_id=walnut.id, facts={"replaces": oak.id}, now=NOW)
    assert everywhere(alice) == {WALNUT}
    records.rewrite(user=alice, record_id=walnut.id, facts={"replaces": None}, now=NOW)
    assert everywhere(alice) == {OAK, WALNUT}


def test_a_replaced_record_is_not_the_same_that_was_saved_before(alice):
    oak = note(alice)
    assert records.find_same(user=alice, content=OAK, project_id="").id == oak.id
    note(alice, WALNUT, replaces=oak.id)
    assert records.find_same(user=alice, content=OAK, project_id="") is None


def test_a_filter_of_the_index_leaves_out_what_is_replaced(alice):
    oak = note(alice)
    walnut = note(alice, WALNUT, replaces=oak.id)
    scope = Scope(alice, (Corpus.RECORD, Corpus.CHAT))
    assert [row.source_id for row in IndexedText.objects.in_scope(scope)] == [walnut.id]
    everything = Scope(alice, (Corpus.RECORD,), includes_replaced=True)
    assert IndexedText.objects.in_scope(everything).count() == 2


def test_only_a_todo_can_be_done(alice):
    with pytest.raises(InvalidInput) as refusal:
        note(alice, done=True)
    assert list(refusal.value.errors) == ["done"]


def test_the_list_is_narrowed_by_words_in_any_case(alice):
    note(alice)
    note(alice, "100% oak_wood")
    assert listed(alice, words="OAK worktop") == {OAK}
    assert listed(alice, words="100%") == {"100% oak_wood"}
    assert listed(alice, words="k_w") == {"100% oak_wood"}


def test_a_turn_has_the_record_that_was_kept_from_it(alice):
    chat = a_turn(alice, OAK).conversation_id
    older = note(alice, source_conversation=chat, source_turn=1)
    newer = note(alice, WALNUT, source_conversation=chat, source_turn=1, now=NOW + timedelta(days=1))
    bob = a_person("bob@example.com")
    MemoryRecord.objects.create(user=bob, content="x", type="fact", source_conversation=chat, source_turn=1)
    (found,) = Conversation.objects.for_user(alice).annotate(kept=records.kept_in_chat())
    assert [(each["turn"], each["id"]) for each in found.kept] == [(1, str(older.id)), (1, str(newer.id))]
    for missing in ({"source_turn": 2}, {}):
        with pytest.raises(NotFound):
            note(alice, source_conversation=chat, **missing)
    with pytest.raises(NotFound):
        note(bob, source_conversation=chat, source_turn=1)
