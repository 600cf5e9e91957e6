"""Pages of projects and of a year: made, renamed, closed and deleted; what was decided, kept and opened."""

import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chat.pages.chats import PART
from chat.pages.home import year
from chat.pages.projects import path_of
from core.isolation.acting import acting_as
from intake.chats import project_groups
from intake.models import Conversation, Project, User
from intake.tests.factories import a_person, a_turn
from memory import documents, projects, records
from memory.addresses import project_key, project_named
from memory.models import MemoryDocument, MemoryRecord

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
ALL = "/projects/"


def page(client: Client, path: str, **query: str) -> str:
    response = client.get(path, query)
    assert response.status_code == HTTPStatus.OK, response.status_code
    return response.content.decode()


def a_chat(user: User, title: str, project: str = "", **about: object) -> Conversation:
    chat = a_turn(user, title, "An answer").conversation
    Conversation.objects.filter(pk=chat.pk).update(project=project, **about)
    return chat


def kept(
    user: User, content: str, *, at: datetime = NOW, type: str = "note", project: str = "", **facts: object
) -> None:
    with acting_as(user):
        records.create(user=user, content=content, type=type, project_id=project, tags=(), facts=facts, now=at)


# --- Projects ---


@pytest.mark.parametrize("name", ["me/app", "..", ".hidden", "100 %", "a~b", "Küche & Bad?", "edit", "#1", "حديقة"])
def test_every_name_has_an_address_that_leads_back_to_it(client, alice, name):
    with acting_as(alice):
        projects.save_project(user=alice, name=name, instructions="Briefly, please")
    key = project_key(name)
    assert "/" not in key and not key.startswith(".") and project_named(key) == name
    assert "Briefly, please" in page(client, path_of(name))


def test_a_project_is_made_by_its_name_alone_and_then_has_what_its_form_says(client, alice):
    assert client.post(ALL, {"name": "Room"}).url == "/projects/Room/"
    form = {
        "name": "Kitchen",
        "colour": "green",
        "instructions": "In metres",
        "labels": "me/kitchen\n\n~/plans",
        "is_closed": "on",
    }
    assert client.post(path_of("Room", "edit_project"), form).url == "/projects/Kitchen/"
    made = Project.objects.get(user=alice)
    assert (made.name, made.colour, made.instructions, made.is_closed) == ("Kitchen", "green", "In metres", True)
    assert made.labels == ["me/kitchen", "plans", "Room"]


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ({"name": "", "colour": "red"}, "Enter a name."),
        ({"name": "Garden", "colour": "red"}, "There is a project with this name already."),
        ({"name": "-Garden", "colour": "red"}, "It cannot begin with a hyphen."),
        ({"name": "New", "colour": "beige"}, "beige"),
        ({"name": "New", "colour": "red", "labels": "me/garden"}, "me/garden belongs to the project Garden already."),
        ({"name": "New", "colour": "red", "instructions": "x" * 4_001}, "At most 4,000 characters"),
    ],
)
def test_what_a_form_lacks_stands_beside_its_field_and_nothing_is_changed(client, alice, form, complaint):
    with acting_as(alice):
        projects.save_project(user=alice, name="Garden", labels=["me/garden"])
        projects.save_project(user=alice, name="House")
    about_the_name = [ALL] if "name" in complaint or "hyphen" in complaint else []
    for path in (path_of("House", "edit_project"), *about_the_name):
        response = client.post(path, form)
        assert response.status_code == HTTPStatus.BAD_REQUEST
        assert complaint in response.content.decode()
    assert [*Project.objects.order_by("name").values_list("name", "colour")] == [("Garden", "blue"), ("House", "blue")]


def test_a_renamed_project_keeps_what_is_in_it_and_its_old_address_leads_on(client, alice):
    chat = a_chat(alice, "The sink", "Kitchen")
    kept(alice, "Oak", project="Kitchen")
    edited = client.post(path_of("Kitchen", "edit_project"), {"name": "House", "colour": "red", "labels": "me/house"})
    assert edited.url == "/projects/House/"
    chat.refresh_from_db()
    assert (chat.project, MemoryRecord.objects.get().project_id) == ("House", "House")
    assert sorted(Project.objects.get().labels) == ["Kitchen", "me/house"]
    assert client.get("/projects/Kitchen/").url == "/projects/House/"
    assert client.get("/projects/Kitchen/edit/").url == "/projects/House/edit/"


def test_a_name_that_is_taken_changes_nothing_of_the_other_fields(client, alice):
    with acting_as(alice):
        projects.save_project(user=alice, name="Garden")
        projects.save_project(user=alice, name="House", colour="red")
    response = client.post(path_of("House", "edit_project"), {"name": "Garden", "colour": "green"})
    assert response.status_code == HTTPStatus.BAD_REQUEST
    assert dict(Project.objects.values_list("name", "colour")) == {"Garden": "blue", "House": "red"}


def test_the_page_shows_chats_instructions_memory_and_what_is_kept(client, alice):
    with acting_as(alice):
        projects.save_project(user=alice, name="Kitchen", instructions="In metres", labels=["me/kitchen"])
        documents.append(user=alice, day=None, project="Kitchen", text="The worktop is **oak**.", now=NOW)
        documents.append(user=alice, day=None, text="I live in Bremen.", now=NOW)
    a_chat(alice, "Where does the sink go?", "Kitchen")
    a_chat(alice, "Of no project")
    kept(alice, "No upper cupboards", project="Kitchen")
    shown = page(client, path_of("Kitchen"))
    main = shown[shown.index("<main") :]
    for text in ("Where does the sink go?", "In metres", "me/kitchen", "<strong>oak</strong>", "No upper cupboards"):
        assert text in main
    assert "Of no project" not in main and "Bremen" not in main


def test_a_label_in_use_has_a_page_before_anything_is_said_about_it(client, alice):
    a_chat(alice, "The build fails", "me/app")
    assert "The build fails" in page(client, path_of("me/app"))
    assert "me/app" in page(client, ALL)
    form = {"name": "me/app", "colour": "blue", "is_closed": "on"}
    assert client.post(path_of("me/app", "edit_project"), form).status_code == HTTPStatus.FOUND
    assert Project.objects.get().is_closed


def test_the_page_before_a_deletion_counts_what_is_in_the_project(client, alice):
    for number in range(3):
        a_chat(alice, f"Chat {number}", "Kitchen")
    kept(alice, "Oak", project="Kitchen")
    shown = page(client, path_of("Kitchen", "delete_project"))
    assert "It has 3 chats." in shown and "1 text is kept in it." in shown


@pytest.mark.parametrize(("form", "left"), [({}, [""]), ({"contents": "1"}, [])], ids=["alone", "with all"])
def test_a_project_goes_with_what_is_in_it_or_without(client, alice, form, left):
    a_chat(alice, "The sink", "Kitchen")
    kept(alice, "Oak", project="Kitchen")
    assert client.post(path_of("Kitchen", "delete_project"), form).url == ALL
    assert list(Conversation.objects.values_list("project", flat=True)) == left
    assert list(MemoryRecord.objects.values_list("project_id", flat=True)) == left


def test_chats_are_moved_from_the_list_without_scripts(client, alice):
    chats = [a_chat(alice, "One"), a_chat(alice, "Two")]
    form = {"id": [chat.pk for chat in chats], "do": "move", "project": "Kitchen"}
    response = client.post("/conversations/change/", form, follow=True)
    assert "2 chats moved" in response.content.decode()
    assert set(Conversation.objects.values_list("project", flat=True)) == {"Kitchen"}


# --- The groups of the side bar ---


def test_the_side_bar_costs_one_statement_more_while_all_groups_are_folded(client, alice):
    a_chat(alice, "Of no project")
    for number in range(3):
        a_chat(alice, f"Chat {number}", f"Project {number}")
    with (
        acting_as(alice),
        CaptureQueriesContext(
            connection,
        ) as folded,
    ):
        groups, count = project_groups.list_groups(user=alice, open_keys=())
    assert (len(folded), count, [group["chats"] for group in groups]) == (1, 3, [1, 1, 1])
    assert not any(group["page"].all for group in groups)


def test_the_groups_that_were_active_last_are_shown_by_name_and_the_current_one_always(alice):
    for number in range(project_groups.MOST_GROUPS + 2):
        a_chat(alice, f"Chat {number}", f"P{number:02}", last_active_at=NOW - timedelta(days=number))
    with acting_as(alice):
        groups, count = project_groups.list_groups(user=alice, open_keys=(), current="P11")
    assert [group["name"] for group in groups] == [
        *(f"P{number:02}" for number in range(project_groups.MOST_GROUPS)),
        "P11",
    ]
    assert count == project_groups.MOST_GROUPS + 2
    assert [group["name"] for group in groups if group["is_open"]] == ["P11"]


def test_an_open_group_lists_its_latest_chats_and_leaves_pinned_ones_above(client, alice):
    for number in range(project_groups.CHATS_PER_GROUP + 2):
        a_chat(alice, f"Chat {number}", "Kitchen", last_active_at=NOW - timedelta(days=number))
    a_chat(alice, "Pinned", "Kitchen", pinned_at=NOW)
    client.cookies["projects"] = project_groups.group_key(alice.pk, "Kitchen")
    shown = page(client, "/conversations/", groups="1")
    assert [f"Chat {number}<" in shown for number in (0, 7, 8)] == [True, True, False]
    assert "Pinned" not in shown and "All 11 chats" in shown
    assert "Pinned" in page(client, "/conversations/", project="")


def test_the_list_by_day_has_no_chats_of_projects_and_the_page_of_all_chats_has(client, alice):
    a_chat(alice, "In the kitchen", "Kitchen")
    a_chat(alice, "Elsewhere")
    of_none = client.get("/conversations/", {"project": ""}, headers={PART: "main"}).content.decode()
    assert "Elsewhere" in of_none and "In the kitchen" not in of_none
    assert "In the kitchen" in page(client, "/conversations/")
    main = client.get("/conversations/", {"project": "Kitchen"}, headers={PART: "main"}).content.decode()
    assert "In the kitchen" in main and "Elsewhere" not in main


def test_titles_of_a_closed_project_are_found_only_from_inside(client, alice):
    a_chat(alice, "The lantern", "Kitchen")
    with acting_as(alice):
        projects.save_project(user=alice, name="Kitchen", is_closed=True)
    assert "The lantern" not in page(client, "/conversations/", q="lantern")
    assert "The lantern" in page(client, "/conversations/", q="lantern", project="Kitchen")


# --- The list of kept things ---


def test_kept_things_are_narrowed_to_a_project_and_to_everything_but_it(client, alice):
    kept(alice, "In the kitchen", project="Kitchen")
    kept(alice, "In the garden", project="Garden")
    with acting_as(alice):
        for title, project in (("A note on tiles", "Kitchen"), ("A note on hedges", "Garden")):
            note = documents.create_note(user=alice, title=title, content="Some words", at=NOW)
            MemoryDocument.objects.filter(pk=note.pk).update(project=project)
    only, but = (page(client, reverse("memory:records"), project=name) for name in ("Kitchen", "-Kitchen"))
    assert "In the kitchen" in only and "In the garden" not in only
    assert "In the garden" in but and "In the kitchen" not in but
    assert "A note on tiles" in only and "A note on hedges" not in only
    assert "A note on hedges" in but and "A note on tiles" not in but
    assert "project=-Kitchen" in only and "Everything but Kitchen" in only


# --- The page of a year ---


def year_of(user: User, number: int = 2026, project: str = "") -> tuple:
    with acting_as(user):
        return year(user=user, number=number, project=project, now=NOW)


def test_a_year_tells_decisions_to_dos_and_the_rest_by_month_and_project(alice):
    kept(alice, "Oak it is", type="ARCHITECTURAL_DECISION", project="Kitchen")
    kept(alice, "Call the plumber", type="todo", project="Kitchen", at=NOW - timedelta(days=30))
    kept(alice, "28 inch wheels", type="fact")
    kept(alice, "Last year", at=NOW - timedelta(days=90))
    months, totals, first = year_of(alice)
    assert [(month["first"].month, [kind for kind, *_ in month["kinds"]]) for month in months] == [
        (3, ["decided", "kept"]),
        (2, ["opened"]),
    ]
    assert totals == [("Kitchen", [1, 0, 1]), ("", [0, 1, 0])]
    assert first == 2025
    assert [month["first"].month for month in year_of(alice, 2025)[0]] == [12]


def test_a_month_shows_its_latest_lines_and_counts_the_others(alice):
    for number in range(8):
        kept(alice, f"Note {number}", at=NOW + timedelta(minutes=number))
    ((_, count, lines, more),) = year_of(alice)[0][0]["kinds"]
    assert (count, more, lines[0][1]) == (8, 2, "Note 7")


def test_a_closed_project_is_in_no_year_but_its_own(alice):
    kept(alice, "Secret", project="Kitchen")
    with acting_as(alice):
        projects.save_project(user=alice, name="Kitchen", is_closed=True)
    assert year_of(alice)[0] == []
    assert year_of(alice, project="Kitchen")[1] == [("Kitchen", [0, 1, 0])]


def test_a_year_is_the_persons_own_and_of_their_own_time_zone(alice):
    kept(a_person("bob"), "Of somebody else")
    User.objects.filter(pk=alice.pk).update(time_zone="Pacific/Auckland")
    alice.refresh_from_db()
    kept(alice, "Over there it is 2026", at=datetime(2025, 12, 31, 12, tzinfo=UTC))
    months, totals, _ = year_of(alice)
    assert ([month["first"].month for month in months], totals) == ([1], [("", [0, 1, 0])])


def test_a_year_is_read_by_one_statement_along_indexes(alice):
    kept(alice, "Oak it is", type="decision")
    with acting_as(alice), CaptureQueriesContext(connection) as queries:
        year(user=alice, number=2026, project="", now=NOW)
    assert len(queries) == 1
    with acting_as(alice), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {queries[0]['sql']}")
        plan = "\n".join(line for (line,) in cursor.fetchall())
    # Which of the indexes that begin with the user depends on how many rows there are.
    assert "Seq Scan" not in plan
    assert re.search(r"Index (?:Only )?Scan (?:Backward )?(?:using|on) \w*memory_records", plan)


def test_the_page_of_a_year_says_when_nothing_was_kept_and_refuses_what_is_no_year(client, alice):
    this_year = timezone.now().year
    assert f"Nothing kept in {this_year}" in page(client, "/year/")
    for text in ("1", "20x6", str(this_year + 1), "0000"):
        assert client.get("/year/", {"year": text}).status_code == HTTPStatus.NOT_FOUND
