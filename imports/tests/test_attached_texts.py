"""Texts that were attached in another product become files of their turns, and are found with the others."""

import pytest
from django.utils import timezone

from core.ids import time_of_id
from imports.reading.items import ImportedFile
from imports.storing import files
from imports.tests.exports import SAID, message
from imports.tests.exports import a_conversation as conversation_of
from imports.tests.test_writing import bring
from intake.attachments import services as attachments
from intake.chats.deleting import delete_conversation
from intake.models import Attachment, AttachmentPiece, AttachmentText, Conversation, Turn
from intake.tests.factories import a_person, caller_for
from memory.models import Corpus, IndexedText
from memory.search.history import HistoryRequest, search_history

pytestmark = pytest.mark.django_db

PASTED = (("lease.pdf", "The deposit is paid back within six weeks."), ("notes.md", "# Garden\n\nThe roses."))


@pytest.fixture
def person():
    return a_person()


def a_chat(*texts):
    return conversation_of(
        messages=[
            message(
                "q",
                "user",
                "Please read this",
                attachments=tuple(name for name, _ in texts),
                files=tuple(ImportedFile(name=name, text=text) for name, text in texts),
            ),
            message("a", "assistant", "I did.", parent="q"),
        ]
    )


def test_an_attached_text_is_a_file_of_its_turn(person):
    bring(person, a_chat(*PASTED))
    turn = Turn.objects.get()
    assert turn.attachment_count == 2
    kept = attachments.attachments_of([turn])[turn.pk]
    assert [(each.name, each.kind, each.state) for each in kept] == [
        ("lease.pdf.txt", "imported", "read"),
        ("notes.md", "imported", "read"),
    ]
    assert attachments.bytes_of(kept[0]) == PASTED[0][1].encode()
    assert turn.tool_calls == []


def test_it_is_found_as_of_the_time_when_it_was_attached(person):
    bring(person, a_chat(*PASTED))
    (first, *_) = search_history(HistoryRequest(query="deposit paid back"), user=person, now=timezone.now()).results
    assert (first.reference.file, first.reference.day) == ("lease.pdf.txt", person.local_time(SAID).date())
    assert abs(time_of_id(first.reference.attachment_id) - Turn.objects.get().said_at).total_seconds() < 1
    assert IndexedText.objects.in_corpus(Corpus.ATTACHMENT).count() == 2


def test_importing_it_again_adds_nothing(person):
    bring(person, a_chat(*PASTED))
    bring(person, a_chat(*PASTED))
    assert (Attachment.objects.count(), AttachmentText.objects.count(), AttachmentPiece.objects.count()) == (2, 2, 2)


def test_nothing_of_it_is_left_when_its_chat_is_deleted(person):
    bring(person, a_chat(*PASTED))
    delete_conversation(caller=caller_for(person), conversation_id=Conversation.objects.get().pk)
    assert not (Attachment.objects.exists() or AttachmentText.objects.exists() or AttachmentPiece.objects.exists())
    assert not IndexedText.objects.exists()


def test_what_does_not_fit_a_quota_stays_folded_in_its_turn(person, settings):
    settings.QUOTA_FILE_BYTES = 30
    bring(person, a_chat(*PASTED))
    turn = Turn.objects.get()
    assert turn.attachment_count == 1
    assert turn.tool_calls[-1] == {"id": "imported-text-1", "name": "attachment", "input": {"text": PASTED[0][1]}}
    assert AttachmentText.objects.get().text == PASTED[1][1]


def test_beyond_ten_files_the_others_stay_folded(person, monkeypatch):
    monkeypatch.setattr(files.attachments, "MOST_OF_A_MESSAGE", 1)
    bring(person, a_chat(*PASTED))
    assert Turn.objects.get().attachment_count == 1
    assert Turn.objects.get().tool_calls[-1]["input"] == {"text": PASTED[1][1]}
