"""Projects: their rows, the labels that follow them, what a deletion takes along, and the API."""

from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from agent_tools.authentication import create_token
from agent_tools.models import AccessToken
from agent_tools.tests import callers
from core.errors import InvalidInput, NotFound
from core.isolation.acting import acting_as
from intake.chats import changes, temporary
from intake.models import Conversation, Project, Turn
from intake.models.conversations import label_of
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import documents, index, projects, records
from memory.models import MemoryDocument, MemoryRecord
from memory.tests.attached import attach
from memory.tests.overview.drawn import draw

pytestmark = pytest.mark.django_db

ADDRESS = "/api/v1/projects/"


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def client(alice):
    client = Client()
    client.force_login(alice)
    return client


def a_chat(user, project="", text="Hello"):
    conversation = a_turn(user, text).conversation
    Conversation.objects.filter(pk=conversation.pk).update(project=project)
    return conversation


def labels(user):
    return set(Conversation.objects.filter(user=user).values_list("project", flat=True))


def test_the_list_has_projects_and_labels_in_use_with_their_counts(alice):
    for _ in range(2):
        a_chat(alice, "me/app")
    a_chat(alice)
    with acting_as(alice):
        records.create(user=alice, content="We use oak", project_id="House", now=NOW)
        projects.save_project(user=alice, name="House", colour="red")
        projects.save_project(user=alice, name="Empty")
        found = projects.list_projects(user=alice)
    assert [(each.name, each.has_row, each.chats, each.kept) for each in found] == [
        ("Empty", True, 0, 0),
        ("House", True, 0, 1),
        ("me/app", False, 2, 0),
    ]


def test_another_name_takes_along_chats_records_documents_and_tokens(alice):
    a_chat(alice, "House")
    create_token(user=alice, name="Hook", project="House")
    with acting_as(alice):
        records.create(user=alice, content="We use oak", project_id="House", now=NOW)
        MemoryDocument.objects.create(user=alice, kind="memory", project="House", content="Oak")
        renamed = projects.rename_project(user=alice, name="House", new_name="Home")
    assert labels(alice) == {"Home"}
    assert MemoryRecord.objects.get().project_id == MemoryDocument.objects.get().project == "Home"
    assert AccessToken.objects.get().project == "Home"
    assert renamed.labels == ["House"]
    with acting_as(alice):
        assert label_of(user=alice, label="House") == "Home"


def test_a_name_that_is_taken_or_begins_with_a_hyphen_is_refused(alice):
    a_chat(alice, "me/app")
    with acting_as(alice):
        projects.save_project(user=alice, name="House", labels=["me/house"])
        for name in ("me/app", "-House", " ", "x" * 201):
            with pytest.raises(InvalidInput):
                projects.rename_project(user=alice, name="House", new_name=name)
        with pytest.raises(InvalidInput):
            projects.save_project(user=alice, name="me/house")
        with pytest.raises(InvalidInput):
            projects.save_project(user=alice, name="Other", labels=["House"])
        with pytest.raises(NotFound):
            projects.rename_project(user=alice, name="Nothing", new_name="Something")
    assert list(Project.objects.values_list("name", flat=True)) == ["House"]


def test_what_has_a_label_moves_to_the_project_that_it_belongs_to(alice):
    a_chat(alice, "app")
    with acting_as(alice):
        projects.save_project(user=alice, name="Work", labels=["/home/me/app", "app"])
        assert label_of(user=alice, label="app") == "Work"
        assert label_of(user=alice, label="other") == "other"
    assert labels(alice) == {"Work"}


def test_a_project_is_deleted_with_all_that_is_in_it(alice):
    a_chat(alice, "House")
    kept = a_chat(alice, "Other")
    with acting_as(alice):
        for project in ("House", ""):
            records.create(user=alice, content=f"We use oak {project}", project_id=project, now=NOW)
        MemoryDocument.objects.create(user=alice, kind="memory", project="House", content="Oak")
        projects.save_project(user=alice, name="House")
        projects.delete_project(user=alice, name="House", with_contents=True)
    assert list(Turn.objects.values_list("conversation", flat=True)) == [kept.pk]
    assert MemoryRecord.objects.get().project_id == ""
    assert not MemoryDocument.objects.exists()
    assert not Project.objects.exists()


def test_a_project_is_deleted_and_its_texts_stay_without_a_label(alice):
    a_chat(alice, "House")
    with acting_as(alice):
        records.create(user=alice, content="We use oak", project_id="House", now=NOW)
        documents.append(user=alice, day=None, text="Mine", now=NOW)
        MemoryDocument.objects.create(user=alice, kind="memory", project="House", content="Oak")
        projects.delete_project(user=alice, name="House", with_contents=False)
    assert labels(alice) == {""}
    assert MemoryRecord.objects.get().project_id == ""
    assert MemoryDocument.objects.get().content == "Mine\nOak"


def test_chats_are_moved_together_or_not_at_all_and_other_pages_hear_of_it(
    alice, monkeypatch, django_capture_on_commit_callbacks
):
    heard = []
    monkeypatch.setattr(changes, "tell_now", lambda caller, *ids: heard.extend(ids))
    first, second = a_chat(alice), a_chat(alice, "Old")
    caller = caller_for(alice)
    with acting_as(alice), pytest.raises(NotFound):
        temporary.move(caller=caller, conversation_ids=[first.pk, uuid4()], project="House")
    assert labels(alice) == {"", "Old"}
    with django_capture_on_commit_callbacks(execute=True), acting_as(alice):
        temporary.move(caller=caller, conversation_ids=[first.pk, second.pk], project="House")
    assert labels(alice) == {"House"}
    assert set(heard) == {first.pk, second.pk}


def test_projects_are_listed_created_changed_and_deleted_over_rest(alice, client):
    a_chat(alice, "me/app")
    sent = {"name": "House", "colour": "green", "labels": ["me/app"], "closed": True}
    made = client.post(ADDRESS, sent, content_type="application/json")
    assert made.status_code == 201, made.content
    address = f"{ADDRESS}{made.json()['id']}/"
    assert client.post(ADDRESS, sent, content_type="application/json").json()["errors"].keys() == {"name"}
    (listed,) = client.get(ADDRESS).json()["projects"]
    assert (listed["name"], listed["chats"], listed["closed"], listed["labels"]) == ("House", 1, True, ["me/app"])
    changed = client.patch(address, {"name": "Home", "instructions": "Briefly"}, content_type="application/json")
    assert (changed.json()["name"], changed.json()["instructions"], labels(alice)) == ("Home", "Briefly", {"Home"})
    refused = client.patch(address, {"colour": "plaid"}, content_type="application/json")
    assert (refused.status_code, "One of" in refused.json()["errors"]["colour"][0]) == (400, True)
    assert client.delete(address, query_params={"contents": "true"}).status_code == 204
    assert not Conversation.objects.exists()
    assert client.delete(address).status_code == 404


def test_nobody_changes_or_deletes_a_project_of_somebody_else(alice, client):
    theirs = Project.objects.create(user=a_person("bob@example.com"), name="House")
    address = f"{ADDRESS}{theirs.pk}/"
    assert client.get(ADDRESS).json() == {"projects": []}
    assert client.patch(address, {"name": "Mine"}, content_type="application/json").status_code == 404
    assert client.delete(address).status_code == 404
    theirs.refresh_from_db()
    assert theirs.name == "House"


# -- Closed projects, and everything but one ------------------------------------------------------------------------------

SECRET = "walnut"


@pytest.fixture
def closed(alice):
    """A chat, a file, a record and a document of a closed project, and a chat outside with the same word."""
    inside = a_chat(alice, "House", f"The worktop is {SECRET}")
    outside = a_chat(alice, "", f"I ate a {SECRET}")
    file = attach(alice, f"A {SECRET} bowl".encode(), "bowl.txt")
    Conversation.objects.filter(pk=file.conversation_id).update(project="House")
    with acting_as(alice):
        record = records.create(user=alice, content=f"We use {SECRET}", project_id="House", now=NOW)
        documents.append(user=alice, day=None, project="House", text=f"Oak and {SECRET}", now=NOW)
        documents.append(user=alice, day=NOW.date(), project="House", text=f"- [ ] Order {SECRET}", now=NOW)
        projects.save_project(user=alice, name="House", is_closed=True)
    index.embed_pending()
    return {"inside": str(inside.pk), "outside": str(outside.pk), "record": str(record.id)}


INSIDE = ("worktop", "bowl", "We use", "Oak and", "Order")
SEARCHES = {
    "search_chat_history": {"query": SECRET},
    "search_chat_history by words": {"query": SECRET, "mode": "hybrid"},
    "search_history": {"query": SECRET},
    "search_history of sessions": {"query": "WORKTOP", "scope": "sessions"},
    "search_history by a piece": {"query": f'"{SECRET}"'},
    "search_memory": {"query": SECRET},
    "search_memory of a type": {"query": SECRET, "types": ["note"]},
    "get_context": {"for": "session"},
    "get_context of a prompt": {"for": "prompt", "query": f"The worktop is {SECRET}?"},
    "list_recent_conversations": {},
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_closed_project_is_found_only_from_inside(alice, closed, search, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    tool, body = search.partition(" ")[0], SEARCHES[search]
    agent = callers.client_of(alice)
    outside = callers.call(agent, tool, body)
    assert outside.status_code == 200
    assert [word for word in INSIDE if word in outside.text] == []
    for name in ("House", "me/house"):
        Project.objects.update(labels=["me/house"])
        inside = callers.call(agent, tool, {**body, "project": name})
        assert [word for word in INSIDE if word in inside.text], (name, inside.text)
        assert closed["outside"] not in inside.text


@pytest.mark.medium
@pytest.mark.parametrize("search", [name for name in SEARCHES if "sessions" not in name and "session" not in name])
def test_everything_but_a_project_is_searched_by_a_hyphen_before_its_name(alice, closed, search, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    Project.objects.update(is_closed=False)
    tool, body = search.partition(" ")[0], SEARCHES[search]
    agent = callers.client_of(alice)
    assert [word for word in INSIDE if word in callers.call(agent, tool, body).text]
    left = callers.call(agent, tool, {**body, "project": "-House"})
    assert left.status_code == 200
    assert [word for word in INSIDE if word in left.text] == []


@pytest.mark.medium
def test_home_timeline_map_and_lists_leave_out_a_closed_project(alice, closed, client, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    draw(alice)
    paths = ("/", "/memory/timeline/2026-03/", "/memory/map/", "/memory/records/", "/api/v1/memory/timeline/2026-03/")
    paths += ("/api/v1/memory/map/", "/api/v1/memory/map/points/", "/api/v1/memory/records/")
    shown = {path: client.get(path, headers={"accept": "text/html"}).text for path in paths}
    # The side bar is the way into the project, and shows the titles of all chats.
    shown["/"] = shown["/"].partition("<main")[2]
    found = {
        path: [word for word in INSIDE if word in text.partition("<main")[2] or (word in text and "api" in path)]
        for path, text in shown.items()
    }
    assert {path: words for path, words in found.items() if words} == {}
    Project.objects.update(is_closed=False)
    opened = {path: client.get(path).text for path in paths}
    assert [path for path in paths if not any(word in opened[path] for word in INSIDE)] == []


def test_an_unclosed_project_changes_no_search(alice, closed):
    Project.objects.update(is_closed=False)
    found = callers.call(callers.client_of(alice), "search_chat_history", {"query": SECRET}).json()
    assert {each["conversationId"] for each in found["results"]} >= {closed["inside"], closed["outside"]}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("named", ["House", "me/house", "git@git.example:me/house.git"])
def test_an_export_names_its_project_by_a_repository_of_it(alice, log_in, named):
    a_chat(alice, "House", text="Oak")
    a_chat(alice, text="Cats")
    with acting_as(alice):
        projects.save_project(user=alice, name="House", labels=["me/house"])
    exporter = log_in(alice)
    for project, text in ((named, "Oak"), (f"-{named}", "Cats")):
        (conversation,) = exporter.get("/api/v1/account/export/", params={"project": project}).json()["conversations"]
        assert conversation["turns"][0]["user_message"] == text
