"""Answers a request in the inner form: its model, its memory, the turn that is kept, and the events of the answer."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.utils import timezone
from pydantic_ai.messages import ToolCallPart

from agent_tools.models import Keeps
from agent_tools.tools.context import ids_of, prompt_context
from chat.agent.context import AgentEvent, AnswerEnded, ChatDeps, TextWritten, ToolCalled, ToolReturned, deps_for
from chat.agent.loop import complete
from chat.agent.prompt import BEFORE_TOOLS, LONGEST_ASKED, parts_of
from chat.answers.database import as_caller, aside
from chat.answers.hub import answer_hub, start_answer
from chat.answers.writer import AnswerWriter
from chat.endpoint.conversations import Kept, Program, keep, own_words, remember_answer
from chat.endpoint.inner import Asked, Data, Message, request_to, why_unread
from chat.endpoint.machinery import is_chat, is_machinery
from core import rate_limits
from core.errors import InvalidInput, NotFound, Unavailable
from core.ids import uuid7
from core.isolation.acting import Caller, acting_as
from core.rate_limits import StreamLease
from core.responses import user_by_token
from core.text import Sentence
from core.text import gettext_noop as _
from intake.chats import changes
from intake.chats.known_answers import turns_known_by
from intake.chats.tree import going_up
from intake.chats.usage import Usage
from intake.llm.language_models import LanguageModel, ask_servers, default_for, find, is_recall_mode, offered
from intake.llm.tokens import cut_middle
from intake.llm.windows import window_of
from intake.models import Conversation, Turn
from intake.revocation import TokenCheck
from memory.search.echoes import telling_words

logger = logging.getLogger(__name__)

Event = AgentEvent | AnswerEnded
DEFAULT, PLAIN, PRIVATE = "recollect", "recollect-plain", "recollect-private"
# Of the time to the first word; what takes longer is left out.
RECALL_SECONDS = 0.2
LONGEST_KEPT = 8_000
EARLIER = _("The app's history before this message")
RESULT = _("What the app's tool returned")
NOT_KEPT = (
    "There is no such answer, or it is not kept here. With `store: false` a program sends its answers themselves."
)
RECALLED = """
These passages of what the person said or kept elsewhere may be about the question:
{passages}
"""


class ModelNotFound(NotFound):
    code = "model_not_found"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no model {name[:100]!r}. These are: {', '.join(known)}.")


class AnswerFailed(Unavailable):
    """`data`: as a turn keeps it."""

    def __init__(self, data: Data) -> None:
        super().__init__(data.get("detail"))
        self.code, self.about = data.get("code", self.code), data.get("about", "")
        self.retryable = data.get("retryable", False)


def choose(name: str, caller: Caller, *, is_anthropics: bool) -> tuple[LanguageModel | None, str, str]:
    """The model of a name of this endpoint, None in recall mode; its own name, empty for the default; and the suffix.

    Raises `ModelNotFound` with the names that there are.
    """
    own, _, suffix = {PLAIN: f"{DEFAULT}:plain", PRIVATE: f"{DEFAULT}:private"}.get(name, name).rpartition(":")
    if suffix not in ("plain", "private"):
        own, suffix = name, ""
    model = None if own == DEFAULT else find(own, caller)
    # Clients of Anthropic's know nothing but Claude's names.
    if model is None and is_anthropics and own.startswith("claude"):
        own, suffix = DEFAULT, suffix or ("private" if "haiku" in own else "")
    if own == DEFAULT:
        model = default_for(caller)
        if model is None and not is_recall_mode():
            raise Unavailable("No language model's server can be reached. Try again.")
    elif model is None:
        raise ModelNotFound(name, names(caller))
    return model, "" if own == DEFAULT else own, suffix


def names(caller: Caller) -> list[str]:
    return [DEFAULT, PLAIN, PRIVATE, *(model.name for model in offered(caller))]


class Opened(NamedTuple):
    """A request that was let in, with its turn if it is kept. `model` is None in recall mode."""

    asked: Asked
    program: Program
    lease: StreamLease
    model: LanguageModel | None
    recalls: bool
    kept: Kept | None


def admit(request: HttpRequest, *, limit: str = "chat") -> Program:
    user, token = user_by_token(request, scopes={"chat"}, lacking="This token lacks the scope `chat`.")
    rate_limits.take_for(limit, user_id=user.pk, address=rate_limits.client_address(request))
    return Program(Caller(user_id=user.pk, bound_to=user.bound_to), token, request.headers)


def begin(request: HttpRequest, asked: Asked, program: Program) -> Opened:
    """All checks that may refuse the request; then what the person says is saved."""
    ask_servers()
    caller, token = program.caller, program.token
    lease = rate_limits.begin_stream(request, user_id=caller.user_id)
    with acting_as(caller):
        model, name, suffix = choose(asked.model, caller, is_anthropics=request.path.endswith("/messages"))
        asked, follows = _with_named_answers(asked, program)
    recalls, keeps = not suffix, suffix != "private" and token.keeps != Keeps.NOTHING
    if is_machinery(asked, program.headers):
        recalls = keeps = False
    elif token.keeps == Keeps.CHATS:
        keeps = keeps and is_chat(asked, program.headers)
    if model is None and not (keeps and recalls):
        address = request.build_absolute_uri("/staff/models/")
        raise AnswerFailed({"detail": f"No language model is configured here. An administrator adds one at {address}."})
    files = [file for each in asked.messages if each.role == "user" for file in each.files]
    # Of a tool's result the model is told so: an agent could not go on.
    if model is not None and (why := next(filter(None, (why_unread(model, file) for file in files)), "")):
        raise InvalidInput(why)
    kept = None
    if keeps:
        kept = keep(asked, program, follows=follows, model=name, uses_memory=recalls, now=timezone.now())
        changes.tell(caller, kept.turn.conversation_id)
    return Opened(asked, program, lease, model, recalls, kept)


def _with_named_answers(asked: Asked, program: Program) -> tuple[Asked, Turn | None]:
    """With this token's answers that the program names instead of sending them, and the turn that it goes on with.

    Some clients of Responses send the id of an answer's text in its place, others the id of the response before.
    """
    numbers = {name: name.rpartition("_")[2] for each in asked.messages if (name := each.refers)}
    if asked.follows:
        numbers[asked.follows] = asked.follows.rpartition("_")[2]
    known = turns_known_by(program.caller, [program.digest("turn", each) for each in numbers.values()])
    mine = Turn.objects.for_caller(program.caller).filter(pk__in=[pk for _, pk in known])
    turns = {str(turn.pk): turn for turn in mine}
    if not turns.keys() >= set(numbers.values()):
        raise NotFound(NOT_KEPT)
    messages, seen = list[Message](), set[str]()
    # The text of an answer between whose parts a tool ran has one id; it stands where it ends.
    for message in reversed(asked.messages):
        name = message.refers
        text = turns[numbers[name]].assistant_message if name and name not in seen else message.text
        seen.add(name)
        messages.insert(0, message.model_copy(update={"text": text}))
    follows = turns[numbers[asked.follows]] if asked.follows else None
    for turn in () if follows is None else (follows, *going_up(follows)):
        # The program's own calls whose results it sends now.
        calls = [ToolCallPart(c["name"], c["input"], c["id"]) for c in turn.tool_calls if "summary" not in c]
        said = Message(role="user", text=turn.user_message)
        messages[:0] = [said, Message(role="assistant", text=turn.assistant_message, calls=tuple(calls))]
    return asked.model_copy(update={"messages": messages}), follows


async def recall(opened: Opened) -> tuple[str, int]:
    """What the chat would give its own model: what the person wants of answers, their notes, and what may be about the
    question, found in time or left out. Also how many notes and texts these are.
    """
    model, program = opened.model, opened.program
    if not opened.recalls or model is None:
        return "", 0

    def about() -> ChatDeps:
        chat = opened.kept.turn.conversation if opened.kept else Conversation(project=program.token.project)
        return deps_for(program.caller, chat, now=timezone.now())

    deps = await as_caller(program.caller, about)
    looking = asyncio.create_task(aside(_passages, opened))
    done, _ = await asyncio.wait({looking}, timeout=RECALL_SECONDS)
    # The notes that its window has room for.
    most = window_of(model).tokens // 10
    notes: Any = {name: cut_middle(getattr(deps, name), most) for name in ("notes", "about", "project_notes")}
    _introduction, *parts = parts_of(replace(deps, **notes))
    passages, count = "", sum(part.kind in ("about", "notes") for part in parts)
    if done and (error := looking.exception()) is not None:
        logger.warning("Nothing is recalled for a program (%s)", type(error).__name__)
    elif done:
        passages, found = looking.result()
        count += found
    wishes = "".join(part.text for part in parts if part.kind in BEFORE_TOOLS)
    facts = "".join(part.text for part in parts if part.kind not in BEFORE_TOOLS) if count else ""
    if passages:
        facts += RECALLED.format(passages=deps.untrusted.around(passages))
    return f"{wishes}\n{facts}".strip(), count


def _passages(opened: Opened) -> tuple[str, int]:
    said, half = [each.text for each in opened.asked.messages if each.role == "user"][-3:], LONGEST_ASKED // 2
    question = own_words(said[-1])
    # "And how much is it?" is about what was said before.
    if len(telling_words(question)) < 3 and not any(map(str.isdigit, question)):
        question = "\n".join(map(own_words, said))
    lines = prompt_context(
        user=opened.program.token.user,
        query=question if len(question) <= LONGEST_ASKED else f"{question[:half]}\n{question[-half:]}",
        project=opened.program.token.project or None,
        session=str(opened.kept.turn.conversation_id) if opened.kept else None,
        max_tokens=800,
        now=timezone.now(),
        repeats=True,
    )
    return "\n".join(line.written for line in lines), len(ids_of(lines))


def start(opened: Opened, memory: str) -> AsyncGenerator[Event, None]:
    """The events of the answer, the last one an `AnswerEnded`. Raises what an answer raises.

    A kept turn is answered as those of the chat's page are: any page can follow it.
    """
    model, kept = opened.model, opened.kept
    making = None if model is None else partial(_made, opened, model, memory)
    if kept is None:
        assert making is not None, "recall mode is kept"  # noqa: S101 - tells the types
        return making()
    if kept.is_again and kept.turn.has_ended:
        return _again(kept.turn)
    about: Any = {"is_authorized": TokenCheck(opened.program.token), "events": making, "model": model}
    writing = start_answer(AnswerWriter(kept.turn, opened.program.caller, **about))
    return _followed(opened.program, kept, writing, writing.log.position)


async def _made(opened: Opened, model: LanguageModel, memory: str) -> AsyncGenerator[Event, None]:
    """The model's answer; first what the program knows and the chat does not, which a page shows folded."""
    asked, kept, user = opened.asked, opened.kept, opened.program.token.user
    if kept is not None and kept.earlier:
        text = "\n\n".join(f"User: {pair.question}\n\nAssistant: {pair.answer}" for pair in kept.earlier)
        yield (call := ToolCalled(str(uuid7()), "earlier_history", {}))
        yield ToolReturned(call, Sentence(EARLIER), found=text[-LONGEST_KEPT:])
    elif kept is not None:
        for message in asked.messages[asked.last_question :]:
            if message.role == "tool":
                call = ToolCalled(message.call_id, "", {})
                yield ToolReturned(call, Sentence(RESULT), found=message.text[:LONGEST_KEPT])
    request = request_to(model, asked, memory=memory)
    async for made in complete(**request, sees_reasons=user.is_staff and user.is_active):
        yield made


def _ended(turn: Turn) -> AnswerEnded:
    used = Usage.of(turn.usage)
    return AnswerEnded(used.model, used.input_tokens, used.output_tokens, used.finish_reason)


async def _again(turn: Turn) -> AsyncGenerator[Event, None]:
    yield TextWritten(turn.assistant_message)
    yield _ended(turn)


async def _followed(program: Program, kept: Kept, writing: AnswerWriter, position: int) -> AsyncGenerator[Event, None]:
    """The events after the position. A program that goes away stops the answer, as the stop button does."""
    log, at, sent = writing.log, position, list[str]()

    async def remember() -> None:
        await writing.ended()
        if not log.is_deleted:
            is_cut = log.ending is None or log.ending.is_cut_short
            texts = [log.text, *(["".join(sent)] if is_cut else [])]
            await as_caller(program.caller, remember_answer, kept, texts, program, is_cut=is_cut)

    try:
        while (news := log.since(at)) or not log.is_over:
            for at, event in news:  # noqa: B007 - that of the last event counts
                sent += [event.text] if isinstance(event, TextWritten) else []
                yield event
            if not news:
                await log.wait()
    finally:
        if not log.is_over:
            writing.stop()
        remembering = asyncio.create_task(remember())
        tasks = answer_hub().tasks
        tasks.add(remembering)
        remembering.add_done_callback(tasks.discard)
    await remembering
    if log.ending is None or log.ending.turn is None:
        raise AnswerFailed({} if log.ending is None else log.ending.data)
    yield _ended(log.ending.turn)
