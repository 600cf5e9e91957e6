"""Files are read by a worker, once, and indexed when a message has named them."""

import time
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from core import rate_limits
from core.isolation.acting import acting_as
from core.text import Sentence, in_language, restored
from intake.attachments import services
from intake.attachments.reading import Part, Reading, process
from intake.chats import deleting, temporary
from intake.chats.services import TurnRequest, create_turn
from intake.models import Attachment, AttachmentText, User
from intake.tests.attached import a_file, a_picture
from intake.tests.factories import a_person, a_visitor, caller_for
from memory import index, tasks
from memory.backends.embedders import FakeEmbedder
from memory.index import attachments
from memory.models import Corpus, Embedding, IndexedText
from memory.tests.attached import attach, read_all, say
from testing import files
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person("alice@example.com")


def indexed(**which):
    texts = IndexedText.objects.in_corpus(Corpus.ATTACHMENT).filter(**which)
    return sorted(texts.values_list("source_id", "chunk_index"))


def again(attachment):
    return Attachment.objects.get(pk=attachment.pk)


def test_a_file_is_read_into_texts_with_their_places(alice):
    attachment = attach(alice, files.pdf(["The lease ends in May.", "The rent is 900."]), "lease.pdf")
    assert (attachment.state, attachment.parts, attachment.error) == ("read", 2, None)
    assert attachment.places == [["page 1", 0], ["page 2", 1]]
    texts = AttachmentText.objects.filter(attachment=attachment).order_by("number")
    assert [(text.number, text.place, text.text) for text in texts] == [
        (0, "page 1", "The lease ends in May."),
        (1, "page 2", "The rent is 900."),
    ]


def test_a_file_of_a_message_is_indexed_when_it_is_read(alice):
    attachment = attach(alice, files.pdf(["The lease ends in May.", "The rent is 900."]), "lease.pdf")
    assert indexed() == [(attachment.pk, 0), (attachment.pk, 1)]
    with as_a_worker():
        index.embed_pending()
    rows = Embedding.objects.in_corpus(Corpus.ATTACHMENT)
    assert rows.count() == 2
    assert not rows.filter(vector=None).exists()


def test_a_file_that_no_message_names_is_read_and_not_indexed(alice):
    attachment = a_file(alice)
    read_all()
    assert (again(attachment).state, indexed()) == ("read", [])


def test_a_file_that_was_read_first_is_indexed_when_its_message_comes(alice):
    attachment = a_file(alice)
    read_all()
    say(alice, attachment)
    read_all()
    assert indexed() == [(attachment.pk, 0)]


def test_reading_and_indexing_twice_changes_nothing(alice):
    attach(alice, b"Milk, eggs, flour")
    before = list(IndexedText.objects.values_list("pk", flat=True)), AttachmentText.objects.count()
    read_all()
    assert (list(IndexedText.objects.values_list("pk", flat=True)), AttachmentText.objects.count()) == before


def test_the_files_of_visitors_and_of_temporary_chats_are_not_indexed(alice):
    attach(a_visitor(), b"a visitor's list")
    attach(alice, b"between us", temporary=True)
    assert indexed() == []


def test_the_files_of_a_visitor_are_indexed_after_registration():
    visitor = a_visitor()
    attachment = attach(visitor, b"a visitor's list")
    User.objects.filter(pk=visitor.pk).update(is_visitor=False, email="v@example.com")
    read_all()
    assert indexed() == [(attachment.pk, 0)]


def test_the_files_of_a_temporary_chat_are_indexed_when_it_is_kept(alice):
    attachment = attach(alice, b"between us", temporary=True)
    with acting_as(alice):
        temporary.keep(caller=caller_for(alice), conversation_id=attachment.conversation_id)
    read_all()
    assert indexed() == [(attachment.pk, 0)]


def test_the_files_of_another_version_of_a_message_are_indexed_too(alice):
    attachment = attach(alice, b"Milk, eggs, flour")
    with acting_as(alice):
        request = TurnRequest(conversation_id=attachment.conversation_id, edit=1, message="Otherwise")
        create_turn(request, caller=caller_for(alice), now=timezone.now())
    read_all()
    assert len(indexed()) == 2


def test_the_same_file_of_another_message_has_the_vectors_of_the_first(alice, monkeypatch):
    data = b"The lease ends in May.\n\nThe rent is 900."
    first = attach(alice, data, "lease.md")
    with as_a_worker():
        index.embed_pending()
    read = []
    embed = FakeEmbedder.embed_documents
    monkeypatch.setattr(FakeEmbedder, "embed_documents", lambda self, texts: read.extend(texts) or embed(self, texts))
    second, other = attach(alice, data, "again.md"), attach(a_person("bob@example.com"), data)
    with as_a_worker():
        index.embed_pending()
    # Another user's vectors are not shared.
    assert len([text for text in read if "lease" in text]) == 1
    rows = Embedding.objects.in_corpus(Corpus.ATTACHMENT).exclude(vector=None)
    mine = [list(rows.filter(source_id=each.pk).order_by("part").values_list("vector")) for each in (first, second)]
    assert mine[0] == mine[1] != []
    assert rows.filter(source_id=other.pk).exists()


def test_a_file_that_cannot_be_read_says_why(alice):
    attachment = attach(alice, files.encrypted_pdf(), "secret.pdf")
    assert (attachment.state, attachment.error) == ("unreadable", {"message": "The file is protected by a password."})
    assert indexed() == []


def test_a_reason_with_a_number_can_be_told_in_another_language(alice, monkeypatch):
    monkeypatch.setattr(process, "SECONDS", 1)
    monkeypatch.setattr(process, "_CHILD", [*process._CHILD[:-2], "-c", "import time; time.sleep(60)"])
    attachment = attach(alice, b"Milk", read=False)
    with as_a_worker():
        attachments.read_waiting(until=timezone.now())
    error = Attachment.objects.get(pk=attachment.pk).error
    assert in_language(restored(error, "message"), "de") == "Die Datei konnte nicht in 1 Sekunden gelesen werden."


def test_of_a_file_that_is_too_long_the_beginning_is_read_and_it_says_so(alice):
    attachment = a_file(alice)
    with as_a_worker():
        notes = [Sentence("Pages %(pages)s have no text: they may be pictures.", pages="2, 5")]
        attachments.store(attachment, Reading([Part("", "abc")], is_cut=True, notes=notes), now=timezone.now())
    assert again(attachment).state == "read"
    assert in_language(restored(again(attachment).error, "message"), "de") == (
        "Die Seiten 2, 5 enthalten keinen Text: Vielleicht sind es Bilder. Nur die ersten 3 Zeichen wurden gelesen."
    )


def test_a_picture_has_nothing_to_read(alice):
    attachment = attach(alice, a_picture(), "photo.png")
    assert (attachment.state, attachment.parts, indexed()) == ("read", 0, [])


def test_a_file_that_kills_its_worker_is_given_up_after_three_attempts(alice):
    attachment = a_file(alice)
    for _ in range(3):
        with as_a_worker():
            # The worker dies after this.
            assert attachments.claim(now=timezone.now()) is not None
            assert attachments.claim(now=timezone.now()) is None
        Attachment.objects.update(next_attempt_at=timezone.now())
    with as_a_worker():
        assert attachments.claim(now=timezone.now()) is None
    assert again(attachment).state == "unreadable"
    assert again(attachment).error == {"message": "The file could not be read."}


def test_users_take_turns_however_many_files_one_has(alice):
    bob = a_person("bob@example.com")
    hers = [a_file(alice, name=f"{number}.txt") for number in range(3)]
    his = a_file(bob)
    with as_a_worker():
        claimed = [attachments.claim(now=timezone.now()).pk for _ in range(4)]
    assert claimed.index(his.pk) < 2
    assert set(claimed) == {his.pk, *(each.pk for each in hers)}


def test_accounts_come_first_and_all_visitors_have_one_turn_together(alice):
    strangers = [a_file(a_visitor(), b"a" * 10) for _ in range(3)]
    hers = [a_file(alice, b"b" * 100 * number) for number in (3, 1, 2)]
    with as_a_worker():
        claimed = [attachments.claim(now=timezone.now()) for _ in range(4)]
        assert [each.pk for each in claimed[:3]] == [hers[1].pk, hers[2].pk, hers[0].pk]
        assert claimed[3].pk in {each.pk for each in strangers}
        assert attachments.claim(now=timezone.now()) is None
        attachments.store(claimed[3], Reading([Part("", "a")]), now=timezone.now())
        assert attachments.claim(now=timezone.now()) is not None


def test_an_address_whose_files_take_long_to_read_waits_behind_others(monkeypatch):
    first, second, third, honest = (a_file(a_visitor(), b"a" * size) for size in (1, 2, 3, 9))
    for file in (first, second, third):
        rate_limits.note_file_of_visitor(file.pk, address="192.0.2.66")
    rate_limits.note_file_of_visitor(honest.pk, address="192.0.2.1")
    monkeypatch.setattr(attachments, "read_safely", lambda *_: time.sleep(0.1) or Reading([Part("", "a")]))
    with as_a_worker():
        for expected in (first, honest, second, third):
            claimed = attachments.claim(now=timezone.now())
            assert claimed.pk == expected.pk
            attachments._read(claimed)
    assert rate_limits.seconds_of_reading([third.pk])[third.pk] >= 0.3


def test_a_file_that_was_deleted_while_it_was_read_leaves_nothing(alice):
    attachment = a_file(alice)
    with as_a_worker():
        claimed = attachments.claim(now=timezone.now())
    with acting_as(alice):
        services.remove_unclaimed(caller=caller_for(alice), attachment=attachment)
    with as_a_worker():
        attachments.store(claimed, Reading([Part("", "a")]), now=timezone.now())
    assert not AttachmentText.objects.exists()


@pytest.mark.parametrize("deletes", ["chat", "turn", "file"])
def test_nothing_of_a_deleted_file_is_left_in_the_index(alice, deletes):
    attachment = attach(alice, b"Milk, eggs, flour")
    other = attach(alice, b"Another list", "other.txt")
    caller, chat = caller_for(alice), attachment.conversation_id
    with acting_as(alice):
        if deletes == "chat":
            deleting.delete_conversation(caller=caller, conversation_id=chat)
        elif deletes == "turn":
            deleting.delete_turn(caller=caller, conversation_id=chat, turn_number=1)
        else:
            deleting.delete_attachment(caller=caller, attachment_id=str(attachment.pk))
    assert indexed() == [(other.pk, 0)]
    assert set(Embedding.objects.in_corpus(Corpus.ATTACHMENT).values_list("source_id", flat=True)) == {other.pk}
    assert list(AttachmentText.objects.values_list("attachment_id", flat=True)) == [other.pk]


def test_what_the_database_deleted_by_itself_is_swept_from_the_index(alice):
    attachment = attach(alice, b"Milk, eggs, flour")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM intake_conversation_turns WHERE conversation_id = %s", [attachment.conversation_id])
    assert indexed() == [(attachment.pk, 0)]
    with as_a_worker():
        attachments.forget_lost(alice.pk)
    assert indexed() == []


def test_a_change_of_the_rules_indexes_files_anew(alice):
    attachment = attach(alice, b"Milk, eggs, flour")
    Embedding.objects.all().delete()
    IndexedText.objects.all().delete()
    with as_a_worker():
        index.enqueue_missing(now=timezone.now())
    assert indexed() == [(attachment.pk, 0)]


def test_the_task_reads_and_indexes(alice):
    attachment = a_file(alice)
    say(alice, attachment)
    with as_a_worker():
        tasks.read_attachments()
    assert (again(attachment).state, indexed()) == ("read", [(attachment.pk, 0)])


def test_the_ids_of_files_tell_the_time_of_their_texts(alice):
    before = timezone.now()
    attachment = attach(alice, b"Milk")
    (text,) = IndexedText.objects.in_corpus(Corpus.ATTACHMENT)
    assert before - timedelta(milliseconds=1) <= text.said_at <= timezone.now()
    assert text.source_id == attachment.pk
