"""Memory records over REST: noted, listed, read, deleted; each refusal a problem in the contract's words."""

import json

import pytest
from django.test import Client

from core.ids import uuid7
from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person
from memory import records
from memory.models import MemoryRecord
from memory.models.documents import MAX_LABEL_LENGTH, MAX_RECORD_LENGTH, MAX_TAGS
from memory.projects import save_project
from memory.tests.over_rest import assert_problem, send

pytestmark = pytest.mark.django_db

URL = "/api/v1/memory/records/"


def post(api, body):
    return send(api.post, URL, body)


def test_a_noted_record_is_read_and_deleted(api):
    requested = {"content": "We chose PostgreSQL", "type": "DECISION", "project_id": "recollect", "tags": ["db", "rca"]}
    made = post(api, requested)
    assert made.status_code == 201
    body = made.json()
    assert {name: body[name] for name in requested} == requested
    assert body.keys() == {*requested, "id", "created_at"}
    url = f"{URL}{body['id']}/"
    assert api.get(url).json() == body
    assert api.get(url).headers["Cache-Control"] == "private, no-store"
    assert api.delete(url).status_code == 204
    assert_problem(api.get(url), 404, "not_found")
    assert_problem(api.delete(url), 404, "not_found")


def test_only_the_content_must_be_given(api):
    body = post(api, {"content": "A cat"}).json()
    assert (body["type"], body["project_id"], body["tags"]) == ("note", "", [])


def test_somebody_elses_record_is_byte_for_byte_as_if_it_were_not_there(api):
    bob = a_person("bob@example.com")
    theirs = records.create(user=bob, content="Bob's", now=NOW)
    answers = {api.get(f"{URL}{record_id}/").content for record_id in (theirs.id, uuid7(), "nonsense", "%00")}
    answers |= {api.delete(f"{URL}{record_id}/").content for record_id in (theirs.id, uuid7(), "nonsense")}
    assert len(answers) == 1
    wrong = [send(api.patch, f"{URL}{record_id}/", {"x": 1}) for record_id in (theirs.id, uuid7(), "nonsense")]
    assert {each.status_code for each in wrong} == {400} and len({each.content for each in wrong}) == 1
    assert_problem(api.get(f"{URL}{theirs.id}/"), 404, "not_found")
    assert records.read(user=bob, record_id=theirs.id) == theirs
    assert api.get(URL).json()["records"] == []


def test_records_are_listed_newest_first_page_by_page(api):
    made = [post(api, {"content": f"Number {number}"}).json()["id"] for number in range(5)]
    listed, query = [], {"limit": 2}
    while True:
        page = api.get(URL, query).json()
        listed += [record["id"] for record in page["records"]]
        if page["after"] is None:
            break
        query["after"] = page["after"]
    assert listed == made[::-1]
    assert "+" not in query["after"], "it would be read as a space"


def test_the_list_is_narrowed(api):
    post(api, {"content": "one", "type": "RCA", "project_id": "p", "tags": ["x"]})
    post(api, {"content": "two", "type": "FACT", "tags": ["x", "y"]})

    def listed(**query):
        return [record["content"] for record in api.get(URL, query).json()["records"]]

    assert listed(type="RCA") == ["one"]
    assert listed(project_id="p") == ["one"]
    assert listed(project_id="") == ["two"]
    assert listed(tag="x") == ["two", "one"]
    assert listed(tag="x", type="FACT") == ["two"]
    assert listed(tag="it's {a,b} \\ \"") == []


def test_a_list_names_its_project_by_a_repository_of_it(api, alice):
    with acting_as(alice):
        save_project(user=alice, name="House", labels=["me/house"])
    post(api, {"content": "oak", "project_id": "me/house"})
    post(api, {"content": "cats"})
    for named in ("House", "me/house", "git@git.example:me/house.git"):
        assert [each["content"] for each in api.get(URL, {"project_id": named}).json()["records"]] == ["oak"], named


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "content"),
        ({}, "content"),
        ({"content": ""}, "content"),
        ({"content": " "}, "content"),
        ({"content": None}, "content"),
        ({"content": 5}, "content"),
        ({"content": "a\0b"}, "content"),
        ({"content": "x" * (MAX_RECORD_LENGTH + 1)}, "content"),
        ({"content": "x", "type": ""}, "type"),
        ({"content": "x", "type": None}, "type"),
        ({"content": "x", "type": "x" * 101}, "type"),
        ({"content": "x", "project_id": 5}, "project_id"),
        ({"content": "x", "project_id": "a\0b"}, "project_id"),
        ({"content": "x", "tags": "x"}, "tags"),
        ({"content": "x", "tags": [5]}, "tags.0"),
        ({"content": "x", "tags": ["a\0b"]}, "tags"),
        ({"content": "x", "tags": ["x" * 101]}, "tags"),
        ({"content": "x", "tags": [str(number) for number in range(51)]}, "tags"),
        ({"content": "x", "id": str(uuid7())}, "id"),
        ({"content": "x", "user": 1}, "user"),
    ],
)
def test_a_wrong_record_is_refused_naming_the_field(api, body, field):
    assert_problem(post(api, body), 400, "validation_error", field)
    assert not MemoryRecord.objects.exists()


@pytest.mark.parametrize("body", [b"no json", b"[]", b'"x"', b"[" * 20_000, b'{"tags":' + b"[" * 20_000, b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(api, body):
    assert_problem(post(api, body), 400, "validation_error")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("after=nonsense", "after"),
        ("after=2026-03-01T12:00:00_x", "after"),
        ("after=%00", "after"),
        ("type=%00", "type"),
        ("project_id=a%00b", "project_id"),
        ("tag=%00", "tag"),
        ("tags=x", "tags"),
        ("type=a&type=b", "type"),
    ],
)
def test_a_wrong_query_is_refused_naming_the_parameter(api, query, field):
    assert_problem(api.get(f"{URL}?{query}"), 400, "validation_error", field)


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "2026-03-01T12:00:00+23:59", "9999-12-31T23:59:59Z"])
def test_a_list_goes_on_from_any_moment(api, moment):
    assert api.get(URL, {"after": f"{moment}_{uuid7()}"}).status_code == 200


def test_another_method_is_refused_as_a_problem(api):
    assert_problem(api.put(URL), 405, "validation_error")
    assert_problem(api.put(f"{URL}{uuid7()}/"), 405, "validation_error")


def test_without_credentials_it_is_refused():
    assert_problem(Client().get(URL), 401, "authentication_required")
    assert_problem(post(Client(), {"content": "x"}), 401, "authentication_required")
    assert not MemoryRecord.objects.exists()


def test_the_openapi_document_has_every_path_with_its_problems(api):
    paths = api.get("/api/v1/schema/", headers={"accept": "application/vnd.oai.openapi+json"}).json()["paths"]
    assert paths[URL].keys() == {"get", "post"}
    assert paths[URL + "{record_id}/"].keys() == {"get", "patch", "delete"}
    assert {"201", "400", "401", "413", "415", "503"} <= paths[URL]["post"]["responses"].keys()
    assert "application/problem+json" in paths[URL + "{record_id}/"]["get"]["responses"]["404"]["content"]


def test_the_openapi_document_describes_a_record_once_with_the_limits_of_fields(api):
    document = api.get("/api/v1/schema/", headers={"accept": "application/vnd.oai.openapi+json"}).json()
    shapes = document["components"]["schemas"]
    record = {"$ref": "#/components/schemas/RecordOutput"}
    assert shapes["RecordList"]["properties"]["records"]["items"] == record
    assert all(
        shapes[name]["properties"]["record"].items() >= record.items() for name in ("MemoryResult", "SaveMemoryOutput")
    )
    assert all(field["description"] for field in shapes["RecordOutput"]["properties"].values())
    for name in ("RecordBody", "PatchedRecordChange", "SaveMemoryInput"):
        fields = shapes[name]["properties"]
        most = (fields["content"]["maxLength"], fields["type"]["maxLength"], fields["tags"]["maxItems"])
        assert most == (MAX_RECORD_LENGTH, MAX_LABEL_LENGTH, MAX_TAGS)


def test_a_record_is_changed_where_one_says_and_found_by_its_new_words(api, alice):
    made = post(api, {"content": "We chose Oracle", "type": "DECISION", "tags": ["db"]}).json()
    url = f"{URL}{made['id']}/"
    tag = api.get(url).headers["ETag"]
    changed = send(api.patch, url, {"content": "We chose PostgreSQL"}, if_match=tag)
    assert changed.json() == {**made, "content": "We chose PostgreSQL"} == api.get(url).json()
    assert_problem(send(api.patch, url, {"tags": []}, if_match=tag), 412, "conflict")
    assert send(api.patch, url, {"tags": []}).json()["tags"] == []
    assert_problem(send(api.patch, url, {"content": " "}), 400, "validation_error", "content")
    found = [
        send(api.post, "/api/v1/tools/search_history/", {"query": word}).json() for word in ("PostgreSQL", "Oracle")
    ]
    assert ["We chose PostgreSQL" in answer["text"] for answer in found] == [True, False]
    assert_problem(send(api.patch, f"{URL}{uuid7()}/", {"content": "x"}), 404, "not_found")


def change(api, record_id, body):
    return api.patch(f"{URL}{record_id}/", json.dumps(body), content_type="application/json")


def test_a_record_replaces_another_which_the_list_leaves_out(api):
    oak = post(api, {"content": "The worktop is oak"}).json()
    walnut = post(api, {"content": "The worktop is walnut", "replaces": oak["id"], "validFrom": "2026-03-01"}).json()
    assert (walnut["replaces"], walnut["validFrom"]) == (oak["id"], "2026-03-01")
    assert [record["id"] for record in api.get(URL).json()["records"]] == [walnut["id"]]
    found = {record["id"]: record for record in api.get(URL, {"include_replaced": "true"}).json()["records"]}
    assert found[oak["id"]] | {"replacedBy": walnut["id"], "replacedOn": "2026-03-01"} == found[oak["id"]]
    assert_problem(post(api, {"content": "Maple", "replaces": oak["id"]}), 400, "validation_error", "replaces")
    assert_problem(post(api, {"content": "Maple", "replaces": str(uuid7())}), 404, "not_found")
    assert change(api, walnut["id"], {"replaces": None}).status_code == 200
    assert {record["id"] for record in api.get(URL).json()["records"]} == {oak["id"], walnut["id"]}


def test_a_todo_is_marked_as_done_and_as_open(api):
    made = post(api, {"content": "Oil the worktop", "type": "todo"}).json()
    assert "doneAt" not in made
    assert change(api, made["id"], {"done": True}).json()["doneAt"]
    assert change(api, made["id"], {"tags": ["x"]}).json()["doneAt"]
    assert "doneAt" not in change(api, made["id"], {"done": None}).json()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"validFrom": "tomorrow"}, "validFrom"),
        ({"validUntil": "2026-13-01"}, "validUntil"),
        ({"validFrom": "2026-03-02", "validUntil": "2026-03-01"}, "validUntil"),
        ({"replaces": "oak"}, "replaces"),
        ({"done": True}, "done"),
        ({"valid_from": "2026-03-01"}, "valid_from"),
    ],
)
def test_a_wrong_fact_is_refused_naming_the_field(api, body, field):
    assert_problem(post(api, {"content": "The worktop is oak", **body}), 400, "validation_error", field)
    assert not MemoryRecord.objects.exists()
