"""The page of all files: with where each was said, found by name, deleted; nobody else's, and none of a temporary chat."""

import pytest
from django.test import Client

from core.isolation.acting import acting_as
from intake.chats import services
from intake.chats.tree import conversation_path
from intake.models import Attachment, AttachmentPiece, Turn
from intake.tests.attached import PDF, a_file, a_picture
from intake.tests.factories import NOW, a_person, caller_for
from memory.tests.attached import read_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def browser(alice):
    client = Client()
    client.force_login(alice)
    return client


def say(user, message, *files, **more):
    with acting_as(user):
        ids = [each.pk for each in files]
        turn = services.create_turn(
            services.TurnRequest(message=message, attachments=ids, **more), caller=caller_for(user), now=NOW
        )
        answer = services.Answer(text="Noted.", status=Turn.Status.COMPLETE)
        return services.finish_turn(turn_id=turn.pk, answer=answer)


def test_files_are_listed_with_their_size_and_a_link_to_where_each_was_said(alice, browser):
    turn = say(alice, "About the flat", a_file(alice, PDF, "lease.pdf"), a_file(alice, a_picture(), "room.png"))
    assert "/thumbnail" not in browser.get("/memory/files/").text
    read_all()
    a_file(alice, b"not sent", "draft.txt")
    page = browser.get("/memory/files/").text
    assert "lease.pdf" in page
    assert f'href="{conversation_path(turn.conversation_id, turn_number=1)}"' in page
    assert "About the flat" in page
    assert page.count("/thumbnail") == 1
    assert "draft.txt" not in page


def test_a_temporary_chats_file_and_a_versions_second_one_are_not_listed(alice, browser):
    turn = say(alice, "Read", a_file(alice, PDF, "lease.pdf"))
    with acting_as(alice):
        again = services.TurnRequest(conversation_id=turn.conversation_id, regenerate=1)
        services.create_turn(again, caller=caller_for(alice), now=NOW)
    say(alice, "Between us", a_file(alice, b"x", "secret.txt"), temporary=True)
    page = browser.get("/memory/files/").text
    assert page.count('class="row-title"') == 1
    assert "secret.txt" not in page


def test_a_file_is_found_by_words_of_its_name_in_any_order(alice, browser):
    say(alice, "Two", a_file(alice, b"1", "Lease of the flat 2026.pdf"), a_file(alice, b"2", "prices%.csv"))
    for words, found in (("2026 lease", 1), ("%", 1), ("lease prices", 0)):
        assert browser.get("/memory/files/", {"q": words}).text.count('class="row-title"') == found


def test_a_deleted_file_is_gone_with_its_bytes_and_its_message_stays(alice, browser):
    turn = say(alice, "Read", a_file(alice, PDF, "lease.pdf"))
    file = Attachment.objects.get()
    asked = browser.get(f"/memory/files/{file.pk}/delete/")
    assert "lease.pdf" in asked.text
    browser.post(f"/memory/files/{file.pk}/delete/")
    assert not Attachment.objects.exists()
    assert not AttachmentPiece.objects.exists()
    assert Turn.objects.get().pk == turn.pk
    assert browser.get(f"/memory/files/{file.pk}/delete/").status_code == 404


def test_somebody_elses_file_is_as_if_it_did_not_exist(alice, browser):
    bob = a_person("bob@example.com")
    say(bob, "Mine", a_file(bob, PDF, "bobs.pdf"))
    file = Attachment.objects.get()
    assert "bobs.pdf" not in browser.get("/memory/files/").text
    assert browser.post(f"/memory/files/{file.pk}/delete/").status_code == 404
    assert Attachment.objects.exists()
