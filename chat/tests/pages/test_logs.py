"""Daily logs in the browser: begun, added to, edited, deleted and listed."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.urls import reverse
from django.utils import timezone

from chat.tests.pages.pages import (
    DAY,
    DELETE,
    EDIT,
    HOSTILE,
    LOG,
    LOGS,
    RECORDS,
    content_of,
    page_of,
    send,
    state_on,
    text_on,
)
from intake.tests.factories import NOW
from memory import documents
from memory.models import MemoryDocument
from memory.models.documents import MAX_DOCUMENT_LENGTH

pytestmark = pytest.mark.django_db


def test_a_log_is_begun_and_added_to(client, alice):
    page = page_of(client, LOG)
    assert "Nothing is written down for this day yet." in page
    assert send(client, LOG, text="- Met **Vera**") == LOG
    send(client, LOG, text="- Bought rice")
    assert content_of(alice, DAY) == "- Met **Vera**\n- Bought rice\n"
    page = page_of(client, LOG)
    assert "<strong>Vera</strong>" in page
    assert "Sunday, 1 March 2026" in page


def test_adding_never_conflicts_with_somebody_who_adds_meanwhile(client, alice):
    page_of(client, LOG)
    documents.append(user=alice, day=DAY, text="An agent's line", now=NOW)
    send(client, LOG, text="My line")
    assert content_of(alice, DAY) == "An agent's line\nMy line\n"


@pytest.mark.parametrize("text", ["", "  \r\n ", "a\0b"])
def test_what_cannot_be_added_is_said(client, alice, text):
    page = send(client, LOG, status=400, text=text)
    assert 'role="alert"' in page
    assert not documents.exists(user=alice, day=DAY)


def test_what_no_longer_fits_stays_in_its_field(client, alice):
    documents.create(user=alice, day=DAY, content="x", now=NOW)
    # Of the longest one nothing is indexed here.
    MemoryDocument.objects.update(content="x" * MAX_DOCUMENT_LENGTH)
    page = send(client, LOG, status=413, text="One more line")
    assert "nothing was appended" in page
    assert text_on(page, "text") == "One more line"


def test_a_log_is_edited_and_a_conflict_shows_both(client, alice):
    documents.create(user=alice, day=DAY, content="Met Vera", now=NOW)
    page = page_of(client, EDIT)
    assert text_on(page) == "Met Vera"
    documents.append(user=alice, day=DAY, text="Bought rice", now=NOW)
    page = send(client, EDIT, status=409, content="Met Vera and Ana", state=state_on(page))
    assert "Bought rice" in page
    assert f'action="{EDIT}"' in page
    assert send(client, EDIT, content="Met Vera and Ana\nBought rice", state=state_on(page)) == LOG
    assert content_of(alice, DAY) == "Met Vera and Ana\nBought rice"


def test_a_log_is_deleted_after_it_was_asked(client, alice):
    documents.create(user=alice, day=DAY, content="Met Vera", now=NOW)
    page = page_of(client, DELETE)
    assert "Delete the log of 1 March 2026?" in page
    assert documents.exists(user=alice, day=DAY)
    assert send(client, DELETE, state=state_on(page)) == LOGS
    assert not documents.exists(user=alice, day=DAY)
    assert "Log deleted." in page_of(client, LOGS)


def test_a_log_that_changed_since_it_was_looked_at_is_not_deleted(client, alice):
    documents.create(user=alice, day=DAY, content="Met Vera", now=NOW)
    state = state_on(page_of(client, DELETE))
    documents.append(user=alice, day=DAY, text="Bought rice", now=NOW)
    page = send(client, DELETE, status=409, state=state)
    assert "It was changed since you looked at it" in page
    assert "Bought rice" in page
    assert documents.exists(user=alice, day=DAY)
    send(client, DELETE, status=409)


def test_logs_are_listed_the_latest_first_a_page_at_a_time(client, alice):
    # The list reads no index.
    MemoryDocument.objects.bulk_create(
        MemoryDocument(user=alice, kind=MemoryDocument.Kind.DAILY_LOG, date=DAY - timedelta(days=number), content="xxx")
        for number in range(52)
    )
    page = page_of(client, LOGS)
    days = re.findall(r'class="row" href="/memory/logs/([^/]*)/"', page)
    assert days[0] == "2026-03-01"
    assert len(days) == 50
    page = page_of(client, LOGS, before=days[-1])
    assert re.findall(r'class="row" href="/memory/logs/([^/]*)/"', page) == ["2026-01-10", "2026-01-09"]
    assert "Earlier logs" not in page


def test_without_logs_there_is_the_way_to_todays(client, alice):
    alice.time_zone = "Pacific/Kiritimati"
    alice.save()
    with timezone.override("Pacific/Kiritimati"):
        today = timezone.localdate().isoformat()
    page = page_of(client, LOGS)
    assert "No logs yet" in page
    assert f'action="{reverse("memory:log", args=[today])}"' in page


def test_another_day_is_opened_by_its_date(client):
    response = client.get(LOGS, {"date": "2026-03-01"})
    assert (response.status_code, response["Location"]) == (302, LOG)


@pytest.mark.parametrize("typed", ["", "1.3.2026", "2026-02-30", HOSTILE])
def test_what_is_no_day_stays_as_it_was_typed(client, typed):
    page = page_of(client, LOGS, status=400, date=typed)
    assert 'role="alert"' in page
    assert "<script>alert" not in page
    assert f'name="date" value="{typed}"' in unescape(page)


@pytest.mark.parametrize("day", ["today", "2026-2-3", "20260301", "2026-02-30", "0001-01-01", "9999-12-31", "%00"])
def test_what_can_be_no_day_of_a_log_is_not_there(client, day):
    for path in (f"{LOGS}{day}/", f"{LOGS}{day}/edit/", f"{LOGS}{day}/delete/"):
        page_of(client, path, status=404)
        send(client, path, status=404, text="x", content="x", state="")


def test_a_place_in_the_list_that_is_none_is_not_there(client):
    page_of(client, LOGS, status=404, before="soon")
    page_of(client, RECORDS, status=404, after="soon")


def test_a_projects_journal_is_apart_and_keeps_its_project_in_every_link(client, alice):
    documents.create(user=alice, day=DAY, content="Met Vera", now=NOW)
    of_garden = f"{LOG}?project=Garden"
    assert send(client, of_garden, text="Sown beans") == of_garden
    page = page_of(client, LOG, project="Garden")
    assert "Sown beans" in page and "Met Vera" not in page and ">Garden</span></h1>" in page
    links = re.findall(r'class="button button-quiet button-small" href="([^"]*)"', page)
    assert links == [f"{LOG}{doing}/?project=Garden" for doing in ("edit", "history", "move", "delete")]
    page = page_of(client, LOGS, project="Garden")
    assert f'href="{of_garden}"' in page and "Sown beans" in page and "Met Vera" not in page
    assert 'name="project" value="Garden"' in page
    assert client.get(LOGS, {"project": "Garden", "date": "2026-03-02"})["Location"].endswith("03-02/?project=Garden")
    page = page_of(client, DELETE, project="Garden")
    assert f'href="{of_garden}"' in page
    assert send(client, f"{DELETE}?project=Garden", state=state_on(page)) == f"{LOGS}?project=Garden"
    assert documents.exists(user=alice, day=DAY) and not documents.exists(user=alice, day=DAY, project="Garden")
