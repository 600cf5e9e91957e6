"""The manual's calls are the examples that are checked against the tools' schemas."""

import json
import re

import pytest
from django.conf import settings

from agent_tools.tools import registry
from core.errors import STATUSES

API, SEARCH = ((settings.BASE_DIR / "docs" / name).read_text() for name in ("api.md", "search.md"))
MANUAL = SEARCH + API
EXAMPLES = json.loads((settings.BASE_DIR / "config" / "examples.json").read_text())


@pytest.mark.parametrize("name", [tool.name for tool in registry])
def test_the_manual_has_a_curl_for_every_tool_with_its_example(name):
    found = re.search(rf"curl \S+/tools/{name}/.*?-d '(.*?)'", MANUAL, re.DOTALL)
    assert json.loads(found[1]) == EXAMPLES[name]["request"]


@pytest.mark.parametrize("name", ["search_chat_history", "search_history", "search_memory"])
def test_the_page_of_the_searches_has_the_whole_example_of_a_response_of_each(name):
    printed = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", SEARCH, re.MULTILINE | re.DOTALL)]
    assert EXAMPLES[name]["response"] in printed


def test_the_manual_names_every_code_that_tools_and_tokens_may_answer():
    assert set(re.findall(r"^\| `(\w+)` \| \d{3} \|", API, re.MULTILINE)) >= STATUSES.keys()
