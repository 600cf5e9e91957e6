"""The arguments of tools as clients send them, and the schemas that three vendors accept."""

import json
from datetime import date

import pytest

from agent_tools.registry import arguments
from agent_tools.tests.callers import call, client_of
from agent_tools.tools import mcp_registry, registry
from agent_tools.tools.chat_history import SearchChatHistoryInput
from core.errors import InvalidInput
from intake.tests.factories import a_person

TOOLS = {tool.name: tool for tool in mcp_registry}

# What clients were seen to send, and what the tool must read.
ACCEPTED = [
    ("search_chat_history", {"query": "cat", "limit": "5"}, {"limit": 5}),
    ("search_chat_history", {"query": "cat", "limit": "5.0", "rerank": "true"}, {"limit": 5, "rerank": True}),
    ("search_chat_history", {"query": "cat", "limit": 5.0, "rerank": 0}, {"limit": 5, "rerank": False}),
    (
        "search_chat_history",
        {"query": "cat", "limit": None, "mode": "", "rerank": None},
        {"limit": 5, "mode": "semantic"},
    ),
    ("search_chat_history", {"query": 4711, "mode": "Hybrid"}, {"query": "4711", "mode": "hybrid"}),
    ("search_chat_history", {"q": "cat", "topK": 3}, {"query": "cat", "limit": 3}),
    ("search_chat_history", {"query": None, "q": "cat"}, {"query": "cat"}),
    ("search_history", {"query": "cat", "scope": None, "max_results": "0"}, {"scope": "all", "max_results": 10}),
    ("search_history", {"query": "cat", "maxResults": 7}, {"max_results": 7}),
    ("search_history", {"query": "cat", "limit": "7"}, {"max_results": 7}),
    ("search_history", {"query": "cat", "dateFrom": "2026-03-01"}, {"date_from": date(2026, 3, 1)}),
    ("search_history", {"query": "cat", "date_from": None, "date_to": None}, {"date_from": None, "date_to": None}),
    ("search_memory", {"query": "cat", "minSimilarity": "0.25", "topK": "3"}, {"min_similarity": 0.25, "top_k": 3}),
    ("search_memory", {"query": "cat", "min_similarity": ".5", "limit": 4}, {"min_similarity": 0.5, "top_k": 4}),
    ("search_memory", {"query": "cat", "types": "lesson", "tags": None}, {"types": ["lesson"], "tags": None}),
    ("search_memory", {"query": "cat", "types": '["lesson", "note"]'}, {"types": ["lesson", "note"]}),
    ("search_memory", {"query": "cat", "projectId": "12"}, {"project_id": "12"}),
    ("search_memory", {"query": "cat", "tags": "[draft"}, {"tags": ["[draft"]}),
    ("search_memory", {"query": "cat", "tags": '["oak", "2026", null]'}, {"tags": ["oak", "2026"]}),
    ("search_memory", {"query": "cat", "tags": ["oak", None, ""], "types": [""]}, {"tags": ["oak"], "types": []}),
    ("search_memory", {"query": "cat", "tags": "[]", "types": " [ ] "}, {"tags": [], "types": []}),
    ("save_memory", {"content": "x", "tags": ["", None, "oak"]}, {"tags": ["oak"]}),
    ("get_conversation", {"conversation_id": "x", "around": "3", "window": ""}, {"around": 3, "window": 3}),
    ("list_recent_conversations", {"max_results": "3", "after": "2026-3-1"}, {"limit": 3, "after": "2026-03-01"}),
    ("list_recent_conversations", {"before": "2026-03-01T10:00:00"}, {"before": "2026-03-01T10:00:00"}),
    ("list_recent_conversations", {"before": "2026-3-1T10:00"}, {"before": "2026-03-01T10:00"}),
    ("list_recent_conversations", {"after": " 2026-3-1 09:30:00+02:00"}, {"after": "2026-03-01 09:30:00+02:00"}),
    ("save_memory", {"content": 5, "tags": "oak", "type": ""}, {"content": "5", "tags": ["oak"], "type": None}),
    ("append_daily_log", {"text": "x", "date": "2026-3-1"}, {"date": "2026-03-01"}),
    ("append_daily_log", {"text": "x", "date": ""}, {"date": None}),
    ("search", {"q": 7}, {"query": "7"}),
    ("fetch", {"ID": "record:1"}, {"id": "record:1"}),
]
# What has no single meaning: the field of the error, and a part of its sentence.
REFUSED = [
    ("search_chat_history", {"query": "cat", "limit": "5.5"}, "limit", "integer"),
    ("search_chat_history", {"query": "cat", "limit": True}, "limit", "integer"),
    ("search_chat_history", {"query": "cat", "rerank": "perhaps"}, "rerank", "boolean"),
    ("search_chat_history", {"query": "cat", "rerank": 2}, "rerank", "boolean"),
    ("search_chat_history", {"query": "cat", "mode": "lexical"}, "mode", "'semantic' or 'hybrid'"),
    (
        "search_chat_history",
        {"query": "cat", "colour": 1},
        "colour",
        "Fields: query, limit, mode, rerank, project, excludeSession, maxTokens.",
    ),
    ("search_chat_history", {"query": float("inf")}, "query", "string"),
    ("search_history", {"query": "cat", "scope": "diary"}, "scope", "Must be one of: all, memory, daily_log, sessions"),
    ("search_history", {"query": "cat", "date_from": "3/1/2026"}, "date_from", "YYYY-MM-DD"),
    ("search_history", {"query": "cat", "date_from": "2026-13-01"}, "date_from", "YYYY-MM-DD"),
    ("search_history", {"query": "cat", "dateFrom": "2026-3-1"}, "date_from", "YYYY-MM-DD"),
    ("search_history", {"query": "cat", "date_to": " 2026-03-01 08:30 "}, "date_to", "YYYY-MM-DD"),
    ("search_history", {"query": "cat", "scope": "daily-log"}, "scope", "Must be one of"),
    ("search_memory", {"query": 5}, "query", "string"),
    ("search_memory", {"query": "cat", "projectId": 12}, "project_id", "string"),
    ("search_memory", {"query": "cat", "tags": [2026, "oak"]}, "tags.0", "string"),
    ("search_memory", {"query": "cat", "types": 1.5}, "types", "array"),
    ("search_memory", {"query": "cat", "minSimilarity": "nan"}, "minSimilarity", "number"),
    ("search_memory", {"query": "cat", "types": {"lesson": 1}}, "types", "array"),
    ("search_memory", {"query": "cat", "types": True}, "types", "array"),
    ("search_memory", {"query": "cat", "tags": [["oak"]]}, "tags.0", "string"),
    ("search_memory", {"query": "cat", "topK": 3, "top_k": 4}, "topK", "topK and top_k"),
]


@pytest.mark.parametrize(("name", "sent", "read"), ACCEPTED)
def test_an_argument_of_one_meaning_is_accepted(name, sent, read):
    accepted = TOOLS[name].read(sent)
    assert {field: getattr(accepted, field) for field in read} == read


@pytest.mark.parametrize(("name", "sent", "field", "sentence"), REFUSED)
def test_an_argument_without_one_meaning_is_refused_with_a_reason(name, sent, field, sentence):
    with pytest.raises(InvalidInput) as refused:
        TOOLS[name].read(sent)
    assert list(refused.value.errors) == [field]
    assert sentence in refused.value.errors[field][0]
    assert "empty" not in refused.value.errors[field][0]


def test_two_names_of_one_field_are_accepted_if_one_is_null():
    assert arguments(SearchChatHistoryInput, {"query": "cat", "limit": 3, "topK": None})["limit"] == 3
    assert arguments(SearchChatHistoryInput, {"query": "cat", "topK": None, "limit": 3})["limit"] == 3


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_every_optional_field_may_be_null_or_empty(tool):
    schema = tool.input_schema
    required = {name: schema["properties"][name].get("enum", "x")[0] for name in schema.get("required", [])}
    for nothing in (None, ""):
        strict = tool.input_model.as_sent if nothing == "" else ()
        left_out = {name: nothing for name in schema["properties"] if name not in required and name not in strict}
        assert tool.read(required | left_out) == tool.read(required)


@pytest.mark.django_db
@pytest.mark.parametrize("sent", [{"query": 4711, "limit": "3", "rerank": None}, {"q": "cat", "max_results": "1"}])
def test_rest_accepts_what_has_one_meaning(sent):
    assert call(client_of(a_person()), "search_chat_history", sent).status_code == 200


# -- What the vendors accept -------------------------------------------------------------------------------------------

# OpenAI's structured outputs (strict): https://developers.openai.com/api/docs/guides/structured-outputs, "Supported schemas".
OPENAI = {
    "type",
    "description",
    "properties",
    "required",
    "items",
    "enum",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
}
OPENAI |= {"additionalProperties", "anyOf", "pattern", "format", "multipleOf", "const", "title", "$ref", "$defs"}
# Anthropic's `input_schema`: JSON Schema whose top is an object, without choices there.
ANTHROPIC_NOT_AT_THE_TOP = {"anyOf", "oneOf", "allOf"}
# Gemini's `Schema` of a function declaration: https://ai.google.dev/api/caching#Schema.
GEMINI = {
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "maxItems",
    "minItems",
    "properties",
    "required",
}
GEMINI |= {
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "default",
    "items",
}
GEMINI |= {"propertyOrdering", "minimum", "maximum"}
GEMINI_FORMATS = {"string": {"enum", "date-time"}, "integer": {"int32", "int64"}, "number": {"float", "double"}}


def parts(schema):
    yield schema
    for each in schema.get("properties", {}).values():
        yield from parts(each)
    if "items" in schema:
        yield from parts(schema["items"])


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_three_vendors_accept_the_schema_of_the_arguments(tool):
    schema = tool.input_schema
    assert schema["type"] == "object"
    assert not schema.keys() & ANTHROPIC_NOT_AT_THE_TOP
    for part in parts(schema):
        assert part.keys() <= OPENAI & GEMINI
        assert isinstance(part["type"], str)
        assert "format" not in part or part["format"] in GEMINI_FORMATS[part["type"]]
        assert set(part.get("required", ())) <= part.get("properties", {}).keys()
        assert "enum" not in part or all(isinstance(each, str) and each for each in part["enum"])


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_no_schema_has_a_reference_or_a_null(tool):
    for schema in (tool.input_schema, tool.output_schema):
        text = json.dumps(schema)
        assert "$ref" not in text
        assert "$defs" not in text
        assert '"null"' not in text
    assert "additionalProperties" not in json.dumps(tool.input_schema)


@pytest.mark.parametrize("tool", list(registry), ids=lambda tool: tool.name)
def test_the_schema_says_defaults_in_words(tool):
    for name, field in tool.input_model.model_json_schema()["properties"].items():
        said = tool.input_schema["properties"][name]["description"]
        assert field.get("default") in (None, False, 0) or said.count(f"Default: {field['default']}.") == 1


@pytest.mark.django_db
def test_an_answer_conforms_to_the_schema_without_null():
    person = a_person()
    for tool in (TOOLS["search_chat_history"], TOOLS["list_recent_conversations"]):
        answer = tool.call({"query": "cat"} if tool.name.startswith("search") else {}, user=person)
        assert None not in answer.model_dump(mode="json", by_alias=True, exclude_none=True).values()


@pytest.mark.parametrize("sent", [{"k": 2, "limit": 3}, {"limit": 3, "k": 2}])
def test_a_field_that_is_there_twice_is_named_as_it_was_sent(sent):
    with pytest.raises(InvalidInput) as refused:
        arguments(SearchChatHistoryInput, {"query": "cat", **sent})
    first, second = sent
    assert refused.value.errors == {"limit": [f"This field is there twice: {first} and {second}."]}
