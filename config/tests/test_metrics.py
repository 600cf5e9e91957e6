"""`/metrics` counts what a web process does, shows it to whom it is for, and has no person in it."""

import re

import pytest
from django.test import Client

from intake.tests.factories import a_person, a_turn
from testing.model_server import Say

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = {"Authorization": "Bearer scrape"}


@pytest.fixture(autouse=True)
def scraped(settings):
    settings.METRICS_TOKEN = "scrape"


def figures(client):
    answer = client.get("/metrics", headers=TOKEN)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found = re.findall(r"^(recollect_[a-z_]+(?:\{[^}]*\})?) (\S+)$", answer.text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_requests_searches_and_first_texts_are_counted(log_in, person, language_model):
    language_model(Say(("Hello.",)))
    client = log_in(person)
    before = figures(client)
    client.events("Hello")
    body = {"query": "cats", "mode": "hybrid"}
    assert client.post("/api/v1/tools/search_chat_history/", json=body, headers=client._csrf()).status_code == 200
    assert client.post("/api/v1/tools/search_chat_history/", json={}, headers=client._csrf()).status_code == 400
    client.get("/nowhere")
    after = figures(client)

    def more(name):
        return after[name] - before.get(name, 0)

    assert more('recollect_requests_total{kind="chat",status="200"}') == 1
    assert more('recollect_requests_total{kind="tool",status="200"}') == 1
    assert more('recollect_requests_total{kind="tool",status="400"}') == 1
    assert more('recollect_requests_total{kind="page",status="404"}') == 1
    assert more('recollect_tool_calls_total{mode="hybrid",tool="search_chat_history"}') == 1
    assert more("recollect_first_text_seconds_count") == 1
    assert after['recollect_database_connections{state="open"}'] >= 1


def test_the_queue_is_told_by_its_length_and_age(visitor):
    assert figures(visitor)["recollect_pending_vectors"] == 0
    a_turn(a_person("alice@example.com"), "I adopted a cat")
    shown = figures(visitor)
    assert shown["recollect_pending_vectors"] >= 1
    assert shown["recollect_queue_seconds"] >= 0


@pytest.mark.parametrize(
    ("token", "given", "address", "forwarded", "status"),
    [
        ("scrape", "Bearer scrape", "203.0.113.9", None, 200),
        ("scrape", "Bearer wrong", "127.0.0.1", None, 404),
        ("scrape", "", "127.0.0.1", None, 404),
        ("", "", "127.0.0.1", None, 200),
        ("", "", "10.1.2.3", None, 200),
        ("", "", "203.0.113.9", None, 404),
        ("", "", "127.0.0.1", "198.51.100.7", 404),
        ("", "", "", None, 404),
    ],
)
def test_it_is_for_a_token_or_without_one_for_the_house(settings, token, given, address, forwarded, status):
    settings.METRICS_TOKEN = token
    headers = {"Authorization": given} | ({"X-Forwarded-For": forwarded} if forwarded else {})
    assert Client(REMOTE_ADDR=address).get("/metrics", headers=headers).status_code == status


@pytest.mark.parametrize("name", ["Forwarded", "Via"])
def test_it_is_closed_behind_a_proxy_of_any_kind(settings, name):
    settings.METRICS_TOKEN = ""
    assert Client(REMOTE_ADDR="127.0.0.1").get("/metrics", headers={name: "for=198.51.100.7"}).status_code == 404


def test_no_label_names_a_person(log_in, person):
    client = log_in(person)
    client.get("/search/", params={"q": "kwyjibo"})
    client.get("/kwyjibo/")
    shown = client.get("/metrics", headers=TOKEN).text
    assert "kwyjibo" not in shown
    assert "person@" not in shown
