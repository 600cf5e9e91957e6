"""MEMORY.md, the daily logs and the records in the browser: what is kept, what is said when it is not, and whose it is."""

import re
from datetime import date, timedelta
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from intake.errors import NotFound
from intake.tests.factories import NOW, a_person
from memory import documents, records
from memory.models import Embedding
from memory.models.documents import MAX_DOCUMENT_LENGTH
from memory.models.records import MAX_RECORD_LENGTH

pytestmark = pytest.mark.django_db

MEMORY = reverse("memory:memory")
LOGS = reverse("memory:logs")
RECORDS = reverse("memory:records")
DAY = date(2026, 3, 1)
LOG = reverse("memory:log", args=["2026-03-01"])
EDIT = reverse("memory:edit_log", args=["2026-03-01"])
DELETE = reverse("memory:delete_log", args=["2026-03-01"])
HOSTILE = "<script>alert(1)</script></textarea><img src=x onerror=alert(1)>"


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def client(alice) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def page_of(client: Client, path: str, *, status: int = 200, **query) -> str:
    response = client.get(path, query)
    assert response.status_code == status
    return response.content.decode()


def send(client: Client, path: str, *, status: int = 302, **form) -> str:
    response = client.post(path, form)
    assert response.status_code == status
    return response["Location"] if status == 302 else response.content.decode()


def state_on(page: str) -> str:
    return re.search(r'name="state" value="([^"]*)"', page).group(1)


def text_on(page: str, name: str = "content") -> str:
    return unescape(re.search(rf'<textarea id="id_{name}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL).group(1))


def content_of(user, day=None) -> str:
    return documents.read(user=user, day=day).content


# -- MEMORY.md ---------------------------------------------------------------------------------------------------------


def test_memory_is_written_read_again_and_indexed(client, alice):
    page = page_of(client, MEMORY)
    assert text_on(page) == ""
    assert send(client, MEMORY, content="- No nuts\r\n- Lives in Lisbon", state=state_on(page)) == MEMORY
    assert content_of(alice) == "- No nuts\n- Lives in Lisbon"
    page = page_of(client, MEMORY)
    assert "Saved." in page
    assert text_on(page) == "- No nuts\n- Lives in Lisbon"
    send(client, MEMORY, content="- No nuts", state=state_on(page))
    assert content_of(alice) == "- No nuts"
    assert Embedding.objects.for_user(alice).filter(corpus="memory").exists()


def test_what_is_written_is_kept_to_the_last_blank_line(client, alice):
    text = "\n\n  indented\n\ttabbed  \n\n"
    send(client, MEMORY, content=text, state="")
    page = page_of(client, MEMORY)
    assert text_on(page) == text
    send(client, MEMORY, content=text_on(page).replace("\n", "\r\n"), state=state_on(page))
    assert content_of(alice) == text


def test_memory_can_be_emptied(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    send(client, MEMORY, content="", state=state_on(page_of(client, MEMORY)))
    assert content_of(alice) == ""


def test_of_two_who_read_the_same_the_second_is_shown_both_and_loses_nothing(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    state = state_on(page_of(client, MEMORY))
    documents.append(user=alice, day=None, text="- Plays the cello", now=NOW)
    page = send(client, MEMORY, status=409, content="- No nuts, no fish", state=state)
    assert "It was changed meanwhile" in page
    assert text_on(page) == "- No nuts, no fish"
    assert "- No nuts- Plays the cello" in page.replace("\n", "")
    assert content_of(alice) == "- No nuts\n- Plays the cello\n"
    assert f'action="{MEMORY}"' in page
    send(client, MEMORY, content="- No nuts, no fish\n- Plays the cello", state=state_on(page))
    assert content_of(alice) == "- No nuts, no fish\n- Plays the cello"


def test_of_two_who_begin_it_at_once_the_second_is_shown_both(client, alice):
    state = state_on(page_of(client, MEMORY))
    documents.create(user=alice, day=None, content="The first", now=NOW)
    page = send(client, MEMORY, status=409, content="The second", state=state)
    assert text_on(page) == "The second"
    assert "The first" in page
    assert content_of(alice) == "The first"


def test_what_was_deleted_meanwhile_can_be_written_again(client, alice):
    documents.create(user=alice, day=None, content="- No nuts", now=NOW)
    state = state_on(page_of(client, MEMORY))
    documents.delete(user=alice, day=None, expected=None)
    page = send(client, MEMORY, status=409, content="- Nuts", state=state)
    assert "It was deleted meanwhile" in page
    send(client, MEMORY, content=text_on(page), state=state_on(page))
    assert content_of(alice) == "- Nuts"


def test_who_wrote_the_same_words_is_told_of_no_conflict(client, alice):
    state = state_on(page_of(client, MEMORY))
    documents.create(user=alice, day=None, content="The same", now=NOW)
    assert send(client, MEMORY, content="The same", state=state) == MEMORY


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("x" * (MAX_DOCUMENT_LENGTH + 1), "At most 500,000 characters; this has 500,001."),
        ("a\0b", "A text cannot have a NUL character"),
    ],
)
def test_what_cannot_be_kept_is_said_and_nothing_typed_is_lost(client, alice, content, sentence):
    page = send(client, MEMORY, status=400, content=content, state="")
    assert sentence in page
    assert text_on(page) == content
    with pytest.raises(NotFound):
        documents.read(user=alice, day=None)


def test_the_longest_document_fits_through_the_form_in_any_script(client, alice):
    content = "夢" * MAX_DOCUMENT_LENGTH
    send(client, MEMORY, content=content, state="")
    assert content_of(alice) == content


def test_markup_in_a_document_stays_text(client, alice):
    send(client, MEMORY, content=HOSTILE, state="")
    page = page_of(client, MEMORY)
    assert text_on(page) == HOSTILE
    assert "<script>alert" not in page
    send(client, EDIT, content=HOSTILE, state="")
    page = page_of(client, LOG)
    assert "<script>alert" not in page
    assert "<img src=x" not in page


# -- Daily logs --------------------------------------------------------------------------------------------------------


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
    documents.create(user=alice, day=DAY, content="x" * MAX_DOCUMENT_LENGTH, now=NOW)
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
    assert "The log is deleted." in page_of(client, LOGS)


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
    for number in range(52):
        documents.create(user=alice, day=DAY - timedelta(days=number), content="x" * 3, now=NOW)
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


# -- Records -----------------------------------------------------------------------------------------------------------


def contents_on(page: str) -> list[str]:
    return [unescape(text) for text in re.findall(r'class="record-content"[^>]*>(.*?)</p>', page, re.DOTALL)]


def test_a_record_is_noted_and_listed_with_what_it_is(client, alice):
    form = {"content": "We keep\r\nvectors", "type": "DECISION", "project_id": "recollect", "tags": "database, , a b ,"}
    assert send(client, RECORDS, **form) == RECORDS
    page = page_of(client, RECORDS)
    assert contents_on(page) == ["We keep\nvectors"]
    [record] = records.list_records(user=alice).records
    assert (record.type, record.project_id, record.tags) == ("DECISION", "recollect", ("database", "a b"))
    for link in ("?type=DECISION", "?project=recollect", "?tag=a%20b"):
        assert f'href="{RECORDS}{link}"' in page


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"content": "  "}, "Write something."),
        ({"content": "x" * (MAX_RECORD_LENGTH + 1)}, "At most 32,000 characters; this has 32,001."),
        ({"content": "a\0b"}, "NUL character"),
        ({"type": ""}, "This field is required."),
        ({"type": "x" * 101}, "at most 100 characters"),
        ({"project_id": "x" * 201}, "at most 200 characters"),
        ({"tags": ",".join(f"t{number}" for number in range(51))}, "At most 50; these are 51."),
        ({"tags": "x" * 101}, "At most 100 characters; this has 101."),
        ({"tags": "a\0b"}, "Null characters are not allowed."),
    ],
)
def test_what_cannot_be_noted_is_said_beside_its_field(client, alice, form, sentence):
    page = send(client, RECORDS, status=400, **{"content": "Keep this", "type": "note", "tags": "", **form})
    assert sentence in unescape(page)
    assert '<details class="fold" open>' in page
    assert text_on(page) == form.get("content", "Keep this")
    assert records.list_records(user=alice).records == []


def test_records_are_narrowed_by_type_project_and_tag(client, alice):
    note = {"user": alice, "now": NOW}
    records.create(content="one", type="decision", project_id="p", tags=["a", "b"], **note)
    records.create(content="two", type="decision", tags=["a"], **note)
    records.create(content="three", type="lesson", project_id="p", **note)
    assert set(contents_on(page_of(client, RECORDS, type="decision"))) == {"one", "two"}
    assert set(contents_on(page_of(client, RECORDS, project="p"))) == {"one", "three"}
    assert set(contents_on(page_of(client, RECORDS, tag="a"))) == {"one", "two"}
    assert contents_on(page_of(client, RECORDS, tag="a", project="p")) == ["one"]
    assert len(contents_on(page_of(client, RECORDS, type="", project="", tag=""))) == 3
    page = page_of(client, RECORDS, tag="c")
    assert contents_on(page) == []
    assert "No record fits" in page
    page_of(client, RECORDS, status=400, tag="a\0b")


def test_older_records_are_a_link_away_with_the_same_filter(client, alice):
    for number in range(32):
        records.create(user=alice, content=f"number {number}", type="log & note", now=NOW + timedelta(minutes=number))
    page = page_of(client, RECORDS, type="log & note")
    assert contents_on(page)[0] == "number 31"
    assert len(contents_on(page)) == 30
    link = unescape(re.search(r'href="(\?[^"]*after=[^"]*)"', page).group(1))
    assert contents_on(page_of(client, RECORDS + link)) == ["number 1", "number 0"]


def test_a_record_has_a_page_and_is_deleted_after_it_was_asked(client, alice):
    record = records.create(user=alice, content=HOSTILE, type="note", tags=[HOSTILE[:90]], now=NOW)
    path, delete = (reverse(f"memory:{name}", args=[record.id]) for name in ("record", "delete_record"))
    for page in (page_of(client, path), page_of(client, delete), page_of(client, RECORDS)):
        assert HOSTILE in unescape(page)
        assert "<script>alert" not in page
    assert send(client, delete) == RECORDS
    assert records.list_records(user=alice).records == []
    page_of(client, path, status=404)
    send(client, delete, status=404)


# -- Whose -------------------------------------------------------------------------------------------------------------

PAGES = [MEMORY, LOGS, LOG, EDIT, RECORDS]


def test_nobody_sees_or_touches_anybody_elses(client, alice):
    other = a_person("other@example.com")
    documents.create(user=other, day=None, content="my secret", now=NOW)
    documents.create(user=other, day=DAY, content="my secret", now=NOW)
    record = records.create(user=other, content="my secret", type="secret", tags=["secret"], now=NOW)
    for path in PAGES:
        assert "secret" not in page_of(client, path)
    assert "my secret" not in page_of(client, RECORDS, type="secret")
    theirs = [reverse(f"memory:{name}", args=[record.id]) for name in ("record", "delete_record")]
    missing = page_of(client, f"{RECORDS}nothing/", status=404)
    for path in [*theirs, DELETE]:
        assert page_of(client, path, status=404) == missing
        assert send(client, path, status=404, state=documents.read(user=other, day=DAY).state) == missing
    send(client, EDIT, status=409, content="mine", state=documents.read(user=other, day=DAY).state)
    send(client, LOG, text="mine")
    assert content_of(other, DAY) == "my secret"
    assert records.read(user=other, record_id=record.id).content == "my secret"


@pytest.mark.parametrize("path", [*PAGES, DELETE, f"{RECORDS}nothing/", f"{RECORDS}nothing/delete/"])
def test_a_visitor_is_told_how_to_keep_notes(path):
    page = page_of(Client(), path)
    assert "With an account you keep a MEMORY.md" in page
    assert f"{reverse('intake:login')}?next={path.replace('/', '%2F')}" in page


@pytest.mark.parametrize(("path", "name"), [(MEMORY, "content"), (LOG, "text"), (RECORDS, "content")])
def test_whose_session_ended_while_they_wrote_gets_their_words_back(path, name):
    page = send(Client(), path, status=401, **{name: "A long thought\n& more"})
    assert "You are logged out" in page
    assert "A long thought\n&amp; more</textarea>" in page


def test_no_form_is_taken_from_another_site(alice):
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    for path in [MEMORY, LOG, EDIT, DELETE, RECORDS]:
        send(client, path, status=403, content="x", text="x", state="")
    assert not documents.exists(user=alice, day=DAY)
