"""Work whose caller has left: it ends where it would ask the database next, and is nobody's failure."""

import logging

import pytest
from django.utils import timezone

from agent_tools.authentication import create_token, verify
from agent_tools.mcp.server import _call
from agent_tools.models import TokenScope
from agent_tools.threads import Abandoned, _Stoppable
from agent_tools.tools import registry
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db

ARGUMENTS = {
    "get_context": {"for": "session"},
    "search_chat_history": {"query": "cat"},
    "search_history": {"query": "cat"},
    "search_memory": {"query": "cat"},
    "list_recent_conversations": {},
    "save_memory": {"content": "cat", "type": "lesson"},
    "append_daily_log": {"text": "cat"},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_is_abandoned_ends_without_a_result_and_without_an_error_in_the_log(name, caplog):
    caller = verify(create_token(user=a_person(), name="agent", scopes=list(TokenScope)).secret, now=timezone.now())
    abandoned = _Stoppable(lambda: _call(registry.get(name), ARGUMENTS[name], lambda: caller))
    abandoned.stop()

    with caplog.at_level(logging.ERROR), pytest.raises(Abandoned):
        abandoned.run()

    assert not caplog.records
