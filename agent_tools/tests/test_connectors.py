"""`search` and `fetch` as ChatGPT's connectors call them: over MCP, for the caller's own memory."""

import json

import pytest

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from agent_tools.tests.mcp_messages import call
from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index, records
from memory.models.documents import ABOUT_ME

pytestmark = pytest.mark.django_db(transaction=True)

DAY = NOW.date()


@pytest.fixture
def remembered(server, alice):
    """Each with the page where it is read."""
    with acting_as(alice):
        turn = a_turn(alice, "The lighthouse is white", "So it is.")
        documents.append(user=alice, day=None, text="A lighthouse in MEMORY.md", now=NOW)
        documents.append(user=alice, day=ABOUT_ME, text="They keep a lighthouse", now=NOW)
        documents.append(user=alice, day=DAY, text="Painted the lighthouse", now=NOW)
        note = documents.create_note(user=alice, title="On lighthouses", content="A lighthouse needs oil", at=NOW)
        record = records.create(user=alice, content="Decided to sell the lighthouse", now=NOW)
    index.embed_pending()
    return {
        f"/c/{turn.conversation_id}/?turn=1#turn-1": "Person: The lighthouse is white\n\nAssistant: So it is.",
        "/memory/": "A lighthouse in MEMORY.md\n",
        "/memory/about/": "They keep a lighthouse\n",
        f"/memory/logs/{DAY}/": "Painted the lighthouse\n",
        f"/memory/notes/{note.pk}/": "A lighthouse needs oil",
        f"/memory/records/{record.id}/": "Decided to sell the lighthouse",
    }


@pytest.fixture
def ask(server, alice):
    secret = create_token(user=alice).secret

    def ask(tool, arguments, secret=secret):
        """The result, parsed from the JSON in its one text part."""
        result = call(server, secret, tool, arguments).json()["result"]
        (content,) = result["content"]
        told = json.loads(content["text"])
        assert result["isError"] or result["structuredContent"] == told
        return told

    return ask


def test_what_is_found_can_be_fetched_whole_and_read_where_its_url_leads(server, remembered, ask, log_in, alice):
    found = ask("search", {"query": "lighthouse"})["results"]
    urls = {}
    for result in found:
        assert set(result) == {"id", "title", "url", "text"}
        fetched = ask("fetch", {"id": result["id"]})
        assert set(fetched) == {"id", "title", "text", "url", "metadata"}
        assert (fetched["id"], fetched["url"]) == (result["id"], result["url"])
        assert fetched["metadata"]["date"] in fetched["title"]
        urls[fetched["url"].removeprefix(server)] = fetched["text"]
    assert remembered.items() <= urls.items()
    browser = log_in(alice)
    assert {browser.get(path).status_code for path in remembered} == {200}


def test_somebody_elses_a_missing_and_a_malformed_id_get_the_same_answer(server, remembered, ask):
    mine = [result["id"] for result in ask("search", {"query": "lighthouse"})["results"]]
    bobs = create_token(user=a_person("bob@example.com")).secret
    assert ask("search", {"query": "lighthouse"}, bobs) == {"results": []}
    wrong = [*mine, "x", "conversation:", f"{mine[0]}:x", "document:x", "record:", "conversation:x:1", "turn:\x00"]
    answers = {json.dumps(ask("fetch", {"id": each}, bobs)) for each in wrong}
    assert len(answers) == 1
    assert json.loads(answers.pop())["code"] == "not_found"


def test_they_need_their_scopes_and_are_offered_over_mcp_alone(server, alice, api, ask):
    reader = create_token(user=alice, scopes=[TokenScope.READ]).secret
    assert ask("search", {"query": "x"}, reader)["code"] == "insufficient_scope"
    assert ask("fetch", {"id": "x"}, reader)["code"] == "not_found"
    assert not {"search", "fetch"} & {tool["name"] for tool in api.get("/api/v1/tools/").json()["tools"]}
    assert ask("search", {"query": "x" * 10_001})["code"] == "validation_error"
