"""Staff choose the search of the web: it is tried before it is kept, and each mistake is named beside its field."""

import pytest
from django.test import Client

from chat.agent import search_engines
from intake.llm.language_models import opened_key
from intake.models import User, installation
from testing.web import Web, served

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]
PLACE, KEY = "/staff/search/", "BSA-rumpelstiltskin"


@pytest.fixture(autouse=True)
def nothing_kept():
    installation.forget_kept_settings()
    yield
    installation.forget_kept_settings()


@pytest.fixture
def web(monkeypatch):
    with served(Web(), monkeypatch) as web:
        monkeypatch.setattr(search_engines, "ADDRESSES", dict.fromkeys(("brave", "tavily"), f"{web.address}/find"))
        yield web


@pytest.fixture
def staff():
    browser = Client()
    browser.force_login(User.objects.create_user("alice@example.com", "password", is_staff=True))
    return browser


def choose(staff, **fields):
    return staff.post(PLACE, fields, follow=True).content.decode()


def test_searxng_without_json_is_refused_with_the_line_to_add(web, staff):
    web.speaks_json = False
    assert "Add `json` to `formats` under `search`" in choose(staff, kind="searxng", address=web.address)
    assert search_engines.chosen_engine() is None
    web.speaks_json = True
    assert "Saved." in choose(staff, kind="searxng", address=f"{web.address}/")
    assert search_engines.chosen_engine() == {"kind": "searxng", "address": web.address, "sealed": ""}
    assert web.searched == ["recollect", "recollect"]
    assert "Saved." in choose(staff, kind="")
    assert search_engines.chosen_engine() is None


@pytest.mark.parametrize("kind", ["brave", "tavily"])
def test_a_key_is_tried_sealed_never_shown_and_goes_to_no_other_service(web, staff, kind):
    web.key = KEY
    assert "The search does not accept this key." in choose(staff, kind=kind, api_key="wrong")
    assert "Enter the key." in choose(staff, kind=kind)
    assert KEY not in choose(staff, kind=kind, api_key=KEY)
    kept = search_engines.chosen_engine()
    assert KEY not in str(kept) and opened_key(kept["sealed"]) == KEY
    assert "Saved." in choose(staff, kind=kind)
    asked = len(web.asked)
    other = {"brave": "tavily", "tavily": "brave"}[kind]
    assert "Enter the key." in choose(staff, kind=other)
    assert len(web.asked) == asked


@pytest.mark.parametrize("address", ["http://169.254.169.254", "http://127.0.0.1:1", "searxng", ""])
def test_an_address_that_is_none_does_not_answer_or_is_a_clouds_is_not_kept(staff, address):
    assert "field-error" in choose(staff, kind="searxng", address=address)
    assert search_engines.chosen_engine() is None


@pytest.mark.parametrize(
    "found", [b"[" * 20_000, b"<html>", b"[]", b'{"results": [1]}', b'{"results": [{"url": null}]']
)
def test_what_is_no_answer_of_a_search_is_named(web, staff, found):
    web.found = found
    assert "This is no answer of a search." in choose(staff, kind="searxng", address=web.address)


def test_only_staff_choose(web):
    person = Client()
    person.force_login(User.objects.create_user("bob@example.com", "password"))
    assert person.post(PLACE, {"kind": "searxng", "address": web.address}).status_code == 404
    assert web.asked == []
