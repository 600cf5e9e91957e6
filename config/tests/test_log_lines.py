"""A log line says an exception's type and frames, and a request's route; the formatters decide it for every process."""

import json
import logging

import pytest
from django.test import Client
from django.urls import NoReverseMatch, reverse
from pydantic import BaseModel

from core.logs import JsonFormatter, LineFormatter

CANARY = "kwyjibo"
FORMATTERS = (LineFormatter, JsonFormatter)


class _Strict(BaseModel):
    number: int


def pydantic_quotes_its_input():
    _Strict.model_validate({"number": CANARY})


def an_address_quotes_its_arguments():
    reverse("intake:chat", kwargs={"nothing": CANARY})


def one_error_causes_another():
    try:
        pydantic_quotes_its_input()
    except ValueError as error:
        raise RuntimeError(CANARY) from error


def a_group_holds_them():
    raise ExceptionGroup(CANARY, [ValueError(CANARY)])


FAILURES = (pydantic_quotes_its_input, an_address_quotes_its_arguments, one_error_causes_another, a_group_holds_them)


@pytest.fixture(params=FORMATTERS)
def written(request):
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append(self.format(record))

    handler = Handler()
    handler.setFormatter(request.param())
    logging.getLogger().addHandler(handler)
    yield lines
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("fail", FAILURES)
def test_an_exception_is_named_with_its_frames_and_without_its_message(written, fail):
    try:
        fail()
    except (ValueError, NoReverseMatch, RuntimeError, ExceptionGroup) as error:
        logging.getLogger("intake").exception("It failed: %s", error)
        logging.getLogger("intake").error(error)
    text = "\n".join(written)
    assert "Error" in text or "NoReverseMatch" in text or "ExceptionGroup" in text
    assert fail.__name__ in text
    assert CANARY not in text


def test_a_task_is_named_without_its_arguments_result_and_error(written):
    said = {
        "name": "memory.tasks.embed",
        "id": "1",
        "exc": CANARY,
        "traceback": CANARY,
        "args": CANARY,
        "return_value": CANARY,
    }
    logging.getLogger("celery.app.trace").error("Task %(name)s[%(id)s] raised: %(exc)s\n%(traceback)s", said)
    assert "memory.tasks.embed[1]" in written[-1]
    assert CANARY not in written[-1]


@pytest.mark.django_db
def test_a_missing_page_is_logged_without_its_path(written):
    Client(raise_request_exception=False).get(f"/{CANARY}/", {"q": CANARY})
    Client(raise_request_exception=False).get(f"/c/{CANARY}/")
    assert any("404" in line for line in written)
    assert CANARY not in "\n".join(written)


def test_a_json_line_is_one_object(written):
    logging.getLogger("intake").warning("a\nb %d", 1)
    assert "a" in (json.loads(written[-1])["message"] if written[-1].startswith("{") else written[-1])
