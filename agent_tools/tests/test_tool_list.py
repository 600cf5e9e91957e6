"""The list of tools, in this API's words and in the vendors'."""

import pytest

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
