"""A chat as a whole with models whose windows are small, large, and said in each server's way."""

import re

import pytest

from chat.agent import prompt
from chat.agent.context import ChatDeps
from core.isolation.acting import acting_as
from intake.chats import versions
from intake.llm.language_models import LanguageModel, named_models
from intake.llm.windows import learn_window, note_on_window, window_of
from intake.models import Turn
from intake.tests.factories import NOW, a_turn, caller_for
from memory import index
from memory.backends.e5 import E5Embedder
from testing.model_server import CallTool, ReadingModel, Refuse, Say, ScriptedModel
from testing.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

FIRST_LINE = "The lighthouse keeper's log begins on a Tuesday."
PASTE = (
    FIRST_LINE + "\n" + "\n".join(f"Line {number}: wind from the north, lamp lit at {number}." for number in range(900))
)


@pytest.fixture(scope="module")
def spans(tmp_path_factory):
    return E5Embedder(cache_dir=tmp_path_factory.mktemp("models")).token_offsets


@pytest.fixture
def serve(settings, serve_model):
    """Makes the chat use this model's server."""

    def serve(model, **options):
        settings.LLM_MODEL = model.names[0]
        settings.LLM_BASE_URL = serve_model(model) + "/v1"
        settings.CHAT_TITLES = False
        return model

    return serve


def reading(window, spans, **said):
    """Answers what it is asked for from what is left of its prompt."""

    def answer(kept):
        question = kept.rsplit("user: ", 1)[-1]
        if "first line" in question:
            return FIRST_LINE if FIRST_LINE in kept.rsplit("user: ", 1)[0] else "There is no paste."
        if "say first" in question:
            first = re.search(r"My boat is called \w+", kept)
            return first[0] if first else "I do not know."
        return "Noted."

    return ReadingModel(window=window, answer=answer, spans=spans, **said)


def ollama(tokens):
    return {"/api/ps": {"models": [{"name": "scripted", "model": "scripted", "context_length": tokens}]}}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("window", "said"),
    [(4_096, {"others": ollama(4_096)}), (128_000, {"row": {"max_model_len": 128_000}})],
    ids=["4096", "128000"],
)
def test_the_first_line_of_a_paste_and_the_first_message_of_60_are_known(person, log_in, serve, spans, window, said):
    model = serve(reading(window, spans, **said))
    client = log_in(person)
    events = client.events(PASTE[:9_000])
    here = {"conversation_id": events[0].data["conversationId"]}
    answered = client.events("What was the first line of my paste?", **here)
    assert Turn.objects.get(turn_number=2).assistant_message == FIRST_LINE
    conversation = a_turn(person, "My boat is called Kittiwake", "A fine name.").conversation
    for number in range(59):
        a_turn(person, f"Day {number}: {'we sailed on past the islands, and saw seals ' * 4}", "Noted. " * 40,
               conversation=conversation)  # fmt: skip
    index.embed_pending()
    answered = client.events("What did I say first?", conversation_id=str(conversation.pk))
    turn = Turn.objects.get(turn_number=61)
    assert turn.assistant_message == "My boat is called Kittiwake"
    assert model.lengths and max(model.lengths) <= window, model.lengths
    left_out = answered[0].data["notSent"]
    assert (left_out > 30) == (window == 4_096)
    assert turn.usage.get("not_sent", 0) == left_out
    assert left_out + turn.usage.get("sent", 60) == 60


@pytest.mark.medium
def test_a_prompt_says_what_is_left_out_and_shows_what_the_question_is_about(person, log_in, serve, spans):
    model = serve(reading(12_000, spans, row={"max_model_len": 12_000}))
    conversation = a_turn(person, "Let us begin", "Gladly.").conversation
    for number in range(60):
        said = "The spare key lies under the blue flowerpot" if number == 7 else f"Day {number}: we sailed on and on"
        a_turn(person, said, "We shall see what the wind does tomorrow. " * 20, conversation=conversation)
    index.embed_pending()
    client = log_in(person)
    events = client.events("Where does the spare key lie?", conversation_id=str(conversation.pk))
    system = model.requests[-1]["messages"][0]["content"]
    left_out = events[0].data["notSent"]
    assert left_out > 20
    assert f"its {left_out} earliest messages, with their answers, are left out" in system
    assert f"`get_conversation` (`conversation_id` is {conversation.pk})" in system
    assert "Let us begin" in system
    (passages,) = re.findall(r"may be about the question:\n(<data .*?</data \w+>)", system, re.DOTALL)
    assert "blue flowerpot" in passages
    told = [message["content"] for message in model.requests[-1]["messages"][1:]]
    assert told[-1] == "Where does the spare key lie?" and "Day 59" in told[-3]
    assert max(model.lengths) <= 12_000
    # Another chat of the same person is none of this one's.
    other = a_turn(person, "The spare key lies at the neighbours'").conversation
    index.embed_pending()
    client.events("Where does the spare key lie?", conversation_id=str(conversation.pk))
    assert "neighbours" not in model.requests[-1]["messages"][0]["content"]
    assert other.pk != conversation.pk


@pytest.mark.medium
def test_a_visitor_is_told_how_many_messages_are_left_out_and_nothing_is_searched(visitor, serve, spans):
    model = serve(reading(4_096, spans, others=ollama(4_096)))
    begun = visitor.events("My boat is called Kittiwake")[0].data["conversationId"]
    for number in range(12):
        visitor.events(f"Day {number}: " + "we sailed on past the islands. " * 40, conversation_id=begun)
    events = visitor.events("What did I say first?", conversation_id=begun)
    assert events[0].data["notSent"] > 3
    assert Turn.objects.get(turn_number=14).assistant_message == "My boat is called Kittiwake"
    system = model.requests[-1]["messages"][0]["content"]
    assert "get_conversation" not in system.split("are left out")[1]
    assert max(model.lengths) <= 4_096


def test_a_message_that_alone_exceeds_the_window_is_told_as_that_and_not_sent(visitor, serve, spans):
    model = serve(reading(4_096, spans, others=ollama(4_096)))
    error = visitor.events("word " * 5_000)[-1]
    assert (error.name, error.data["code"], error.data["about"]) == ("error", "too_large", "message")
    assert error.data["detail"] == "This model's window (4,096 tokens) is too small here."
    assert model.requests == []
    # What follows still has both ends of it.
    here = {"conversation_id": str(Turn.objects.get().conversation_id)}
    visitor.events("first line?", **here)
    (cut,) = [message["content"] for message in model.requests[0]["messages"] if message["role"] == "user"][:-1]
    assert cut.startswith("word word") and cut.endswith("word") and "characters are left out here" in cut
    assert max(model.lengths) <= 4_096


@pytest.mark.medium
def test_the_results_of_tools_leave_room_in_the_window(person, log_in, serve, spans):
    letters = [
        a_turn(person, f"Harbour {number}", "The harbour master wrote a long letter about moorings. " * 300)
        for number in range(5)
    ]
    calls = [CallTool("get_conversation", {"conversation_id": str(turn.conversation_id)}) for turn in letters]
    model = serve(ScriptedModel(*calls, Say(("It is about moorings.",)), row={"max_model_len": 9_000}))
    assert log_in(person).events("What did the harbour master write?")[-1].name == "done"
    for request in model.requests:
        text = "\n".join(str(message.get("content") or message.get("tool_calls")) for message in request["messages"])
        assert len(spans(text + str(request.get("tools", "")))) <= 9_000
    assert any("limit_reached" in str(message["content"]) for message in model.requests[-1]["messages"])


def test_half_of_the_history_is_sent_where_a_conversation_was_too_long(person, log_in, serve):
    conversation = a_turn(person, "Message 0").conversation
    for number in range(1, 20):
        a_turn(person, f"Message {number}", "An answer of some words. " * 10, conversation=conversation)
    refused = Refuse(400, message="This model's maximum context length is 4096 tokens")
    model = serve(ScriptedModel(refused, Say(("Now.",))))
    client = log_in(person)
    error = client.events("And now?", conversation_id=str(conversation.pk))[-1]
    assert (error.name, error.data["about"]) == ("error", "window")
    assert error.data["detail"].startswith("This conversation is longer than the model's window.")
    events = client.events(regenerate=21, conversation_id=str(conversation.pk), newest_only=True)
    assert events[-1].name == "done"
    assert 8 <= events[0].data["notSent"] <= 12
    before, after = (
        len([each for each in request["messages"] if each["role"] == "user"]) for request in model.requests
    )
    assert (before, after) == (21, 21 - events[0].data["notSent"])


def deps_of(person, tokens):
    model = LanguageModel("one", "one", base_url="http://localhost/v1", context_tokens=tokens)
    return ChatDeps(caller=caller_for(person), now=NOW, model=model, user=person)


def the_last_turn(conversation):
    return Turn.objects.select_related("conversation").filter(conversation=conversation).latest("turn_number")


def test_a_prompt_that_fits_reads_the_conversation_in_one_statement(person, django_assert_num_queries):
    conversation = a_turn(person, "Message 1").conversation
    for number in range(2, 12):
        a_turn(person, f"Message {number}", conversation=conversation)
    with acting_as(person):
        turn = the_last_turn(conversation)
        with django_assert_num_queries(1):
            asked = prompt.asked(turn, deps_of(person, 32_000))
    assert (asked.made.sent, asked.left_out) == (10, ())


def test_what_a_branch_leaves_out_is_in_the_chat_that_it_came_from(person):
    origin = a_turn(person, "Message 1", "An answer. " * 100).conversation
    for number in range(2, 30):
        a_turn(person, f"Message {number}", "An answer. " * 100, conversation=origin)
    with acting_as(person):
        where = {"caller": caller_for(person), "conversation_id": origin.pk}
        branch = versions.branch(**where, turn_number=25, now=NOW)
    a_turn(person, "Elsewhere", conversation=branch)
    a_turn(person, "And here", conversation=branch)
    with acting_as(person):
        asked = prompt.asked(the_last_turn(branch), deps_of(person, 4_096))
    assert asked.made.sent + len(asked.left_out) == 26
    assert asked.left_out == tuple((origin.pk, number) for number in range(len(asked.left_out), 0, -1))


# -- How servers say it --------------------------------------------------------------------------------------------------


def a_row(**fields):
    return {"row": fields}


@pytest.mark.parametrize(
    ("said", "tokens", "is_certain"),
    [
        (a_row(max_model_len=32_768), 32_768, True),
        (a_row(context_window=131_072), 131_072, False),
        (a_row(context_length=200_000, top_provider={"context_length": 64_000}), 64_000, True),
        (a_row(loaded_context_length=6_000, max_context_length=131_072), 6_000, True),
        ({"others": {"/api/v0/models": {"data": [{"id": "scripted", "loaded_context_length": 5_000}]}}}, 5_000, True),
        (a_row(meta={"n_ctx": 12_288, "n_ctx_train": 131_072}), 12_288, True),
        ({**a_row(meta={"n_ctx_train": 131_072}),
          "others": {"/props": {"default_generation_settings": {"n_ctx": 8_448}}}}, 8_448, True),
        (a_row(meta={"n_ctx_train": 131_072}), 131_072, False),
        ({"others": {"/info": {"max_total_tokens": 7_000}}}, 7_000, True),
        ({"others": ollama(20_000)}, 20_000, True),
        ({"others": {"/api/ps": {"models": []}, "/api/show": {"model_info": {"qwen3.context_length": 40_960}}}},
         4_096, False),
        ({"others": {"/api/ps": {"models": []}, "/api/show": {"parameters": "stop  \"x\"\nnum_ctx    9000\n"}}},
         9_000, True),
        ({"others": {"/api/ps": {"models": [{"name": "other:latest", "context_length": 1}]}, "/api/show": {}}},
         4_096, False),
        ({}, 16_384, False),
        (a_row(max_model_len="lots", context_length=-1, max_context_length=True, meta=[]), 16_384, False),
    ],
)  # fmt: skip
def test_the_window_is_what_the_server_says_of_the_model_that_is_loaded(serve_model, said, tokens, is_certain):
    model = LanguageModel("home", "scripted", base_url=f"{serve_model(ScriptedModel(**said))}/v1")
    learn_window(model)
    window = window_of(model)
    assert (window.tokens, window.is_certain) == (tokens, is_certain)


@pytest.mark.parametrize(
    ("id_", "tokens"),
    [
        ("gpt-4.1-mini", 1_047_576), ("gpt-5.5", 272_000), ("gpt-4o-mini", 128_000), ("gpt-4", 8_192), ("o4-mini", 200_000),
        ("anthropic:claude-sonnet-5-5", 200_000), ("gpt-oss-20b", 16_384), ("qwen3", 16_384),
    ],
)  # fmt: skip
def test_a_vendors_model_is_known_by_its_family_and_any_other_is_assumed(id_, tokens):
    assert window_of(LanguageModel("one", id_)).tokens == tokens


def test_a_setting_comes_before_what_a_server_says(settings):
    settings.LLM_MODEL, settings.LLM_CONTEXT_TOKENS = "gpt-4o", 50_000
    settings.LLM_MODELS = {"mine": {"MODEL": "m", "BASE_URL": "http://127.0.0.1:9/v1", "API_KEY": "", "THINKING": "",
                                    "CONTEXT_TOKENS": "60_000"}}  # fmt: skip
    first, second = named_models()
    assert (window_of(first).tokens, window_of(second).tokens) == (50_000, 60_000)


def test_a_server_that_is_away_keeps_what_was_known():
    with serving(ScriptedModel(row={"max_model_len": 32_768}).application) as address:
        model = LanguageModel("home", "scripted", base_url=f"{address}/v1")
        learn_window(model)
    learn_window(model)
    assert window_of(model).tokens == 32_768


# -- Small windows are named ---------------------------------------------------------------------------------------------

MENDS = "Load it with a longer context of at least 16,384 tokens."


def test_a_small_window_is_named_with_the_line_that_mends_it(person, log_in, serve, spans, logged):
    model = serve(reading(4_096, spans, others=ollama(4_096)))
    client = log_in(person)
    client.events("Hello")
    (listed,) = client.get("/api/v1/models/").json()["models"]
    assert listed["contextTokens"] == 4_096
    assert listed["note"] == f"scripted reads only 4,096 tokens at once, so a chat soon outgrows it. {MENDS}"
    page = client.get(f"/c/{Turn.objects.get().conversation_id}/").text
    assert MENDS in page.split("data-window-note")[1].split("</p>")[0]
    assert [line for line in logged.lines if MENDS in line and "WARNING" in line]
    assert model.lengths[0] <= 4_096


def test_a_window_that_is_enough_or_assumed_is_not_named(person, log_in, language_model):
    language_model(Say(("Hello.",)))
    client = log_in(person)
    client.events("Hello")
    (listed,) = client.get("/api/v1/models/").json()["models"]
    assert "note" not in listed and "contextTokens" not in listed
    assert "data-window-note hidden" in client.get("/").text
    assert note_on_window(LanguageModel("gpt-4", "gpt-4")) is None
