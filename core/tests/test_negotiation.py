"""In what form the API answers: as DRF decides it, whichever way it is decided."""

import pytest
from django.test import RequestFactory
from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer, StaticHTMLRenderer
from rest_framework.request import Request

from core.negotiation import Negotiation


def chosen(by, renderers, accept):
    headers = {} if accept is None else {"accept": accept}
    try:
        renderer, media_type = by.select_renderer(Request(RequestFactory().get("/", headers=headers)), renderers)
    except NotAcceptable:
        return None
    return type(renderer), media_type


@pytest.mark.parametrize(
    "renderers", [[JSONRenderer()], [StaticHTMLRenderer()], [StaticHTMLRenderer(), JSONRenderer()]]
)
@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json",
        "application/json; indent=4",
        "application/*",
        "text/html",
        "text/html, */*;q=0.1",
        "application/problem+json",
        "nonsense",
    ],
)
def test_what_is_chosen_is_what_drf_would_choose(renderers, accept):
    assert chosen(Negotiation(), renderers, accept) == chosen(DefaultContentNegotiation(), renderers, accept)


def test_the_usual_request_is_not_weighed_at_length(monkeypatch):
    monkeypatch.setattr(DefaultContentNegotiation, "select_renderer", None)
    for accept in (None, "*/*", "application/json"):
        assert chosen(Negotiation(), [JSONRenderer()], accept) == (JSONRenderer, "application/json")


@pytest.mark.django_db
@pytest.mark.parametrize(("accept", "status"), [("*/*", 401), ("application/json", 401), ("text/html", 406)])
def test_who_takes_no_json_is_told_that_there_is_nothing_else(client, accept, status):
    assert client.get("/api/v1/tools/", headers={"accept": accept}).status_code == status
