"""Ways to call this app's REST edge, for tests, and what each refusal looks like."""

import json

from django.apps import apps
from django.test import Client


def client_of(user):
    """With a token, which another app makes."""
    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=user)
    return Client(headers={"authorization": f"Token {token}"})


def send(method, url, body, **headers):
    """`body`: what becomes JSON, or the very bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return method(url, data=data, content_type="application/json", headers=names)


def assert_problem(response, status, code, field=None):
    assert response.status_code == status, response.content
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert (problem["status"], problem["code"]) == (status, code)
    assert list(problem.get("errors", {})) == ([field] if field else [])
    return problem
