"""What start-up says of a registry in which something is wrong."""

from dataclasses import replace
from typing import Annotated

import pytest
from django.core.checks import run_checks
from pydantic import BaseModel, Field

from agent_tools.checks import problems_of
from agent_tools.tools import registry
from agent_tools.tools.chat_history import search_chat_history
from core.validation import Input, Output


def ids(*tools):
    found = list(problems_of(tools))
    assert all(problem.hint for problem in found)
    return [problem.id for problem in found]


class Undescribed(Input):
    query: str


class Open(BaseModel):
    query: Annotated[str, Field(description="What to look for.")]


class Inner(BaseModel):
    name: Annotated[str, Field(description="A name.")]


class OpenInside(Input):
    inner: Annotated[Inner, Field(description="Something with a field.")]


class UndescribedInside(Output):
    results: Annotated[list[Undescribed], Field(description="What was found.")]


class NotJson(Input):
    share: Annotated[float, Field(description="A share.", json_schema_extra={"default": float("nan")})] = 0.5


class NoSchema(Input):
    query: Annotated[str, Field(description="What to look for.", json_schema_extra={"type": "words"})]


@pytest.mark.medium
def test_the_tools_there_are_have_no_fault():
    assert list(problems_of(registry)) == []
    assert not [message for message in run_checks() if str(message.id).startswith("agent_tools.")]


def test_two_tools_of_one_name():
    assert ids(search_chat_history, search_chat_history) == ["agent_tools.E001"]


@pytest.mark.parametrize(
    "change", [{"description": " "}, {"input_model": Undescribed}, {"output_model": UndescribedInside}]
)
def test_a_missing_description_of_a_tool_or_a_field(change):
    assert ids(replace(search_chat_history, **change)) == ["agent_tools.E002"]


@pytest.mark.parametrize("model", [Open, OpenInside, NotJson, NoSchema])
def test_a_schema_that_is_open_or_none_at_all(model):
    assert ids(replace(search_chat_history, input_model=model)) == ["agent_tools.E003"]


@pytest.mark.parametrize("name", ["", "search history", "x" * 65, "suche_ähnlich"])
def test_a_name_that_some_vendor_refuses(name):
    assert ids(replace(search_chat_history, name=name)) == ["agent_tools.E004"]
