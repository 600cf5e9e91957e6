"""The list of tools, in this API's words and in the vendors'."""

import json

import pytest
from jsonschema import Draft202012Validator

from agent_tools.examples import EXAMPLES
from agent_tools.tools import registry

pytestmark = pytest.mark.django_db

URL = "/api/v1/tools/"
NAMES = [tool.name for tool in registry]


def test_in_its_own_shape(api):
    tools = api.get(URL).json()["tools"]
    assert [tool["name"] for tool in tools] == NAMES
    for tool in tools:
        assert tool.keys() == {"name", "description", "readOnly", "scope", "inputSchema", "outputSchema"}
        named = dict.fromkeys(("get_conversation", "list_recent_conversations", "read_attachment"), "read")
        assert tool["scope"] == named.get(tool["name"], "search" if tool["readOnly"] else "write")
    assert api.get(URL, {"format": "own"}).json() == {"tools": tools}


def test_as_openai_wants_it(api):
    tools = api.get(URL, {"format": "openai"}).json()["tools"]
    assert [tool["function"]["name"] for tool in tools] == NAMES
    for tool, registered in zip(tools, registry, strict=True):
        assert tool.keys() == {"type", "function"}
        assert tool["type"] == "function"
        assert tool["function"] == {
            "name": registered.name,
            "description": registered.description,
            "parameters": registered.input_schema,
        }


def test_as_anthropic_wants_it(api):
    tools = api.get(URL, {"format": "anthropic"}).json()["tools"]
    assert tools == [
        {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in registry
    ]


def test_as_the_responses_api_and_gemini_want_it(api):
    tools = api.get(URL, {"format": "openai-responses"}).json()["tools"]
    assert tools == [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        for tool in registry
    ]
    tools = api.get(URL, {"format": "gemini"}).json()["tools"]
    assert tools == [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema}
        for tool in registry
    ]


@pytest.mark.parametrize("name", ["json", "api", "OPENAI", "", "mistral"])
def test_any_other_format_is_refused(api, name):
    response = api.get(URL, {"format": name})
    assert (response.status_code, response.json()["code"]) == (400, "validation_error")
    assert list(response.json()["errors"]) == ["format"]
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_has_a_real_example_in_the_openapi_document(api, name):
    given, answered = EXAMPLES[name]
    tool = registry.get(name)
    tool.input_model.model_validate_json(json.dumps(given), strict=True)
    Draft202012Validator(tool.input_schema).validate(given)
    Draft202012Validator(tool.output_schema).validate(answered)
    document = api.get("/api/v1/schema/", headers={"accept": "application/vnd.oai.openapi+json"}).json()
    operation = document["paths"][f"/api/v1/tools/{name}/"]["post"]
    assert operation["requestBody"]["content"]["application/json"]["examples"]["ACall"]["value"] == given
    assert operation["responses"]["200"]["content"]["application/json"]["examples"]["ItsAnswer"]["value"] == answered
    assert {"400", "401", "403", "404", "413", "415", "429", "500", "503"} <= operation["responses"].keys()
    assert document["openapi"].startswith("3.1")
