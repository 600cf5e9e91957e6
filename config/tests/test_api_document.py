"""The OpenAPI document is built once per process, and can be read in a browser."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from drf_spectacular.generators import SchemaGenerator

from config import urls
from imports.models import ENTRY_KINDS

SCHEMA = "/api/v1/schema/"


@pytest.mark.medium
@pytest.mark.parametrize(
    ("query", "accept", "media_type"),
    [
        ("", "*/*", urls.JSON),
        ("", "text/html,application/xhtml+xml,*/*;q=0.8", urls.JSON),
        ("", "application/json", urls.JSON),
        ("", "application/vnd.oai.openapi", urls.YAML),
        ("", "application/yaml", urls.YAML),
        ("", "image/png", urls.YAML),
        ("?format=json", "application/yaml", urls.JSON),
        ("?format=yaml", "application/json", urls.YAML),
    ],
)
def test_it_comes_as_what_is_asked_for(query, accept, media_type):
    answer = Client().get(f"{SCHEMA}{query}", headers={"accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (200, media_type)
    read = json.loads if media_type == urls.JSON else yaml.safe_load
    assert read(answer.content)["openapi"] == "3.1.0"
    assert "Accept" in answer["Vary"]


def test_a_format_that_there_is_not_is_named():
    answer = Client().get(f"{SCHEMA}?format=xml")
    assert answer.status_code == 400
    assert answer.json()["errors"] == {"format": ["This is one of json, yaml."]}


@pytest.mark.medium
def test_a_client_that_has_it_is_told_so_and_a_cache_may_keep_it():
    first = Client().get(SCHEMA)
    assert first["Cache-Control"] == "public, no-cache"
    again = Client().get(SCHEMA, headers={"if-none-match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    other = Client().get(f"{SCHEMA}?format=yaml", headers={"if-none-match": first["ETag"]})
    assert other.status_code == 200


@pytest.mark.medium
def test_a_parameter_says_which_words_it_takes():
    paths = json.loads(urls.document(urls.JSON)[0])["paths"]
    asked = {
        each["name"]: each["schema"] for each in paths["/api/v1/imports/{import_id}/preview/"]["get"]["parameters"]
    }
    assert set(asked["kind"]["enum"]) == {*ENTRY_KINDS} and "stored" in asked["status"]["enum"]


def test_many_who_ask_at_once_have_it_built_once(monkeypatch):
    built, original = [], SchemaGenerator.get_schema

    def get_schema(self, *args, **kwargs):
        built.append(threading.get_ident())
        return original(self, *args, **kwargs)

    monkeypatch.setattr(SchemaGenerator, "get_schema", get_schema)
    urls._rendered.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        bodies = set(pool.map(lambda _: urls.document(urls.JSON)[0], range(8)))
    assert (len(built), len(bodies)) == (1, 1)


@pytest.mark.django_db
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"cookie": "sessionid=wrong0123456789"}])
def test_it_asks_the_database_nothing(headers):
    with CaptureQueriesContext(connection) as asked:
        assert Client(headers=headers).get(SCHEMA).status_code == 200
    assert [query["sql"] for query in asked if "FROM" in query["sql"]] == []
