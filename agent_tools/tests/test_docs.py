"""The manual's calls are the examples that are checked against the tools' schemas."""

import json
import re

import pytest
from django.conf import settings

from agent_tools.examples import EXAMPLES
from agent_tools.tools import registry
from core.errors import STATUSES

MANUAL = (settings.BASE_DIR / "docs" / "api.md").read_text()


@pytest.mark.parametrize("name", [tool.name for tool in registry])
def test_the_manual_has_a_curl_for_every_tool_with_its_example(name):
    found = re.search(rf"curl \S+/tools/{name}/.*?-d '(.*?)'", MANUAL, re.DOTALL)
    assert json.loads(found[1]) == EXAMPLES[name][0]


def test_the_manual_names_every_code_that_tools_and_tokens_may_answer():
    others = {"conflict", "precondition_required"}
    assert set(re.findall(r"^\| `(\w+)` \| \d{3} \|", MANUAL, re.MULTILINE)) >= STATUSES.keys() - others
