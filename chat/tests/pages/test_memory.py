"""MEMORY.md in the browser: kept to the last blank line, and of two who write at once the second is shown both."""

import pytest

from chat.tests.pages.pages import (
    EDIT,
    EDIT_MEMORY,
    HOSTILE,
    LOG,
    MEMORY,
    content_of,
    page_of,
    send,
    state_on,
    text_on,
)
from core.errors import NotFound
from intake.tests.factories import NOW
from memory import documents
from memory.models import Embedding
from memory.models.documents import MAX_DOCUMENT_LENGTH

pytestmark = pytest.mark.django_db


def test_memory_is_written_read_again_and_indexed(client, alice):
    page = page_of(client, EDIT_MEMORY)
    assert text_on(page) == ""
    assert send(client, EDIT_MEMORY, content="- No nuts\r\n- Lives in Lisbon", state=state_on(page)) == MEMORY
    assert content_of(alice) == "- No nuts\n- Lives in Lisbon"
    page = page_of(client, EDIT_MEMORY)
    assert "Saved." in page
    assert text_on(page) == "- No nuts\n- Lives in Lisbon"
    send(client, EDIT_MEMORY, content="- No nuts", state=state_on(page))
    assert content_of(alice) == "- No nuts"
    assert Embedding.objects.for_user(alice).filter(corpus="memory").exists()


def test_what_is_written_is_kept_to_the_last_blank_line(client, alice):
    text = "\n\n  indented\n\ttabbed  \n\n"
    send(client, EDIT_MEMORY, content=text, state="")
    page = page_of(client, EDIT_MEMORY)
    assert text_on(page) == text
    send(client, EDIT_MEMORY, content=text_on(page).replace("\n", "\r\n"), state=state_on(page))
    assert content_of(alice) == text


def test_memory_can_be_emptied(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    send(client, EDIT_MEMORY, content="", state=state_on(page_of(client, EDIT_MEMORY)))
    assert content_of(alice) == ""


def test_of_two_who_read_the_same_the_second_is_shown_both_and_loses_nothing(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    state = state_on(page_of(client, EDIT_MEMORY))
    documents.append(user=alice, day=None, text="- Plays the cello", now=NOW)
    page = send(client, EDIT_MEMORY, status=409, content="- No nuts, no fish", state=state)
    assert "Changed elsewhere" in page
    assert text_on(page) == "- No nuts, no fish"
    assert "- No nuts- Plays the cello" in page.replace("\n", "")
    assert content_of(alice) == "- No nuts\n- Plays the cello\n"
    assert f'action="{EDIT_MEMORY}"' in page
    send(client, EDIT_MEMORY, content="- No nuts, no fish\n- Plays the cello", state=state_on(page))
    assert content_of(alice) == "- No nuts, no fish\n- Plays the cello"


def test_of_two_who_begin_it_at_once_the_second_is_shown_both(client, alice):
    state = state_on(page_of(client, EDIT_MEMORY))
    documents.create(user=alice, day=None, content="The first", now=NOW)
    page = send(client, EDIT_MEMORY, status=409, content="The second", state=state)
    assert text_on(page) == "The second"
    assert "The first" in page
    assert content_of(alice) == "The first"


def test_what_was_deleted_meanwhile_can_be_written_again(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    state = state_on(page_of(client, EDIT_MEMORY))
    documents.delete(user=alice, day=None, expected=None)
    page = send(client, EDIT_MEMORY, status=409, content="- Nuts", state=state)
    assert "Deleted elsewhere" in page
    send(client, EDIT_MEMORY, content=text_on(page), state=state_on(page))
    assert content_of(alice) == "- Nuts"


def test_who_wrote_the_same_words_is_told_of_no_conflict(client, alice):
    state = state_on(page_of(client, EDIT_MEMORY))
    documents.create(user=alice, day=None, content="The same", now=NOW)
    assert send(client, EDIT_MEMORY, content="The same", state=state) == MEMORY


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("x" * (MAX_DOCUMENT_LENGTH + 1), "At most 500,000 characters; this has 500,001."),
        ("a\0b", "A text cannot have a NUL character"),
    ],
)
def test_what_cannot_be_kept_is_said_and_nothing_typed_is_lost(client, alice, content, sentence):
    page = send(client, EDIT_MEMORY, status=400, content=content, state="")
    assert sentence in page
    assert text_on(page) == content
    with pytest.raises(NotFound):
        documents.read(user=alice, day=None)


@pytest.mark.extended
def test_the_longest_document_fits_through_the_form_in_any_script(client, alice):
    content = "夢" * MAX_DOCUMENT_LENGTH
    send(client, EDIT_MEMORY, content=content, state="")
    assert content_of(alice) == content


def test_markup_in_a_document_stays_text(client, alice):
    send(client, EDIT_MEMORY, content=HOSTILE, state="")
    page = page_of(client, EDIT_MEMORY)
    assert text_on(page) == HOSTILE
    assert "<script>alert" not in page
    send(client, EDIT, content=HOSTILE, state="")
    page = page_of(client, LOG)
    assert "<script>alert" not in page
    assert "<img src=x" not in page


# -- A project's own --------------------------------------------------------------------------------------------------

OF_GARDEN = f"{MEMORY}?project=Garden"


def test_the_page_says_whose_memory_it_is_and_writes_that_one(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    page = page_of(client, MEMORY, project="Garden")
    assert "<title>About me · Garden · Recollect</title>" in page
    assert '<h1>What always holds <span class="chip chip-project" dir="auto">Garden</span></h1>' in page
    assert f'href="{EDIT_MEMORY}?project=Garden"' in page and "Who I am" not in page
    page = page_of(client, EDIT_MEMORY, project="Garden")
    assert text_on(page) == "" and f'action="{EDIT_MEMORY}?project=Garden"' in page
    assert send(client, f"{EDIT_MEMORY}?project=Garden", content="- Clay soil", state=state_on(page)) == OF_GARDEN
    page = page_of(client, MEMORY, project="Garden")
    assert "Clay soil" in page and "No nuts" not in page
    assert f'href="{MEMORY}history/?project=Garden"' in page
    assert content_of(alice) == "- No nuts"


def test_the_general_memory_leads_to_those_of_projects(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    documents.create(user=alice, day=None, project="<b>", content="- Clay soil", now=NOW)
    page = page_of(client, MEMORY)
    assert f'href="{MEMORY}?project=%3Cb%3E"' in page and "&lt;b&gt;" in page and "<b>" not in page
    assert "<h2>What always holds</h2>" in page


def test_a_conflict_in_a_projects_memory_stays_there(client, alice):
    documents.create(user=alice, day=None, project="Garden", content="- Clay", now=NOW)
    state = state_on(page_of(client, EDIT_MEMORY, project="Garden"))
    documents.append(user=alice, day=None, project="Garden", text="- Beans", now=NOW)
    page = send(client, f"{EDIT_MEMORY}?project=Garden", status=409, content="- Sand", state=state)
    assert "- Clay" in page and f'action="{EDIT_MEMORY}?project=Garden"' in page


def test_an_earlier_version_of_a_projects_memory_comes_back(client, alice):
    documents.create(user=alice, day=None, project="Garden", content="- Clay", now=NOW)
    documents.replace(user=alice, day=None, project="Garden", content="- Sand", expected=None, now=NOW)
    history = f"{MEMORY}history/"
    page = page_of(client, history, project="Garden")
    assert 'href="?project=Garden&amp;version=1"' in page
    page = page_of(client, history, project="Garden", version="1")
    assert send(client, f"{history}?project=Garden&version=1", state=state_on(page)) == OF_GARDEN
    assert documents.read(user=alice, day=None, project="Garden").content == "- Clay"


@pytest.mark.parametrize("project", ["x" * 201, "\0"])
def test_what_can_be_no_project_has_no_memory(client, alice, project):
    page_of(client, MEMORY, status=404, project=project)
