"""Documents over REST: read, written with what was read, appended to; each refusal a problem in the contract's words."""

import pytest
from django.db import OperationalError
from django.test import Client

from intake.tests.factories import a_person
from memory import documents
from memory.models import MemoryDocument
from memory.models.documents import MAX_DOCUMENT_LENGTH
from memory.tests.over_rest import assert_problem, client_of, send

pytestmark = pytest.mark.django_db

MEMORY = "/api/v1/memory/documents/memory/"
LOGS = "/api/v1/memory/documents/daily-logs/"
LOG = LOGS + "2026-03-01/"
BOTH = pytest.mark.parametrize("url", [MEMORY, LOG])


def put(api, url, content, **headers):
    return send(api.put, url, {"content": content}, **headers)


@BOTH
def test_a_first_write_makes_the_document(api, url):
    made = put(api, url, "# Me\n🐈")
    assert made.status_code == 201
    found = api.get(url)
    assert found.json() == made.json()
    assert found.headers["ETag"] == made.headers["ETag"]
    body = found.json()
    assert body.keys() == {"date", "project", "content", "version", "created_at", "updated_at"}
    assert (body["date"], body["content"], body["version"]) == (None if url == MEMORY else "2026-03-01", "# Me\n🐈", 1)
    assert body["created_at"].endswith("Z")


@BOTH
def test_overwriting_takes_the_etag_of_what_was_read(api, url):
    first = put(api, url, "first").headers["ETag"]
    second = put(api, url, "second", If_Match=first)
    assert (second.status_code, second.json()["version"]) == (200, 2)
    assert second.headers["ETag"] != first
    assert_problem(put(api, url, "third", If_Match=first), 412, "conflict")
    assert api.get(url).json()["content"] == "second"


@BOTH
def test_overwriting_without_an_etag_is_refused_and_told_how_to_get_one(api, url):
    put(api, url, "first")
    problem = assert_problem(put(api, url, "second"), 428, "precondition_required")
    assert "If-Match" in problem["detail"]
    assert "ETag" in problem["detail"]
    assert api.get(url).json()["content"] == "first"


@BOTH
@pytest.mark.parametrize("if_match", ["*", '"nonsense", {}'])
def test_any_of_several_etags_and_a_star_will_do(api, url, if_match):
    etag = put(api, url, "first").headers["ETag"]
    assert put(api, url, "second", If_Match=if_match.format(etag)).status_code == 200


@BOTH
@pytest.mark.parametrize("if_match", ["1", '"1"', "W/{}", "nonsense", "", '"', "\\"])
def test_what_is_no_etag_of_the_document_is_stale(api, url, if_match):
    etag = put(api, url, "first").headers["ETag"]
    assert_problem(put(api, url, "second", If_Match=if_match.format(etag)), 412, "conflict")


@BOTH
def test_writing_only_what_is_new_and_only_what_is_there(api, url):
    assert_problem(put(api, url, "x", If_Match="*"), 412, "conflict")
    assert put(api, url, "first", If_None_Match="*").status_code == 201
    assert_problem(put(api, url, "second", If_None_Match="*"), 412, "conflict")
    assert api.get(url).json()["content"] == "first"


@BOTH
def test_who_has_it_already_is_told_so(api, url):
    etag = put(api, url, "first").headers["ETag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        response = api.get(url, headers={"If-None-Match": known})
        assert (response.status_code, response.content, response.headers["ETag"]) == (304, b"", etag)
    assert api.get(url, headers={"If-None-Match": '"other"'}).status_code == 200


@BOTH
def test_no_cache_keeps_it(api, url):
    put(api, url, "first")
    assert api.get(url).headers["Cache-Control"] == "private, no-store"


@BOTH
def test_deleting_takes_the_etag_too(api, url):
    assert_problem(api.delete(url), 404, "not_found")
    etag = put(api, url, "first").headers["ETag"]
    assert_problem(api.delete(url), 428, "precondition_required")
    assert_problem(api.delete(url, headers={"If-Match": '"stale"'}), 412, "conflict")
    assert api.delete(url, headers={"If-Match": etag}).status_code == 204
    assert_problem(api.get(url), 404, "not_found")


@BOTH
def test_appending_makes_the_document_and_needs_no_etag(api, url):
    first = send(api.post, url + "append/", {"text": "Met Vera"})
    second = send(api.post, url + "append/", {"text": "Bought bread\n"})
    assert (first.status_code, second.status_code) == (200, 200)
    assert second.json()["content"] == "Met Vera\nBought bread\n"
    assert put(api, url, "mine", If_Match=second.headers["ETag"]).status_code == 200
    assert_problem(put(api, url, "mine", If_Match=first.headers["ETag"]), 412, "conflict")


@BOTH
def test_a_full_document_refuses_an_append(api, url):
    put(api, url, "x")
    # Of the longest one nothing is indexed here.
    MemoryDocument.objects.update(content="x" * MAX_DOCUMENT_LENGTH)
    problem = assert_problem(send(api.post, url + "append/", {"text": "more"}), 413, "too_large")
    assert "500,000" in problem["detail"]


BAD_TEXTS = [None, 5, ["x"], {"x": 1}, True, "a\0b", "x" * (MAX_DOCUMENT_LENGTH + 1)]


@BOTH
@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda text: str(text)[:9])
def test_a_wrong_text_is_refused_and_loses_nothing(api, url, text):
    etag = put(api, url, "kept").headers["ETag"]
    assert_problem(put(api, url, text, If_Match=etag), 400, "validation_error", "content")
    assert_problem(send(api.post, url + "append/", {"text": text}), 400, "validation_error", "text")
    assert api.get(url).headers["ETag"] == etag


@BOTH
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "content"),
        ({}, "content"),
        ({"content": "x", "user": 1}, "user"),
        ({"content": "x", "version": 1}, "version"),
    ],
)
def test_a_wrong_body_is_refused_naming_the_field(api, url, body, field):
    assert_problem(send(api.put, url, body), 400, "validation_error", field)


@pytest.mark.parametrize("body", [b"no json", b"[]", b'"x"', b"[" * 20_000, b'{"content":' * 20_000, b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(api, body):
    for method, url in ((api.put, MEMORY), (api.post, MEMORY + "append/"), (api.put, LOG), (api.post, LOG + "append/")):
        assert_problem(send(method, url, body), 400, "validation_error")
    assert not MemoryDocument.objects.exists()


def test_another_kind_of_body_is_refused(api):
    response = api.put(MEMORY, data="content=x", content_type="application/x-www-form-urlencoded")
    assert_problem(response, 415, "validation_error")


BAD_DATES = [
    "yesterday",
    "2026-02-30",
    "2026-3-1",
    "20260301",
    "2026-W09-7",
    "2026-03-01T00:00",
    "1",
    "-",
    "%00",
    "\uff12026-03-01",
]


@pytest.mark.parametrize("date", BAD_DATES)
def test_what_is_no_date_is_told_to_writers_and_not_found_by_readers(api, date):
    assert_problem(put(api, f"{LOGS}{date}/", "x"), 400, "validation_error", "date")
    assert_problem(send(api.post, f"{LOGS}{date}/append/", {"text": "x"}), 400, "validation_error", "date")
    assert_problem(api.get(f"{LOGS}{date}/"), 404, "not_found")
    assert_problem(api.delete(f"{LOGS}{date}/"), 404, "not_found")


@pytest.mark.parametrize("date", ["0001-01-01", "1899-12-31", "3000-01-01", "9999-12-31"])
def test_a_day_that_nobody_means_is_refused(api, date):
    assert_problem(put(api, f"{LOGS}{date}/", "x"), 400, "validation_error", "date")
    assert_problem(api.get(f"{LOGS}{date}/"), 404, "not_found")


def test_somebody_elses_log_is_byte_for_byte_as_if_it_were_not_there(api):
    bob = client_of(a_person("bob@example.com"))
    put(bob, LOG, "Bob's")
    absent = LOGS + "2026-03-02/"
    assert api.get(LOG).content == api.get(absent).content
    star = {"If-Match": "*"}
    assert api.delete(LOG, headers=star).content == api.delete(absent, headers=star).content
    assert put(api, LOG, "x", If_Match="*").content == put(api, absent, "x", If_Match="*").content
    assert put(api, LOG, "Alice's").status_code == 201
    assert bob.get(LOG).json()["content"] == "Bob's"


def test_logs_are_listed_latest_day_first_page_by_page(api):
    put(api, MEMORY, "not a log")
    for day in (1, 3, 2):
        put(api, f"{LOGS}2026-03-0{day}/", "x" * day)
    first = api.get(LOGS, {"limit": 2}).json()
    assert [log["date"] for log in first["logs"]] == ["2026-03-03", "2026-03-02"]
    assert first["logs"][0].keys() == {"date", "version", "length", "updated_at"}
    assert [log["length"] for log in first["logs"]] == [3, 2]
    rest = api.get(LOGS, {"limit": 2, "before": first["before"]}).json()
    assert ([log["date"] for log in rest["logs"]], rest["before"]) == (["2026-03-01"], None)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=many", "limit"),
        ("limit=", "limit"),
        ("before=yesterday", "before"),
        ("before=2026-02-30", "before"),
        ("before=1700006400", "before"),
        ("before=%00", "before"),
        ("user=1", "user"),
        ("limit=1&limit=2", "limit"),
    ],
)
def test_a_wrong_query_is_refused_naming_the_parameter(api, query, field):
    assert_problem(api.get(f"{LOGS}?{query}"), 400, "validation_error", field)


@pytest.mark.parametrize("url", [MEMORY, LOG, LOGS, MEMORY + "append/", LOG + "append/"])
def test_another_method_is_refused_as_a_problem(api, url):
    assert_problem(api.patch(url), 405, "validation_error")


@pytest.mark.parametrize("url", [MEMORY, LOG, LOGS])
def test_without_credentials_it_is_refused(url):
    assert_problem(Client().get(url), 401, "authentication_required")
    assert_problem(put(Client(), MEMORY, "x"), 401, "authentication_required")
    assert not MemoryDocument.objects.exists()


def test_a_session_writes_with_csrf_and_not_without(alice):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(alice)
    assert put(browser, MEMORY, "x").status_code == 401
    browser.get("/")
    assert put(browser, MEMORY, "x", X_CSRFToken=browser.cookies["csrftoken"].value).status_code == 201


def test_a_database_that_is_away_is_503_and_worth_a_retry(api, monkeypatch):
    def away(*_, **__):
        raise OperationalError("connection refused at /secret/socket")

    monkeypatch.setattr(documents, "read", away)
    response = api.get(MEMORY)
    assert assert_problem(response, 503, "unavailable")["retryable"]
    assert "secret" not in response.content.decode()


def test_the_openapi_document_has_every_path_with_its_problems(api):
    paths = api.get("/api/v1/schema/", headers={"accept": "application/vnd.oai.openapi+json"}).json()["paths"]
    for url in (MEMORY, LOGS + "{date}/"):
        assert paths[url].keys() == {"get", "put", "delete"}
        write = paths[url]["put"]
        assert {"200", "201", "400", "401", "412", "413", "415", "428", "503"} <= write["responses"].keys()
        assert "ETag" in write["responses"]["200"]["headers"]
        assert "If-Match" in {parameter["name"] for parameter in write["parameters"]}
        assert "application/problem+json" in write["responses"]["428"]["content"]
        assert paths[url + "append/"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"412", "428"}.isdisjoint(paths["/api/v1/intake/chat"]["post"]["responses"])


@BOTH
def test_a_project_has_documents_of_its_own(api, url):
    general, garden = put(api, url, "general"), put(api, f"{url}?project=Garden", "# Beds")
    assert (general.status_code, garden.status_code) == (201, 201)
    assert (general.json()["project"], garden.json()["project"]) == ("", "Garden")
    send(api.post, f"{url}append/?project=Garden", {"text": "- Beans"})
    assert api.get(f"{url}?project=Garden").json()["content"] == "# Beds\n- Beans\n"
    assert api.get(url).json()["content"] == "general"
    assert_problem(api.get(f"{url}?project=House"), 404, "not_found")
    etag = api.get(f"{url}?project=Garden").headers["ETag"]
    assert api.delete(f"{url}?project=Garden", headers={"If-Match": etag}).status_code == 204
    assert api.get(url).json()["content"] == "general"


def test_the_logs_of_a_project_are_listed_and_taken_back_apart(api):
    send(api.post, f"{LOG}append/?project=Garden", {"text": "Sown"})
    send(api.post, f"{LOG}append/?project=Garden", {"text": "Watered"})
    assert api.get(LOGS).json()["logs"] == []
    assert [each["date"] for each in api.get(LOGS, {"project": "Garden"}).json()["logs"]] == ["2026-03-01"]
    assert_problem(send(api.post, f"{LOG}take-back/", {"text": "Watered"}), 412, "conflict")
    assert send(api.post, f"{LOG}take-back/?project=Garden", {"text": "Watered"}).json()["content"] == "Sown\n"


@pytest.mark.parametrize("project", ["x" * 201, "%00", "-Garden"])
def test_what_can_be_no_project_is_refused(api, project):
    for url in (f"{MEMORY}?project={project}", f"{LOGS}?project={project}"):
        assert_problem(api.get(url), 400, "validation_error", "project")


def test_the_page_about_a_person_is_of_no_project(api):
    about = "/api/v1/memory/documents/about/?project=Garden"
    for answer in (api.get(about), put(api, about, "Me")):
        problem = assert_problem(answer, 400, "validation_error", "project")
        assert problem["errors"] == {"project": ["The page about you belongs to no project."]}
