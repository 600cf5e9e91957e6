"""The first answer after a start comes as soon as a later one: what it needs was loaded before anybody asked."""

import asyncio
import os
import statistics
import sys
import time
from urllib.parse import urlsplit

import httpx2
import pytest
from django.conf import settings as project
from django.db import connection

from chat.answers import warming
from config.tests.test_chat_served import Web
from intake.llm import models
from intake.models import Turn, User
from testing.model_server import Say, ScriptedModel
from testing.serving import serving

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

LATER = 5
# The aim is 1.5; a machine that does something else at that moment takes longer, and a cold start took a hundred times.
SLACK, SLACK_SECONDS = 3, 0.3


@pytest.fixture
def web(tmp_path):
    path = f"/{connection.settings_dict['NAME']}"
    urls = {name: urlsplit(os.environ[name])._replace(path=path) for name in ("DATABASE_URL", "DATABASE_OWNER_URL")}
    with serving(ScriptedModel(*[Say(("Hello.",))] * (LATER + 1)).application) as address:
        environment = {
            **os.environ,
            **{name: url.geturl() for name, url in urls.items()},
            "DJANGO_SETTINGS_MODULE": "config.settings.local",
            "SECRET_KEY": project.SECRET_KEY,
            "RECOLLECT_VAR": str(tmp_path),
            "MODEL_CACHE_DIR": str(project.MODEL_CACHE_DIR),
            "EMBEDDING_LANGUAGES": "english",
            "LLM_MODEL": "scripted",
            # A title is one more request, which no script expects.
            "CHAT_TITLES": "false",
            "LLM_BASE_URL": f"{address}/v1",
        }
        web = Web(environment, tmp_path / "web.log")
        try:
            web.start()
            yield web
        finally:
            web.end()


def until_warm(web, seconds=120):
    deadline = time.monotonic() + seconds
    while "Warmed up" not in web.log.read_text():
        assert time.monotonic() < deadline, web.log.read_text()
        time.sleep(0.1)


def seconds_to_the_first_events(web):
    """Until `turn`, and until the first text, for a new visitor."""
    seen = {}
    with httpx2.Client(base_url=web.address, timeout=60) as client:
        client.get("/")
        began, headers = time.monotonic(), {"X-CSRFToken": client.cookies["csrftoken"]}
        with client.stream("POST", "/api/v1/intake/chat", json={"message": "Hello"}, headers=headers) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    seen.setdefault(line.removeprefix("event: "), time.monotonic() - began)
    assert "done" in seen
    return seen["turn"], seen["delta"]


def test_the_first_answer_after_a_start_is_as_quick_as_a_later_one(web):
    until_warm(web)
    first, *later = [seconds_to_the_first_events(web) for _ in range(1 + LATER)]
    for name, took, others in zip(("turn", "delta"), first, zip(*later, strict=True), strict=True):
        usual = statistics.median(others)
        sys.stdout.write(f"{name}: {took:.3f} s at first, {usual:.3f} s later\n")
        assert took <= SLACK * usual + SLACK_SECONDS, name


def test_warming_up_asks_no_vendor_and_builds_what_is_asked_with(settings, logged):
    model = ScriptedModel()
    with serving(model.application) as address:
        settings.LLM_MODEL, settings.LLM_BASE_URL = "scripted", f"{address}/v1"

        async def warm_up():
            await warming.warm_up()
            kept = dict(models._models[asyncio.get_running_loop()])
            await models.close_connections()
            return kept

        kept = asyncio.run(warm_up())
    assert [(each.name, each.base_url) for each in kept] == [("scripted", f"{address}/v1")]
    assert model.requests == []
    assert not User.objects.exists() and not Turn.objects.exists(), "nothing stays of what was saved"
    assert not logged.about("could not be warmed up")


def test_a_model_that_cannot_be_built_keeps_no_process_from_starting(monkeypatch, logged):
    monkeypatch.setattr("intake.llm.models.warm_up", None)
    asyncio.run(warming.warm_up())
    assert logged.about("could not be warmed up (TypeError)")
