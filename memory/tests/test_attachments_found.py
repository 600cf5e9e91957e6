"""Passages of files are found by `search_history`, beside what was said, with their file and their place."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from core.isolation.acting import acting_as
from intake.chats import deleting
from intake.models import AttachmentText
from intake.tests.factories import a_person, a_turn, caller_for
from memory import index
from memory.backends.embedders import get_embedder
from memory.index import vectors
from memory.models import Corpus, IndexedText
from memory.search.history import HistoryRequest, HistoryScope, search_history
from memory.search.sources import ATTACHMENTS, Kind
from memory.tests.attached import attach, read_all
from testing import files
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

LEASE = ["The lease begins in June and the rent is 900 a month.", "The deposit of 1,800 is paid back within six weeks."]


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def search(user, query, **more):
    return search_history(HistoryRequest(query=query, **more), user=user, now=timezone.now())


def found(user, query, **more):
    return [each.reference for each in search(user, query, **more).results]


def embed():
    with as_a_worker():
        index.embed_pending()


def test_a_passage_is_found_with_its_file_its_page_and_its_message(alice):
    attachment = attach(alice, files.pdf(LEASE), "lease.pdf", message="Please read this")
    embed()
    first = search(alice, "when do I get the deposit back").results[0]
    reference = first.reference
    assert (reference.kind, reference.file, reference.place, reference.part) == (
        Kind.ATTACHMENT,
        "lease.pdf",
        "page 2",
        1,
    )
    assert (reference.attachment_id, reference.conversation_id) == (attachment.pk, attachment.conversation_id)
    assert (reference.turn_number, reference.session) == (1, "Please read this")
    assert "within six weeks" in first.excerpt.text


def test_a_passage_is_found_by_its_words_before_it_has_a_vector(alice):
    attach(alice, files.pdf(LEASE), "lease.pdf")
    history = search(alice, "deposit")
    assert history.results[0].reference.place == "page 2"
    assert history.pending == 3


def test_half_a_word_and_a_number_in_a_file_are_found(alice):
    attach(alice, b"Order AB-4711/x for the cellobow", "order.txt")
    assert found(alice, "AB-4711/x")[0].file == "order.txt"
    assert found(alice, "ellobo")[0].file == "order.txt"


def test_files_are_found_in_everything_and_in_their_own_scope_alone(alice):
    attach(alice, b"The deposit is paid back", "lease.txt", message="Hello")
    for scope in HistoryScope:
        kinds = {each.kind for each in found(alice, "deposit", scope=scope)}
        assert kinds == ({Kind.ATTACHMENT} if scope in (HistoryScope.ALL, HistoryScope.FILES) else set())


def test_nobody_finds_the_files_of_another(alice):
    attach(alice, b"The deposit is paid back", "lease.txt")
    assert found(a_person("bob@example.com"), "deposit") == []


@pytest.mark.medium
def test_what_was_said_is_ranked_as_without_the_files(alice):
    for number in range(12):
        a_turn(alice, f"The deposit for flat {number} is {number}00", "Noted, and the lease begins in June.")
    embed()

    def order():
        results = search(alice, "how much is the deposit for flat 7", max_results=50).results
        # Titles share their place in a set of five with files.
        return [(each.reference.turn_number, each.reference.session, round(each.relevance, 6)) for each in results
                if each.reference.kind == Kind.MESSAGE]  # fmt: skip

    text = "\n\n".join(f"The deposit of the flat in street {number} was paid" for number in range(900))
    attach(alice, text.encode(), "flats.txt", message="Hi", read=False)
    embed()
    before = order()
    read_all()
    embed()
    assert order() == before
    assert Kind.ATTACHMENT in {each.kind for each in found(alice, "deposit", max_results=50)}


def test_a_search_without_files_costs_no_more_statements(alice, monkeypatch):
    a_turn(alice, "The deposit is 900")
    embed()

    def statements():
        with CaptureQueriesContext(
            connection,
        ) as captured:
            search(alice, "deposit")
        return len(captured)

    with_files = statements()
    monkeypatch.setattr(ATTACHMENTS, "is_searched", lambda asked: False)
    assert with_files == statements()


def test_a_quotation_that_only_a_file_has_leaves_the_merely_near_out(alice):
    a_turn(alice, "We talked about a deposit")
    attach(alice, b"It is paid back within six weeks", "lease.txt", message="Hello")
    history = search(alice, '"within six weeks"')
    assert [each.reference.kind for each in history.results] == [Kind.ATTACHMENT]
    assert not (history.lacks_quotation or history.has_nothing_relevant or history.lacking)


def test_a_quotation_that_no_file_has_finds_no_file(alice):
    a_turn(alice, "It is paid back within six weeks")
    attach(alice, b"We talked about weeks and six of them", "lease.txt", message="Hello")
    assert {each.kind for each in found(alice, '"within six weeks"')} <= {Kind.MESSAGE, Kind.SESSION}


@pytest.mark.parametrize("query", ['deposit in:"Flat"', "deposit from:assistant"])
def test_no_file_is_in_a_titled_chat_or_an_answer(alice, query):
    a_turn(alice, "Flat", "The deposit is 900")
    attach(alice, b"The deposit is paid back", "lease.txt", message="Hello")
    assert Kind.ATTACHMENT not in {each.kind for each in found(alice, query)}


def test_a_word_can_be_excluded_from_files(alice):
    attach(alice, files.pdf(LEASE), "lease.pdf")
    assert [each.place for each in found(alice, "lease deposit rent -deposit") if each.file] == ["page 1"]


def test_a_copy_of_a_file_is_shown_once(alice):
    attach(alice, b"The deposit is paid back within six weeks", "lease.txt", message="One")
    attach(alice, b"The deposit is paid back within six weeks", "again.txt", message="Two")
    embed()
    assert len([each for each in found(alice, "deposit") if each.kind is Kind.ATTACHMENT]) == 1


def test_a_deleted_file_is_not_found(alice):
    attachment = attach(alice, b"The deposit is paid back", "lease.txt", message="Hello")
    with acting_as(alice):
        deleting.delete_conversation(caller=caller_for(alice), conversation_id=attachment.conversation_id)
    assert found(alice, "deposit") == []


def test_a_part_that_is_gone_while_it_is_searched_is_left_out(alice):
    attach(alice, files.pdf(LEASE), "lease.pdf")
    AttachmentText.objects.filter(number=1).delete()
    assert [each.place for each in found(alice, "deposit lease") if each.file] == ["page 1"]


def test_the_search_page_shows_a_file_with_its_page_and_opens_it_there(alice, client):
    attachment = attach(alice, files.pdf(LEASE), "lease.pdf", message="Please read this")
    embed()
    client.force_login(alice)
    page = client.get("/search/", {"q": "deposit paid back"}).text
    assert f'href="/c/{attachment.conversation_id}/?turn=1' in page
    assert f'href="/api/v1/attachments/{attachment.pk}/content#page=2"' in page
    assert '<span class="who">page 2</span>' in page
    german = client.get("/search/", {"q": "deposit paid back"}, headers={"accept-language": "de"}).text
    assert '<span class="who">Seite 2</span>' in german


def test_the_passages_of_one_file_are_one_card(alice, client):
    attach(alice, files.pdf([f"The deposit of flat {number} is paid back" for number in range(6)]), "flats.pdf")
    client.force_login(alice)
    page = client.get("/search/", {"q": "deposit"}).text
    first, *_ = page.split('<details class="more-from"')
    assert first.count(">flats.pdf</a></h2>") == 1
    assert "5 more passages here" in page


def test_the_palette_finds_files(alice, client):
    attach(alice, files.pdf(LEASE), "lease.pdf", message="Hello")
    client.force_login(alice)
    assert "lease.pdf" in client.get("/search/live/", {"q": "deposit"}).text


def test_files_are_neither_on_the_map_nor_in_the_timeline(alice, client):
    attach(alice, files.pdf(LEASE), "lease.pdf", message="Hello")
    embed()
    assert vectors.embedded_texts(alice.pk, model=get_embedder().name) == list(
        IndexedText.objects.in_corpus(Corpus.CHAT).values_list("pk", flat=True)
    )
    client.force_login(alice)
    assert len(client.get("/api/v1/memory/timeline/").json()["months"]) == 1
    for page in ("timeline", "map"):
        assert "lease.pdf" not in client.get(f"/memory/{page}/").text
