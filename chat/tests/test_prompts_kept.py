"""What a turn keeps of its prompt: from it the prompt is made again, byte for byte, and its sources are named."""

from statistics import median

import pytest

from chat.agent.prompt import instructions, made_again
from core.isolation.acting import acting_as
from intake.chats import versions
from intake.chats.prompts import Prompt
from intake.models import ChatPreferences, Conversation, Turn
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_turn, caller_for
from memory import documents, index, projects, records
from memory.models.documents import ABOUT_ME
from memory.tests.attached import read_all
from testing.model_server import CallTool, Say

pytestmark = pytest.mark.django_db(transaction=True)


def the_turn():
    return Turn.objects.select_related("conversation").latest("pk")


def sources(turn):
    return [(part.kind, part.source, part.used) for part in Prompt.of(turn.prompt).sources]


def made_anew(turn):
    with acting_as(turn.user):
        return made_again(turn, Prompt.of(turn.prompt), caller_for(turn.user))


def check_as_sent(turn, request):
    """The prompt of the row is that of the request, and each part of it has its digest."""
    asked = made_anew(turn)
    system, *said = request["messages"]
    first, last = instructions(asked.deps, may_use_tools=True)
    told = system["content"]
    assert told.startswith(first) and told.endswith(last)
    assert told[len(first) : len(told) - len(last)].strip() in (asked.deps.tools or told)
    kinds = {"user-prompt": "user", "text": "assistant"}
    history = [
        {"role": kinds[part.part_kind], "content": part.content} for each in asked.history for part in each.parts
    ]
    assert said == [*history, {"role": "user", "content": asked.content}]
    kept = [(part.kind, part.id, part.digest, part.used) for part in Prompt.of(turn.prompt).parts if part.digest]
    now = [(part.kind, part.id, part.digest, part.used) for part in asked.parts]
    assert [each for each in kept if each[0] != "result"] == now
    assert len(turn.prompt.encode()) <= 1_500


@pytest.fixture
def memory(person):
    """Notes, records, a project and chats of a person, all of them indexed."""
    with acting_as(person):
        documents.append(user=person, day=None, text="- Tea, not coffee\n- Trains, not planes", now=NOW)
        documents.append(user=person, day=ABOUT_ME, text="- I am a carpenter in Bremen.", now=NOW)
        documents.append(user=person, day=None, project="Garden", text="- The soil is clay", now=NOW)
        projects.save_project(user=person, name="Garden", instructions="Name plants in Latin.")
        ChatPreferences.objects.create(user=person, how_to_answer="Answer in short sentences.")
        kept = records.create(user=person, content="The worktop is oak", type="decision", now=NOW)
    said = a_turn(person, "The worktop shall be 40 mm thick", "Noted: 40 mm.")
    index.embed_pending()
    return {"record": kept, "turn": said}


def test_prompts_of_all_kinds_are_made_again_from_their_rows(person, log_in, language_model, memory, settings):
    """Versions, branches, files, projects, tools, temporary chats, continued and imported ones, a cut window."""
    client, turns = log_in(person), []
    model = language_model()

    def ask(message, *script, **fields):
        model.follow(*(script or [Say(("Yes.",))]))
        data = client.events(message, **fields)[-1].data
        turn = Turn.objects.select_related("conversation").get(
            conversation_id=data["conversationId"], turn_number=data["turnNumber"]
        )
        check_as_sent(turn, model.requests[0])
        turns.append(turn)
        return str(turn.conversation_id), turn

    chat, _ = ask("Hello")
    ask("And now?", conversation_id=chat)
    ask(
        "What is the worktop?",
        CallTool("search_memory", {"query": "worktop"}),
        Say(("Oak [1].",)),
        conversation_id=chat,
    )
    ask("How thick?", CallTool("search_history", {"query": "worktop"}), Say(("40 mm.",)), conversation_id=chat)
    ask(None, regenerate=2, conversation_id=chat)
    ask("And tomorrow?", edit=2, conversation_id=chat)
    ask("Another way", parent=1, conversation_id=chat)
    file = str(a_file(person, b"The rent is 900 euros. " * 40, "lease.txt").pk)
    read_all()
    ask("What is the rent?", attachments=[file], conversation_id=chat)
    ask("And who pays it?", conversation_id=chat)
    with acting_as(person):
        branch = versions.branch(
            caller=caller_for(person), conversation_id=turns[1].conversation_id, turn_number=2, now=NOW
        )
    ask("In the branch", conversation_id=str(branch.pk))
    ask("What grows here?", project="Garden")
    ask("Only here", project="Garden", instructions="In rhymes.")
    ask("Without it", memory=False)
    temporary, _ = ask("Between us", temporary=True)
    ask("Still?", conversation_id=temporary)
    model.follow(Say(("It begins",), finish_reason="length"))
    cut = client.events("Tell me all")[-1].data
    ask(None, Say((" and ends.",)), conversation_id=cut["conversationId"], **{"continue": cut["turnNumber"]})
    Conversation.objects.filter(pk=memory["turn"].conversation_id).update(source="chatgpt")
    ask("Going on", conversation_id=str(memory["turn"].conversation_id))
    settings.LLM_CONTEXT_TOKENS = 4_096
    long, _ = ask("My cat is called Miso. " + "A walk along the harbour. " * 120)
    for number in range(4):
        ask(f"Paragraph {number}. " + "We talked about boats and the sea. " * 60, conversation_id=long)
    index.embed_pending()
    _, last = ask("What is my cat called?", conversation_id=long)
    assert Prompt.of(last.prompt).sent < 5 and ("turn", f"{long}/1", True) in sources(last)
    widths = [len(turn.prompt.encode()) for turn in turns]
    assert len(turns) > 20 and median(widths) <= 300, (median(widths), max(widths))
