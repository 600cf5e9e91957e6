"""Every text that may be sent has a limit, and one character more is refused in a sentence.

The inputs are found, not listed: in the OpenAPI document, in the tools' input models, in the forms, and in the headers
and addresses that the web process reads.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from django import forms
from django.apps import apps
from django.contrib.auth.forms import ReadOnlyPasswordHashField
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.test import Client

from agent_tools.tests.mcp_messages import call
from agent_tools.tools import mcp_registry
from chat.pages import common as of_notes
from chat.pages import forms as of_accounts
from chat.pages.common import DayField, TextField
from config import urls
from config.bodies import LONGEST_ADDRESS
from config.tests.endpoints.registered import ENDPOINTS, MCP_TOOLS, TOOLS
from core.isolation.staff import StaffLoginForm
from intake.accounts.forms import CodeForm
from intake.models import User

pytestmark = pytest.mark.django_db

# The format itself bounds the length of such a value, and a value of another format is refused.
BOUNDED_FORMATS = {"date", "date-time", "uuid", "binary"}
DOCUMENT = json.loads(urls.document(urls.JSON)[0])
METHODS = {"get", "put", "post", "delete", "patch"}


@dataclass(frozen=True)
class TextInput:
    """`limit`: in characters, or for a list in items; None where there is none."""

    where: str
    name: str
    limit: int | None
    is_list: bool = False


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        kind, name = schema["$ref"].split("/")[-2:]
        schema = (document[kind] if kind == "$defs" else document["components"][kind])[name]
    return schema


def texts(schema, document, *, where: str, name: str, around: dict[str, Any] | None = None) -> Iterator[TextInput]:
    schema = resolved(schema, document)
    limits = {**(around or {}), **{key: schema[key] for key in ("maxLength", "maxItems") if key in schema}}
    for variants in (schema.get(key, []) for key in ("anyOf", "oneOf", "allOf")):
        for variant in variants:
            yield from texts(variant, document, where=where, name=name, around=limits)
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    if "string" in types and "enum" not in schema and schema.get("format") not in BOUNDED_FORMATS:
        yield TextInput(where, name, limits.get("maxLength"))
    if "array" in types:
        yield TextInput(where, name, limits.get("maxItems"), is_list=True)
        yield from texts(schema.get("items", {}), document, where=where, name=f"{name}[]")
    for field, each in schema.get("properties", {}).items():
        yield from texts(each, document, where=where, name=f"{name}.{field}" if name else field)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            if method in METHODS:
                yield method.upper(), path, operation


def parameters(place: str) -> Iterator[TextInput]:
    for method, path, operation in operations():
        for parameter in operation.get("parameters", []):
            if parameter["in"] == place:
                yield from texts(parameter["schema"], DOCUMENT, where=f"{method} {path}", name=parameter["name"])


def bodies() -> Iterator[TextInput]:
    for method, path, operation in operations():
        for content in operation.get("requestBody", {}).get("content", {}).values():
            yield from texts(content["schema"], DOCUMENT, where=f"{method} {path}", name="")


def tools() -> Iterator[TextInput]:
    for tool in mcp_registry:
        schema = tool.input_model.model_json_schema()
        yield from texts(schema, schema, where=tool.name, name="")


def all_forms(base=forms.BaseForm) -> Iterator[type[forms.BaseForm]]:
    """Those of this project: of OAuth's toolkit none is used, of django-allauth those that `intake.accounts.forms` makes."""
    ours = {config.name for config in apps.get_app_configs()} - {"allauth", "oauth2_provider"}
    for form in base.__subclasses__():
        if form.__module__.split(".")[0] in ours:
            yield form
        yield from all_forms(form)


# The fields of Django's own forms for a new password, which the validators of passwords hold to a limit.
NO_TEXTS = (forms.ChoiceField, DayField, forms.BooleanField, forms.IntegerField)
CHOSEN = {"password1", "password2"}
INPUTS = [*bodies(), *tools(), *parameters("query"), *parameters("header")]


def test_the_walk_finds_them():
    found = {(each.where, each.name) for each in INPUTS}
    assert len(found) > 40
    assert {("POST /api/v1/intake/chat", "message"), ("search_history", "query"), ("save_memory", "tags[]")} <= found
    assert ("PUT /api/v1/memory/documents/memory/", "If-Match") in found
    assert {of_accounts.RegisterForm, CodeForm, of_notes.RecordFilter, StaffLoginForm} <= set(all_forms())


def test_every_one_says_its_limit():
    assert [each for each in INPUTS if each.limit is None] == []


# -- And is held to it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def alice(alice_now):
    return alice_now


def session_of(resident) -> Client:
    """A person may do everything in their session, and no token may."""
    client = Client()
    client.force_login(resident.user)
    return client


def too_long(found: TextInput) -> Any:
    return ["x"] * (found.limit + 1) if found.is_list else "x" * (found.limit + 1)


def with_value(data: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**data, name[:-2]: [value]} if name.endswith("[]") else {**data, name: value}


def at(where: str) -> tuple[str, str, Any]:
    """The method, the endpoint's address, and what a good request would be."""
    method, path = where.split(" ")
    plain = path.replace("{", "<").replace("}", ">")
    for endpoint in ENDPOINTS.values():
        if "/" + endpoint.route.replace("<str:", "<") == plain:
            return method, endpoint.at, endpoint.probes[method][0]
    raise AssertionError(f"{where} is in the document and not in the matrix")


@pytest.mark.medium
def test_every_body_is_refused_by_the_character_that_is_too_much(alice):
    client = session_of(alice)
    accepted = []
    for found in bodies():
        method, path, probe = at(found.where)
        data = with_value(alice.things.fill(probe.body or {}), found.name, too_long(found))
        answer = getattr(client, method.lower())(
            f"/{alice.things.fill(path)}",
            data,
            content_type="application/json",
            headers=alice.things.fill(probe.headers),
        )
        if answer.status_code != 400 or not _sentence(answer.json()):
            accepted.append((found.where, found.name, answer.status_code, answer.content[:200]))
    assert accepted == []


def _sentence(problem: dict[str, Any]) -> str:
    """What a person reads; none of the text that was sent."""
    said = [problem["detail"], *(each for sentences in problem.get("errors", {}).values() for each in sentences)]
    assert not any("xxxxx" * 30 in each for each in said)
    return "".join(said)


@pytest.mark.parametrize("place", ["query", "header"])
def test_every_parameter_is_refused_by_the_character_that_is_too_much(alice, place):
    client = session_of(alice)
    accepted = []
    for found in parameters(place):
        method, path, probe = at(found.where)
        sent = {found.name: too_long(found)}
        query = {**probe.query, **sent} if place == "query" else probe.query
        headers = {**alice.things.fill(probe.headers), **sent} if place == "header" else probe.headers
        options = {"content_type": "application/json", "data": alice.things.fill(probe.body)} if probe.body else {}
        if "application/octet-stream" in DOCUMENT["paths"][found.where.split(" ")[1]][method.lower()].get(
            "requestBody", {}
        ).get("content", {}):
            options = {"content_type": "application/octet-stream", "data": b"x"}
        if place == "header" and found.name == "If-None-Match":
            headers = {name: value for name, value in headers.items() if name != "If-Match"}
        answer = getattr(client, method.lower())(
            f"/{alice.things.fill(path)}", query_params=alice.things.fill(query), headers=headers, **options
        )
        if answer.status_code != 400 or not _sentence(answer.json()):
            accepted.append((found.where, found.name, answer.status_code, answer.content[:200]))
    assert accepted == []


@pytest.mark.medium
def test_an_endless_id_is_one_that_there_is_not(alice):
    client = Client(headers={"authorization": f"Bearer {alice.secret}"})
    for method, path, operation in operations():
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                address = path.replace("{" + parameter["name"] + "}", "1" * 5000)
                things = alice.things
                for name, value in {"conversation_id": things.conversation, "turn_number": "1", "call_id": "x"}.items():
                    address = address.replace("{" + name + "}", value)
                answer = getattr(client, method.lower())(address, {}, content_type="application/json")
                assert answer.status_code in (400, 403, 404, 415), (method, path, answer.status_code)
                assert len(answer.content) < 1000


@pytest.mark.django_db(transaction=True)
def test_every_text_of_every_tool_is_refused_over_mcp(server, alice):
    accepted = []
    for found in tools():
        probe = {**TOOLS, **MCP_TOOLS}[found.where][0]
        arguments = with_value(alice.things.fill(probe.body), found.name, too_long(found))
        result = call(server, alice.secret, found.where, arguments).json()["result"]
        if not result["isError"] or json.loads(result["content"][0]["text"])["code"] != "validation_error":
            accepted.append((found.where, found.name, str(result)[:200]))
    assert accepted == []


def test_every_text_of_every_form_has_a_limit_and_is_held_to_it():
    unlimited = []
    for form in all_forms():
        for name, field in form.base_fields.items():
            if isinstance(field, ReadOnlyPasswordHashField) or name in CHOSEN:
                continue
            if not isinstance(field, forms.CharField) or isinstance(field, forms.ChoiceField):
                assert isinstance(field, NO_TEXTS), (form, name)
                continue
            limit = field.longest if isinstance(field, TextField) else field.max_length
            if limit is None:
                unlimited.append((form.__name__, name))
                continue
            with pytest.raises(forms.ValidationError):
                field.clean("x" * (limit + 1))
    assert unlimited == []


def test_a_password_that_is_chosen_has_a_limit_wherever_it_is():
    with pytest.raises(ValidationError, match="at most 4,096 characters"):
        validate_password("x1" * 2049)


def test_a_login_looks_at_no_endless_password(client):
    User.objects.create_superuser("root@example.com", "password")
    for page in ("/login/", "/admin/login/"):
        answer = client.post(page, {"username": "root@example.com", "password": "x" * 5000})
        assert "4096" in answer.text


def test_what_a_client_invents_is_not_quoted_at_length(alice):
    client = Client(headers={"authorization": f"Bearer {alice.secret}"})
    data = {"query": "cats", "x" * 50_000: 1, **{f"field {number}": 1 for number in range(1000)}}
    answer = client.post("/api/v1/tools/search_chat_history/", data, content_type="application/json")
    assert answer.status_code == 400
    assert len(answer.content) < 10_000


# -- What every request has ---------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/", "/search/", "/api/v1/conversations/", "/mcp", "/static/none"])
def test_an_endless_address_and_endless_headers_are_refused(server, path):
    for address, headers in [
        (f"{path}?q={'x' * LONGEST_ADDRESS}", {}),
        (path, {"X-Endless": "x" * 32_768}),
    ]:
        status, said = ask(server, address, headers)
        assert (status, "at most" in said) == (400, True)
    assert ask(server, f"{path}?q=xxxxxxxxxx", {})[0] != 400


def ask(server, address, headers):
    with closing(HTTPConnection(urlsplit(server).netloc, timeout=20)) as line:
        line.request("GET", address, headers=headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
