"""Files of messages: stored once, claimed by a message, copied with its versions, and gone with their turn."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from core.errors import InvalidInput, NotFound, TooLarge
from core.isolation.acting import acting_as
from intake.accounts import visitors
from intake.attachments import services as attachments
from intake.chats import deleting, retention, services, temporary
from intake.models import Attachment, AttachmentPiece, AttachmentText, Conversation, Turn, User
from intake.models.attachments import PIECE_BYTES
from intake.tests.attached import PDF, a_file, a_picture
from intake.tests.factories import NOW, a_person, a_visitor, caller_for
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def bob():
    return a_person("bob@example.com")


def rows():
    return Attachment.objects.count(), AttachmentPiece.objects.count(), AttachmentText.objects.count()


def say(user, message="", *files, **more):
    with acting_as(user):
        request = services.TurnRequest(message=message, attachments=[each.pk for each in files], **more)
        return services.create_turn(request, caller=caller_for(user), now=NOW)


def answered(turn, text="Noted."):
    answer = services.Answer(text=text, status=Turn.Status.COMPLETE)
    return services.finish_turn(turn_id=turn.pk, answer=answer, attempt=turn.attempt)


def read(attachment, *texts):
    """As a worker does."""
    for number, text in enumerate(texts):
        AttachmentText.objects.create(
            user=attachment.user, attachment=attachment, number=number, place=f"page {number + 1}", text=text
        )
    places = [[f"page {number + 1}", number] for number in range(len(texts))]
    mine = Attachment.objects.filter(pk=attachment.pk)
    mine.update(state=Attachment.State.READ, parts=len(texts), places=places)


def test_a_file_comes_back_byte_for_byte_in_pieces_of_its_own(alice):
    data = bytes(range(256)) * 2048 + b"the end"
    stored = a_file(alice, data, "raw.bin")
    assert (stored.size, stored.state, stored.conversation_id) == (len(data), "waiting", None)
    assert AttachmentPiece.objects.count() == 3 == -(-len(data) // PIECE_BYTES)
    assert attachments.bytes_of(stored) == data


def test_an_empty_file_is_a_file(alice):
    assert attachments.bytes_of(a_file(alice, b"", "empty.txt")) == b""


def test_the_same_content_is_stored_once_for_each_person(alice, bob):
    first, second = a_file(alice, name="a.txt"), a_file(alice, name="b.txt")
    a_file(bob, name="a.txt")
    assert first.sha256 == second.sha256
    assert sorted(AttachmentPiece.objects.values_list("user", flat=True)) == sorted([alice.pk, bob.pk])


@pytest.mark.parametrize(
    ("data", "name", "declared", "expected"),
    [
        (a_picture(), "photo.exe", "", "image/png"),
        (PDF, "x", "text/plain", "application/pdf"),
        (b"<script>", "page.html", "", "text/html"),
        (b"<svg/>", "a.svg", "", "image/svg+xml"),
        (b"not a picture", "a.png", "image/png", "application/octet-stream"),
        (b"a,b", "noname", "text/csv; charset=utf-8", "text/csv"),
        (b"?", "noname", "evil\r\nX: y", "application/octet-stream"),
    ],
)
def test_a_type_that_a_browser_shows_is_known_by_the_first_bytes_alone(alice, data, name, declared, expected):
    assert attachments.media_type_of(data[:64], name=name, declared=declared) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\plan.docx", "plan.docx"),
        ("a\u202egpj.exe", "agpj.exe"),
        ("x\x00\r\ny.txt", "xy.txt"),
        ("..", "file"),
        ("", "file"),
        ("ä" * 300 + ".pdf", "ä" * 251 + ".pdf"),
    ],
)
def test_a_name_is_the_last_part_of_a_path_and_keeps_its_ending(name, expected):
    assert attachments.clean_name(name) == expected


def test_a_file_above_the_limit_is_refused_in_words_and_stores_nothing(alice, settings):
    settings.ATTACHMENT_BYTES = 1000
    with pytest.raises(TooLarge, match="at most 1000 bytes"):
        a_file(alice, b"x" * 1001)
    assert rows() == (0, 0, 0)


def test_a_message_claims_its_files_in_its_order(alice):
    first, second = a_file(alice, name="1.txt"), a_file(alice, b"2", "2.txt")
    turn = say(alice, "Compare these", second, first)
    assert turn.attachment_count == 2
    assert [each.name for each in attachments.attachments_of([turn])[turn.pk]] == ["2.txt", "1.txt"]
    assert Turn.objects.get().user_message == "Compare these"


def test_a_message_may_be_files_without_words_and_titles_the_chat_by_the_first(alice):
    turn = say(alice, "  ", a_file(alice, PDF, "Lease 2026.pdf"))
    assert (turn.user_message, turn.conversation.title) == ("", "Lease 2026.pdf")
    with pytest.raises(InvalidInput, match="empty"):
        say(alice, "  ")


def test_a_file_of_another_person_or_of_another_message_or_of_none_sends_nothing(alice, bob):
    taken = a_file(alice)
    say(alice, "Mine", taken)
    missing = Attachment()
    free = a_file(alice, b"free")
    for wrong in (taken, a_file(bob), missing):
        with pytest.raises(NotFound):
            say(alice, "Once more", free, wrong)
    assert Turn.objects.count() == 1
    free.refresh_from_db()
    assert free.conversation_id is None
    with pytest.raises(InvalidInput):
        say(alice, "Twice", free, free)


def test_a_version_of_a_message_has_the_same_files_with_their_texts_and_no_second_bytes(alice):
    attached = a_file(alice)
    turn = say(alice, "Read this", attached)
    answered(turn)
    read(attached, "Milk", "Eggs")
    again = say(alice, None, conversation_id=turn.conversation_id, regenerate=1)
    answered(again)
    edited = say(alice, conversation_id=turn.conversation_id, edit=1)
    found = attachments.attachments_of([turn, again, edited])
    assert [[each.name for each in found[one.pk]] for one in (turn, again, edited)] == [["list.txt"]] * 3
    assert rows() == (3, 1, 6)
    assert len({each.pk for one in found.values() for each in one}) == 3
    assert [text.text for text in found[again.pk][0].texts.order_by("number")] == ["Milk", "Eggs"]


def test_the_same_words_with_a_file_do_not_take_up_a_failed_turn_without_one(alice):
    turn = say(alice, "Look")
    failed = services.Answer(text="", status=Turn.Status.FAILED)
    services.finish_turn(turn_id=turn.pk, answer=failed)
    second = say(alice, "Look", a_file(alice), conversation_id=turn.conversation_id)
    assert second.turn_number == 2


def test_a_deleted_chat_leaves_nothing_in_the_three_tables(alice):
    attached = a_file(alice)
    turn = say(alice, "Read this", attached)
    read(attached, "Milk")
    with acting_as(alice):
        deleting.delete_conversation(caller=caller_for(alice), conversation_id=turn.conversation_id)
    assert rows() == (0, 0, 0)


def test_a_deleted_turn_takes_its_bytes_unless_another_message_has_them(alice):
    turn = say(alice, "One", a_file(alice))
    answered(turn)
    other = say(alice, "Two", a_file(alice, name="copy.txt"), conversation_id=turn.conversation_id)
    where = {"caller": caller_for(alice), "conversation_id": turn.conversation_id}
    with acting_as(alice):
        deleting.delete_turn(**where, turn_number=1)
    assert rows() == (1, 1, 0)
    assert attachments.bytes_of(attachments.attachments_of([other])[other.pk][0]) == b"Milk, eggs, flour"
    with acting_as(alice):
        deleting.delete_turn(**where, turn_number=2)
    assert rows() == (0, 0, 0)


def test_chats_too_old_to_keep_and_a_whole_account_take_their_files(alice, settings):
    settings.RETENTION_DAYS = 1
    User.objects.update(retention_due_at=NOW)
    say(alice, "One", a_file(alice))
    retention.remove_old_turns(now=NOW + timedelta(days=3))
    assert rows() == (0, 0, 0)
    a_file(alice)
    deleted = deleting.delete_account(user=alice)
    assert (deleted["attachments"], deleted["attachment pieces"]) == (1, 1)
    assert rows() == (0, 0, 0)


def test_a_worker_removes_a_temporary_chat_with_the_bytes_of_its_files(alice):
    turn = say(alice, "Secret", a_file(alice), temporary=True)
    kept = say(alice, "Kept", a_file(alice, b"other"))
    with as_a_worker():
        assert temporary.remove_expired(now=NOW + timedelta(days=2)) == 1
    assert list(Turn.objects.all()) == [kept]
    assert turn.conversation_id not in Conversation.objects.values_list("pk", flat=True)
    assert rows() == (1, 1, 0)


def test_a_worker_removes_what_no_message_names_within_a_day_and_nothing_else(alice):
    old, new = a_file(alice, b"old", now=NOW), a_file(alice, b"new", now=NOW + timedelta(hours=30))
    turn = say(alice, "Named", a_file(alice, b"named", now=NOW))
    with as_a_worker():
        assert attachments.remove_forgotten(now=NOW + timedelta(hours=31)) == 1
    assert set(Attachment.objects.values_list("pk", flat=True)) == {
        new.pk,
        attachments.attachments_of([turn])[turn.pk][0].pk,
    }
    assert not AttachmentPiece.objects.filter(sha256=old.sha256).exists()


def test_a_visitors_unsent_file_is_removed_after_an_hour(alice):
    hers = a_file(alice, b"hers", now=timezone.now() - timedelta(minutes=61))
    for minutes in (59, 61):
        a_file(a_visitor(), b"theirs", now=timezone.now() - timedelta(minutes=minutes))
    with as_a_worker():
        assert attachments.remove_forgotten(now=timezone.now()) == 1
    assert Attachment.objects.count() == 2
    assert Attachment.objects.filter(pk=hers.pk).exists()


def test_one_file_of_a_message_is_deleted_and_the_message_stays(alice):
    first, second = a_file(alice), a_file(alice, b"2", "2.txt")
    turn = say(alice, "Two files", first, second)
    with acting_as(alice):
        deleting.delete_attachment(caller=caller_for(alice), attachment_id=str(first.pk))
    turn.refresh_from_db()
    assert turn.attachment_count == 1
    assert [each.pk for each in attachments.attachments_of([turn])[turn.pk]] == [second.pk]
    assert rows() == (1, 1, 0)


def test_a_visitor_who_logs_in_takes_the_files_along(alice):
    visitor = a_visitor()
    turn = say(visitor, "Before I registered", a_file(visitor, PDF, "lease.pdf"))
    waiting = a_file(visitor, b"not sent yet", "draft.txt")
    visitors.move_to_account(visitor=visitor, user=alice)
    assert set(Attachment.objects.values_list("name", "user")) == {("lease.pdf", alice.pk), ("draft.txt", alice.pk)}
    moved = attachments.attachments_of(Turn.objects.filter(user=alice))
    (files,) = moved.values()
    assert attachments.bytes_of(files[0]) == PDF
    waiting.refresh_from_db()
    assert attachments.bytes_of(waiting) == b"not sent yet"
    assert turn.conversation_id == files[0].conversation_id


def test_a_turn_without_files_asks_nothing_of_the_three_tables(alice):
    with CaptureQueriesContext(connection) as queries:
        turn = say(alice, "No file here")
        attachments.attachments_of([turn])
        answered(turn)
    assert [
        each["sql"] for each in queries if "attachment_pieces" in each["sql"] or 'FROM "attachments' in each["sql"]
    ] == []
