"""Several models to choose from, what a chat's model is told and may do, and what a thinking one thinks."""

import json
from datetime import timedelta

import pytest
from django.test import Client as DjangoClient
from pydantic_ai.profiles.anthropic import anthropic_model_profile
from pydantic_ai.profiles.openai import openai_model_profile

from core.isolation.acting import acting_as
from intake.checks import check_language_models
from intake.llm import language_models
from intake.llm.language_models import LanguageModel
from intake.models import ChatPreferences, Conversation, Turn
from intake.tests.factories import NOW, a_turn
from memory import documents, index, tasks
from memory.models import Embedding
from memory.models.documents import ABOUT_ME
from memory.search import SearchMode, search_chat_history
from testing.examiner import as_a_worker
from testing.model_server import CallTool, Say, ScriptedModel

pytestmark = pytest.mark.django_db(transaction=True)


def entry(address="", *, model="", key="", thinking=""):
    return {"MODEL": model, "BASE_URL": address, "API_KEY": key, "THINKING": thinking}


@pytest.fixture
def models(settings, serve_model):
    """Three endpoints: one model each in OpenAI's and in Anthropic's protocol, and one that lists its own."""
    fast, claude, house = ScriptedModel(), ScriptedModel(), ScriptedModel(names=["llama", "qwen"])
    settings.LLM_MODELS = {
        "fast": entry(f"{serve_model(fast)}/v1", model="gpt-fast", key="key-of-fast"),
        "claude": entry(serve_model(claude), model="anthropic:claude-sonnet-5-5", key="key-of-claude", thinking="low"),
        "house": entry(f"{serve_model(house)}/v1"),
    }
    return {"fast": fast, "claude": claude, "house": house}


def system_of(request):
    return "\n".join(message["content"] for message in request["messages"] if message["role"] == "system")


@pytest.mark.medium
def test_each_model_is_asked_at_its_own_server_with_its_own_key_in_its_own_protocol(models, person, log_in):
    client = log_in(person)
    models["fast"].follow(Say(("Fast.",)), Say(("A title",)))
    first = client.events("Hello")
    where = {"conversation_id": first[0].data["conversationId"]}
    models["claude"].follow(Say(("Thought through.",), thoughts=("Let me ", "see.")))
    second = client.events("And you?", **where, model="claude")
    models["house"].follow(Say(("At home.",)))
    client.events(regenerate=2, **where, model="house/qwen")
    turns = list(Turn.objects.in_order())
    assert [turn.assistant_message for turn in turns] == ["Fast.", "Thought through.", "At home."]
    assert models["fast"].requests[0]["model"] == "gpt-fast"
    assert models["fast"].keys[0] == "Bearer key-of-fast"
    assert (models["claude"].requests[0]["model"], models["claude"].keys) == (
        "claude-sonnet-5-5",
        ["Bearer key-of-claude"],
    )
    assert models["claude"].requests[0]["thinking"]["type"] == "adaptive"
    assert models["house"].requests[0]["model"] == "qwen"
    assert [event.data["text"] for event in second if event.name == "reasoning"] == ["Let me ", "see."]
    assert turns[1].reasoning == "Let me see."
    assert Conversation.objects.get().model == "house/qwen"


def test_the_models_are_listed_and_an_unknown_one_is_refused_with_the_names_of_those_there_are(
    models, person, log_in, visitor, settings
):
    client = log_in(person)
    listed = client.get("/api/v1/models/").json()
    assert [model["name"] for model in listed["models"]] == ["fast", "claude", "house/llama", "house/qwen"]
    assert (listed["default"], listed["models"][0]["takesTemperature"]) == ("fast", True)
    refused = client.chat("Hello", model="nonsense")
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_error")
    assert refused.json()["errors"] == {"model": ["These are: fast, claude, house/llama, house/qwen."]}
    assert client.chat("Hello", model="house/mistral").status_code == 400
    assert client.chat("Hello", temperature=3).status_code == 400
    # Visitors pay with nothing: they get the default alone.
    assert visitor.chat("Hello", model="claude").status_code == 400
    assert not Turn.objects.exists()
    settings.LLM_MODELS = {"house": entry("http://127.0.0.1:9/v1")}
    failed = client.events("Hello")[-1]
    assert (failed.name, failed.data["code"], failed.data["retryable"]) == ("error", "unavailable", True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get("/"),
        lambda client: client.submit("/share/", text="Hello"),
        lambda client: client.get("/api/v1/models/"),
        lambda client: client.chat("Hello", model="house/qwen"),
        lambda client: client.chat("Hello"),
        lambda client: client.get("/memory/map/"),
        lambda client: client.get("/settings/account/"),
        lambda client: client.submit("/settings/account/answers/", model="house/qwen"),
    ],
    ids=["home", "share", "list", "chosen", "chat", "map", "account", "default"],
)
def test_a_process_asks_what_models_there_are_before_its_first_transaction(
    ask, models, person, log_in, settings, monkeypatch
):
    """A call within a transaction is refused in tests, so that each of these would break."""
    monkeypatch.setattr(language_models, "_lists", {})
    settings.LLM_MODELS = {"house": settings.LLM_MODELS["house"]}
    models["house"].follow(Say(("Hello.",)), Say(("A title",)))
    answer = ask(log_in(person))
    assert answer.status_code == 200 and "event: error" not in answer.text
    assert language_models._lists


@pytest.mark.medium
def test_a_person_has_a_default_and_a_chat_whose_model_is_gone_is_answered_by_it(models, person, log_in, settings):
    client = log_in(person)
    page = client.submit("/settings/account/answers/", model="house/llama", how_to_answer="In verse.")
    assert "Saved." in page.text and "In verse." in page.text
    models["house"].follow(Say(("Roses.",)), Say(("A title",)), Say(("Violets.",)))
    conversation = client.events("Hello")[0].data["conversationId"]
    assert models["house"].requests[0]["model"] == "llama"
    assert "In verse." in system_of(models["house"].requests[0])
    assert client.submit("/settings/account/answers/", model="nonsense").status_code == 200
    with acting_as(person):
        assert ChatPreferences.objects.get().model == "house/llama"
        Conversation.objects.update(model="gone")
    client.events("More", conversation_id=conversation)
    assert models["house"].requests[-1]["model"] == "llama"
    assert client.get("/api/v1/models/").json()["default"] == "house/llama"


def test_the_model_is_told_who_the_person_is_how_to_answer_and_what_this_chat_is_for(person, log_in, language_model):
    with acting_as(person):
        documents.append(user=person, day=ABOUT_ME, text="I live in Delft", now=NOW)
        ChatPreferences.objects.create(user=person, how_to_answer="Be brief.")
    model = language_model(Say(("Good.",)), Say(("Title",)), Say(("Better.",)), Say(("Best.",)))
    client = log_in(person)
    first = client.events("Hello", instructions="You are a ship's cook.", temperature=0.3)
    conversation = first[0].data["conversationId"]
    told = system_of(model.requests[0])
    assert told.index("Be brief.") < told.index("You are a ship's cook.") < told.index("I live in Delft")
    assert model.requests[0]["temperature"] == 0.3
    changed = client.patch(
        f"/api/v1/conversations/{conversation}/", json={"instructions": "", "temperature": None}, headers=client._csrf()
    )
    assert changed.json()["memory"] is True and "instructions" not in changed.json()
    client.events("And now?", conversation_id=conversation)
    assert "cook" not in system_of(model.requests[-1])
    assert "temperature" not in model.requests[-1]
    too_long = client.chat("Hello", instructions="x" * 4001)
    assert too_long.json()["errors"] == {"instructions": ["At most 4,000 characters; this has 4,001."]}


def test_a_chat_without_memory_has_no_tools_and_no_notes(person, log_in, language_model):
    with acting_as(person):
        documents.append(user=person, day=None, text="Tea, not coffee", now=NOW)
        documents.append(user=person, day=ABOUT_ME, text="I live in Delft", now=NOW)
    model = language_model(Say(("I do not know.",)), Say(("Title",)), Say(("Tea.",)))
    client = log_in(person)
    first = client.events("What do I drink?", memory=False)
    assert "tools" not in model.requests[0]
    assert not any(kept in json.dumps(model.requests[0]) for kept in ("Tea", "Delft"))
    client.events("And now?", conversation_id=first[0].data["conversationId"], memory=True)
    assert "Tea, not coffee" in system_of(model.requests[-1])
    assert model.requests[-1]["tools"]


@pytest.mark.parametrize(
    "id_",
    [
        *(
            f"openai:{name}"
            for name in ("gpt-4o", "gpt-4.1-mini", "o3", "o4-mini", "gpt-5-mini", "gpt-5.6-sol", "gpt-6-luna")
        ),
        *(f"anthropic:claude-{name}" for name in ("opus-4-5", "opus-4-6", "opus-4-8", "opus-5-5", "sonnet-4-6")),
        *(f"anthropic:claude-{name}" for name in ("sonnet-5-5", "haiku-4-5", "haiku-5-5", "fable-5-2")),
    ],
)
def test_which_models_take_a_temperature_is_known_as_pydantic_ai_knows_it(id_):
    model = LanguageModel("any", id_)
    if id_.startswith("openai:"):
        takes_it = not openai_model_profile(model.own_name).get("openai_supports_reasoning")
    else:
        takes_it = not anthropic_model_profile(model.own_name).get("anthropic_disallows_sampling_settings")
    assert model.takes_temperature == takes_it


def test_a_model_that_is_half_configured_is_named_by_the_check(settings):
    settings.LLM_MODELS = {"fast": entry(), "a b": entry("ftp://x", model="m", thinking="hard")}
    found = [problem.msg for problem in check_language_models(None)]
    assert len(found) == 4 and all(problem.startswith("LLM_MODELS: ") for problem in found)
    assert "“fast” has neither a model nor the address of a server" in found[0]


def test_recall_mode_with_the_memory_off_says_why_it_finds_nothing(person, log_in):
    a_turn(person, "My cat is called Miso")
    answer = log_in(person).events("What is my cat called?", memory=False)
    assert "Your memory is off in this chat" in answer[-1].data["html"]


def test_what_a_model_thinks_is_told_kept_and_continued_and_neither_searched_nor_sent_back(
    person, log_in, language_model
):
    thoughts = ("The zebra ", "is striped.")
    model = language_model(
        Say(("It has",), thoughts=thoughts, finish_reason="length"),
        Say((" stripes.",), thoughts=("Go on.",)),
        Say(("Title",)),
        Say(("Yes.",)),
    )
    client = log_in(person)
    events = client.events("How does it look?")
    assert [event.name for event in events] == ["turn", "reasoning", "reasoning", "delta", "done"]
    assert all(event.data["seconds"] >= 0 for event in events[1:3])
    assert "zebra" not in events[-1].data["html"]
    conversation = events[0].data["conversationId"]
    client.events(**{"continue": 1}, conversation_id=conversation)
    turn = Turn.objects.get()
    assert (turn.assistant_message, turn.reasoning) == ("It has stripes.", "The zebra is striped.Go on.")
    assert turn.usage["thought_seconds"] >= 0
    page = client.get(f"/c/{conversation}/")
    assert "The zebra is striped." in page.text
    client.events("Really?", conversation_id=conversation)
    assert "zebra" not in json.dumps([request for request in model.requests])
    replayed = client.get(f"/api/v1/intake/turns/{turn.pk}/events").text
    assert replayed.index("event: reasoning") < replayed.index("event: delta")
    with acting_as(person):
        index.embed_pending()
        found = search_chat_history(user=person, query="zebra", limit=5, mode=SearchMode.HYBRID)
        assert found.matches == [] or all("zebra" not in match.snippet for match in found.matches)
        exact = [match for match in found.matches if match.relevance and match.relevance > 0.5]
        assert exact == []
    shown = client.get(f"/api/v1/conversations/{conversation}/").json()["turns"][0]
    assert shown["reasoning"].startswith("The zebra")


def test_a_temporary_chat_is_answered_and_stands_in_no_list_no_index_and_no_export(person, log_in, language_model):
    model = language_model(
        CallTool("list_recent_conversations", {}), Say(("Noted.",)), Say(("Again.",)), Say(("Title",))
    )
    client = log_in(person)
    events = client.events("My secret is a quokka", temporary=True)
    conversation = events[0].data["conversationId"]
    offered = [tool["function"]["name"] for tool in model.requests[0]["tools"]]
    assert "search_history" in offered and "save_memory" not in offered
    assert "quokka" not in model.requests[1]["messages"][-1]["content"]
    client.events("And more", conversation_id=conversation)
    assert not Embedding.objects.filter(user=person).exists()
    search = {"query": "quokka", "scope": "sessions"}
    for path in ("/", "/conversations/", f"/conversations/?only={conversation}", "/memory/search/?q=quokka"):
        assert conversation not in client.get(path).text, path
    assert client.get("/api/v1/conversations/").json()["conversations"] == []
    assert client.post("/api/v1/tools/search_history/", json=search, headers=client._csrf()).json()["results"] == []
    for path in ("account/export/", "account/export/?as=markdown", f"conversations/{conversation}/export/"):
        assert b"quokka" not in client.get(f"/api/v1/{path}").content
    assert client.get(f"/api/v1/conversations/{conversation}/export/").status_code == 404
    assert "Temporary chat" in client.get(f"/c/{conversation}/").text
    branched = client.post(f"/api/v1/conversations/{conversation}/turns/1/branch/", headers=client._csrf())
    assert branched.status_code == 400


def test_a_temporary_chat_goes_when_it_is_left_or_its_day_is_over_and_another_cannot_go_so(
    person, log_in, language_model, visitor
):
    language_model(*(Say((f"Answer {number}.",)) for number in range(6)))
    client = log_in(person)
    kept = a_turn(person, "Kept").conversation_id
    left, kept_in_time, over = (client.events("A secret", temporary=True)[0].data["conversationId"] for _ in range(3))
    assert client.post(f"/c/{left}/leave/", headers=client._csrf()).status_code == 204
    assert client.post(f"/c/{kept}/leave/", headers=client._csrf()).status_code == 404
    assert client.post(f"/c/{kept_in_time}/keep/", headers=client._csrf()).status_code == 200
    theirs = visitor.events("Mine", temporary=True)[0].data["conversationId"]
    assert client.post(f"/c/{theirs}/leave/", headers=client._csrf()).status_code == 404
    assert client.chat("Hello", conversation_id=str(kept), temporary=True).status_code == 400
    conversation = Conversation.objects.get(pk=over)
    with acting_as(person):
        Conversation.objects.filter(pk=over).update(expires_at=conversation.expires_at - timedelta(days=2))
    with as_a_worker():
        tasks.remove_temporary_chats()
    assert {str(pk) for pk in Conversation.objects.values_list("pk", flat=True)} == {str(kept), kept_in_time, theirs}
    assert not Turn.objects.filter(conversation=over).exists()
    # What was kept in time is found from then on.
    assert Embedding.objects.filter(user=person, source_id=kept_in_time).exists()
    assert kept_in_time in client.get("/").text


def test_the_same_request_sent_again_with_its_choices_is_one_turn(person, log_in, language_model):
    language_model(Say(("Once.",)), Say(("Title",)))
    client = log_in(person)
    headers = {**client._csrf(), "Idempotency-Key": "once"}
    body = {"message": "Hello", "model": "scripted", "temperature": 0, "memory": False}
    for _ in range(2):
        assert client.post("/api/v1/intake/chat", json=body, headers=headers).status_code == 200
    other = client.post("/api/v1/intake/chat", json={**body, "memory": True}, headers=headers)
    assert other.json()["code"] == "idempotency_key_reused"
    assert Turn.objects.count() == 1
    assert DjangoClient().get("/api/v1/models/").status_code == 401
