"""The home page of a person: what it offers to go on with."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from chat.pages.home import LINES, home
from core.isolation.acting import acting_as
from intake.models import Conversation, User
from intake.tests.factories import a_person, a_turn
from memory import documents, records
from memory.models import MemoryRecord
from memory.models.documents import Proposal
from memory.projects import save_project

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)


def parts_of(user: User, now: datetime = NOW) -> dict[str, list[str]]:
    with acting_as(user):
        return {name: [line["text"] for line in lines] for name, _, lines in home(user=user, now=now)}


@pytest.fixture
def alice():
    return a_person("alice")


def a_chat(user: User, at: datetime, message: str, **of_chat: object) -> Conversation:
    turn = a_turn(user, message, said_at=at)
    Conversation.objects.filter(pk=turn.conversation_id).update(last_active_at=at, **of_chat)
    return turn.conversation


def test_a_new_person_has_no_parts(alice):
    assert parts_of(alice) == {}


def test_what_waits_to_be_remembered_is_shown_with_the_newest_first(alice):
    chat = a_chat(alice, NOW, "I like my tea green")
    with acting_as(alice):
        for number in range(5):
            Proposal.objects.create(
                user=alice,
                content=f"Fact {number}",
                type="fact",
                created_at=NOW + timedelta(minutes=number),
                source_conversation=chat.pk,
                source_turn=1,
            )
        Proposal.objects.filter(content="Fact 3").update(state="rejected")
    assert parts_of(alice) == {"remember": ["Fact 4", "Fact 2", "Fact 1"]}


def test_a_to_do_is_added_and_ticked_on_the_home_page(client, alice):
    with acting_as(alice):
        records.create(user=alice, content="Call the roofer", type="todo", tags=(), now=timezone.now())
    client.force_login(alice)
    assert "Add a to-do" in client.get("/").text
    added = client.post("/memory/records/", {"content": "Sow beans", "type": "todo", "from_home": "1"}, follow=True)
    assert added.redirect_chain == [("/", 302)] and "Sow beans" in added.text
    made = MemoryRecord.objects.get(content="Sow beans")
    ticked = client.post(f"/memory/records/{made.pk}/tick/", {"done": "1", "from_home": "1"}, follow=True)
    assert ticked.redirect_chain == [("/", 302)]
    assert "Sow beans" not in ticked.text and "Call the roofer" in ticked.text


@pytest.mark.parametrize(
    ("now", "at"),
    [(NOW, "2025-03-05 23:30"), (datetime(2028, 2, 29, 12, tzinfo=UTC), "2027-02-28 10:00")],
    ids=["a day", "29 February"],
)
def test_what_was_written_a_year_ago_today_is_shown_once_a_chat(alice, now, at):
    moment = datetime.fromisoformat(at).replace(tzinfo=UTC)
    chat = a_chat(alice, moment, "We planted the pear tree")
    a_turn(alice, "And an apple tree", conversation=chat, said_at=moment + timedelta(minutes=5))
    a_chat(alice, moment - timedelta(days=1), "The day before")
    assert parts_of(alice, now)["year"] == ["We planted the pear tree"]


def test_a_year_ago_is_by_the_persons_own_day(alice):
    User.objects.filter(pk=alice.pk).update(time_zone="Pacific/Auckland")
    alice.refresh_from_db()
    a_chat(alice, datetime(2025, 3, 5, 20, tzinfo=UTC), "In the morning of 6 March over there")
    assert parts_of(alice)["year"] == ["In the morning of 6 March over there"]


def test_open_lines_of_notes_and_logs_and_open_records_are_shown(alice):
    documents.append(user=alice, day=None, text="- [ ] Renew the passport\n- [x] Pay the rent\n- [ ]", now=NOW)
    documents.append(user=alice, day=NOW.date(), text="  * [ ] Call the roofer", now=NOW + timedelta(minutes=1))
    records.create(user=alice, content="Which oil does the car take?", type="question", tags=(), now=NOW)
    assert sorted(parts_of(alice)["open"]) == [
        "Call the roofer",
        "Renew the passport",
        "Which oil does the car take?",
    ]


def test_an_open_line_leads_to_the_document_of_its_project(alice):
    documents.append(user=alice, day=None, project="Garden", text="- [ ] Sow beans", now=NOW)
    documents.append(user=alice, day=NOW.date(), text="- [ ] Call the roofer", now=NOW)
    lines = next(lines for name, _title, lines in home(user=alice, now=NOW) if name == "open")
    assert sorted((line["path"], line["text"]) for line in lines) == [
        ("/memory/?project=Garden", "Sow beans"),
        (f"/memory/logs/{NOW.date()}/", "Call the roofer"),
    ]


def test_what_agents_brought_since_yesterday_is_new_and_what_was_chatted_is_not(alice):
    a_chat(alice, NOW - timedelta(hours=20), "From an agent", title="From an agent", source="claude-code")
    a_chat(alice, NOW - timedelta(hours=20), "In the chat", title="In the chat")
    a_chat(alice, NOW - timedelta(days=3), "Long ago", title="Long ago", source="codex")
    records.create(user=alice, content="The gate code is 4711", type="fact", tags=(), now=NOW - timedelta(hours=1))
    kept = a_turn(alice, "The ferry leaves at 7:40", said_at=NOW)
    with acting_as(alice):
        facts = {"source_conversation": kept.conversation_id, "source_turn": kept.turn_number}
        records.create(user=alice, content="Kept by hand from a chat", now=NOW, facts=facts)
    assert parts_of(alice)["new"] == ["The gate code is 4711", "From an agent"]


def test_a_part_is_hidden_for_good_and_all_come_back(client, alice):
    records.create(user=alice, content="Call the roofer", type="todo", tags=(), now=NOW)
    client.force_login(alice)
    client.post("/settings/account/home/", {"hide": "open"})
    page = client.get("/").text
    assert "Still open" not in page and "Show hidden parts" in page
    client.post("/settings/account/home/")
    page = client.get("/").text
    assert "Still open" in page and "Show hidden parts" not in page


@pytest.mark.parametrize("name", ["a b", "x" * 40, "1", "é"])
def test_a_part_has_a_short_name_of_letters(client, alice, name):
    client.force_login(alice)
    assert client.post("/settings/account/home/", {"hide": name}).status_code == 400


def test_nobody_sees_a_line_of_anybody_else(alice):
    bob = a_person("bob")
    a_chat(bob, NOW - timedelta(days=365), "Bob's year", title="Bob's year")
    documents.append(user=bob, day=None, text="- [ ] Bob's task", now=NOW)
    assert parts_of(alice) == {}


def test_the_home_page_reads_all_parts_in_one_statement(client, alice):
    for number in range(2 * LINES):
        records.create(user=alice, content=f"Task {number}", type="todo", tags=(), now=timezone.now())
    client.force_login(alice)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        page = client.get("/").text
    assert sum("memory_documents" in query["sql"] for query in queries) == 1
    assert "Still open" in page and "Task 5" in page and "Help me plan a dinner" not in page


def test_without_a_language_model_the_home_page_says_so_and_its_examples_work(client, alice, settings):
    settings.LLM_MODEL = ""
    client.force_login(alice)
    page = client.get("/").text
    assert "No model is connected yet: you can import and search." in page
    assert "Where is the spare key?" in page
    settings.LLM_MODEL = "openai:gpt"
    assert "No model is connected yet: you can import and search." not in client.get("/").text


def test_a_new_to_do_is_listed_once_among_the_open_ones(alice):
    with acting_as(alice):
        for kind, content in (("todo", "Call the plumber"), ("fact", "The tap is from 1998")):
            records.create(user=alice, content=content, type=kind, now=NOW)
    parts = parts_of(alice)
    assert (parts["open"], parts["new"]) == (["Call the plumber"], ["The tap is from 1998"])


def test_the_invitation_to_import_is_for_those_without_a_chat(client, alice):
    invitation = 'class="bring-along"'
    client.force_login(alice)
    assert invitation in client.get("/").content.decode()
    a_turn(alice, "Hello")
    assert invitation not in client.get("/").content.decode()


def of_each_kind(user: User, label: str) -> None:
    """Something in each part of the home page, with the label in its text."""
    for at, source in ((NOW, "chat"), (NOW, "import"), (NOW.replace(year=NOW.year - 1), "chat")):
        a_chat(user, at, f"{label} message", title=f"{label} chat", project=label, source=source)
    with acting_as(user):
        records.create(user=user, content=f"{label} to-do", type="todo", project_id=label, now=NOW)
        documents.append(user=user, day=None, project=label, text=f"- [ ] {label} line", now=NOW)


def test_in_a_project_every_part_is_of_it_also_if_it_is_closed(alice):
    of_each_kind(alice, "house")
    of_each_kind(alice, "work")
    with acting_as(alice):
        save_project(user=alice, name="house", is_closed=True)
        inside = home(user=alice, now=NOW, project="house")
        outside = home(user=alice, now=NOW)
        nowhere = home(user=alice, now=NOW, project="gone")
    assert {name for name, *_ in inside} == {"year", "open", "new"}
    texts = [line["text"] for _, _, lines in inside for line in lines]
    assert all(text.startswith("house") for text in texts)
    assert {"house message", "house to-do", "house line", "house chat"} <= set(texts)
    assert {line["text"].split()[0] for _, _, lines in outside for line in lines} == {"work"}
    assert nowhere == []


def test_the_page_of_a_new_chat_in_a_project_leads_out_of_it_by_one_click(client, alice):
    for project in ("house", "garden"):
        records.create(user=alice, content=f"In the {project}", type="todo", project_id=project, now=NOW)
    client.force_login(alice)
    page = client.get("/", {"project": "house"}).text
    parts = page[page.index("data-welcome") : page.index("data-thread")]
    assert "In the house" in parts and "In the garden" not in parts
    assert "Only house" in parts and "All projects" in parts
    assert "Only house" not in client.get("/").text.split("data-welcome")[1].split("data-thread")[0]


def open_at_home(user):
    return [line["text"] for name, _, lines in home(user=user, now=timezone.now()) if name == "open" for line in lines]


def _note(user, content, *, replaces=None, **fields):
    return records.create(user=user, content=content, now=NOW, facts={"replaces": replaces}, **fields)


def test_a_todo_is_open_until_it_is_done(alice):
    todo = _note(alice, "Oil the worktop", type="todo")
    assert open_at_home(alice) == ["Oil the worktop"]
    done = records.rewrite(user=alice, record_id=todo.id, facts={"done": True}, now=NOW)
    assert done.done_at == NOW
    assert open_at_home(alice) == []
    again = records.rewrite(user=alice, record_id=todo.id, facts={"done": True}, now=NOW + timedelta(days=1))
    assert again.done_at == NOW
    assert records.rewrite(user=alice, record_id=todo.id, facts={"done": False}, now=NOW).done_at is None
    assert open_at_home(alice) == ["Oil the worktop"]


def test_a_replaced_todo_is_not_open(alice):
    todo = _note(alice, "Oil the worktop", type="todo")
    _note(alice, "Oil the worktop twice", type="todo", replaces=todo.id)
    assert open_at_home(alice) == ["Oil the worktop twice"]
