"""Earlier versions of documents in the browser: rendered, compared, gone back to; and logs that move to another day."""

import time
from datetime import date

import pytest
from django.urls import reverse

from chat.tests.pages.pages import DAY, EDIT_MEMORY, LOG, MEMORY, content_of, page_of, send, state_on
from intake.markdown.budget import budget
from intake.tests.factories import NOW
from memory import documents
from memory.documents import KEPT, difference
from memory.models import MemoryDocumentVersion

pytestmark = pytest.mark.django_db

HISTORY = reverse("memory:history_memory")
MOVE = reverse("memory:move_log", args=[DAY.isoformat()])


def test_memory_is_shown_as_it_reads_with_a_way_to_edit_it(client, alice):
    documents.create(user=alice, day=None, content="# Food\n\n**No** nuts", now=NOW)
    page = page_of(client, MEMORY)
    assert "<strong>No</strong> nuts" in page
    assert f'href="{EDIT_MEMORY}"' in page
    assert f'href="{HISTORY}"' in page
    assert "<textarea" not in page


@pytest.mark.medium
def test_what_was_written_over_is_compared_and_comes_back(client, alice):
    documents.create(user=alice, day=None, content="- No nuts\n- Lives in Lisbon", now=NOW)
    assert "This is the first version" in page_of(client, HISTORY)
    documents.append(user=alice, day=None, text="- Plays the cello", now=NOW)
    for content in ("- No nuts\n- Lives in Porto <b>", "Emptied by mistake"):
        send(client, EDIT_MEMORY, content=content, state=state_on(page_of(client, EDIT_MEMORY)))
    page = page_of(client, HISTORY)
    assert page.count("?version=") == 2, "lines that are added leave nothing behind"
    first = f"{HISTORY}?version=2"
    page = page_of(client, first)
    assert page.count("<del>") == 3
    assert page.count("<ins>") == 1
    assert "Porto &lt;b&gt;" in page_of(client, f"{HISTORY}?version=3")
    state = state_on(page)
    documents.append(user=alice, day=None, text="An agent's", now=NOW)
    page = send(client, first, status=409, state=state)
    assert "An agent&#x27;s" in page
    assert send(client, first, state=state_on(page)) == MEMORY
    assert content_of(alice) == "- No nuts\n- Lives in Lisbon\n- Plays the cello\n"
    newest = documents.list_versions(user=alice, document_id=documents.read(user=alice, day=None).id)[0]
    assert newest["length"] == len("Emptied by mistake\nAn agent's\n"), "going back loses nothing either"
    for wrong in ("9", "x", "-1", "9" * 30):
        page_of(client, f"{HISTORY}?version={wrong}", status=404)


@pytest.mark.medium
def test_the_latest_versions_are_kept_and_go_with_their_document(alice):
    documents.create(user=alice, day=DAY, content="0", now=NOW)
    for number in range(1, KEPT + 3):
        documents.replace(user=alice, day=DAY, content=str(number), expected=None, now=NOW)
    kept = MemoryDocumentVersion.objects.for_user(alice).order_by("version").values_list("content", flat=True)
    assert [*kept] == [str(number) for number in range(2, KEPT + 2)]
    documents.delete(user=alice, day=DAY, expected=None)
    assert not MemoryDocumentVersion.objects.exists()


def test_a_difference_shows_what_changed_and_little_around_it():
    before = "\n".join("abcdefghi")
    lines = [*difference(before, before.replace("f", "F"))]
    assert lines == [
        ("gap", ""),
        ("kept", "d"),
        ("kept", "e"),
        ("removed", "f"),
        ("added", "F"),
        ("kept", "g"),
        ("kept", "h"),
        ("gap", ""),
    ]
    assert [*difference(before, before)] == []
    # Cutting off what both have in common changes nothing that is shown.
    assert [*difference("same\n" * 9_000 + before, "same\n" * 9_000 + before.replace("f", "F"))] == lines


def hostile_versions(lines):
    """Each match that is found is one line at the beginning, and looking for it goes over all lines."""
    words = [str(number % 100) for number in range(lines)]
    return ["\n".join(f"{word}\n{sign}{at}" for at, word in enumerate(words)) for sign in "ab"]


def test_versions_whose_comparison_would_take_minutes_stand_side_by_side(client, alice):
    before, after = hostile_versions(3_000)
    documents.create(user=alice, day=None, content=before, now=NOW)
    documents.replace(user=alice, day=None, content=after, expected=None, now=NOW)
    begun = time.thread_time()
    page = page_of(client, f"{HISTORY}?version=1")
    assert "Too much has changed to compare it line by line" in page
    assert page.count('<pre class="diff"') == 2
    assert time.thread_time() - begun < 3


def test_a_comparison_ends_with_the_budget_of_its_page():
    before, after = hostile_versions(499)
    assert [*difference(before, after)]
    with budget(0.01), pytest.raises(TimeoutError):
        [*difference(before, after)]


def test_a_log_moves_to_another_day_and_is_found_there(client, alice):
    documents.create(user=alice, day=DAY, content="Saw the lighthouse", now=NOW)
    documents.replace(user=alice, day=DAY, content="Saw the lighthouse at dusk", expected=None, now=NOW)
    state = state_on(page_of(client, MOVE))
    assert "Choose a day" in send(client, MOVE, status=400, date="", state=state)
    assert "was changed since" in send(client, MOVE, status=409, date="2026-02-27", state="1-other")
    to = reverse("memory:log", args=["2026-02-27"])
    assert send(client, MOVE, date="2026-02-27", state=state) == to
    assert "Saw the lighthouse at dusk" in page_of(client, to)
    assert "Nothing is written down" in page_of(client, LOG)
    assert page_of(client, reverse("memory:history_log", args=["2026-02-27"])).count("?version=") == 1
    assert f'href="{to}"' in page_of(client, "/search/", q="lighthouse", to="2026-02-28")
    assert f'href="{to}"' not in page_of(client, "/search/", q="lighthouse", **{"from": "2026-02-28"})


def test_a_log_that_moves_to_a_day_with_a_log_goes_to_its_end(client, alice):
    other = date(2026, 2, 27)
    documents.create(user=alice, day=DAY, content="Second", now=NOW)
    documents.create(user=alice, day=other, content="First", now=NOW)
    send(client, MOVE, date=str(other), state=state_on(page_of(client, MOVE)))
    assert content_of(alice, other) == "First\nSecond\n"
    page_of(client, MOVE, status=404)
