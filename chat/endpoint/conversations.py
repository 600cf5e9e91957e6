"""Which chat a request goes on with, and the turn that is kept of it.

A program sends its whole history, or the end of it, and as a rule no name of the chat. So the last answer that is ours
is looked up among those that this token has got (`intake/chats/known_answers.py`); its turn is the parent. An append,
an edit and a wish for another answer follow from that: they are turns with the same parent. A name in a header or field
counts first, within its token alone: it finds a chat, and is never a right.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

from django.db import IntegrityError
from django.db.models import QuerySet
from pydantic_ai.messages import BinaryContent

from agent_tools.authentication import TokenCaller
from chat.endpoint.inner import Asked
from chat.endpoint.machinery import signs
from core.isolation.acting import Caller, acting_as
from intake.attachments import services as files
from intake.chats import services
from intake.chats.known_answers import digest_of, remember, turns_known_by
from intake.chats.running import refuse_one_too_many
from intake.chats.services import MAX_MESSAGE_LENGTH, NO_PARENT, TurnRequest, create_turn
from intake.chats.tree import end_of
from intake.models import Conversation, Turn
from memory import quotas

# Headers that name a chat, as their programs send them.
CHAT_HEADERS = (
    "X-Recollect-Conversation",
    "X-OpenWebUI-Chat-Id",
    "X-Claude-Code-Session-Id",
    "X-Conversation-Id",
    "X-Session-Id",
    "session-id",
)
# A shorter answer ("Done.") finds its turn only together with its question; a longer one also by its beginning, because
# some programs keep no more.
SHORT, BEGINNING = 80, 200
# Within this time the same request by an SDK that says it tries again stands for the same turn, and a part of an answer
# for the answer.
TRIED_AGAIN_WITHIN = timedelta(hours=1)

# What programs put beside a person's words: blocks that are data, and tags around the words themselves.
_DATA = re.compile(
    r"<(think|thinking|environment_details|environment_context|system-reminder|context|attached_files?)\b[^<>]*>"
    r"|<(details) type=\"(?:reasoning|tool_calls)\""
)
_AROUND = re.compile(r"</?(?:user_input|user_query|user_message|task|feedback)\b[^<>]*>")
_QUERY = re.compile(r"<(user_input|user_query|user_message)\b[^<>]*>")
# Open WebUI's template around a question with sources: the question is what follows the context.
_TEMPLATE = re.compile(r"\A\s*### Task:\s*Respond to the user query.*</context>", re.DOTALL)


class Program(NamedTuple):
    """Who asks: the account, its token, and the headers of the request."""

    caller: Caller
    token: TokenCaller
    headers: Mapping[str, str]

    def digest(self, *words: str) -> str:
        return digest_of(self.caller, self.token.digest, *words)


def _elements(text: str, opening: re.Pattern[str]) -> Iterator[tuple[int, int, int, int]]:
    """Where each element begins, its content begins and ends, and it ends. An opening tag without its end is none.

    Each end is looked for once, where a regular expression would look for it from each opening tag.
    """
    end, endless = 0, set[str]()
    for found in opening.finditer(text):
        name = found[found.lastindex or 0]
        if found.start() < end or name in endless:
            continue
        if (at := text.find(f"</{name}>", found.end())) < 0:
            endless.add(name)
            continue
        end = at + len(name) + 3
        yield found.start(), found.end(), at, end


def own_words(text: str) -> str:
    """A message without what a program has put around, beside and after it; all of it, if nothing is left."""
    for _, begins, ends, _ in _elements(text, _QUERY):
        return text[begins:ends].strip()
    inner, kept, position = _TEMPLATE.sub("", text), list[str](), 0
    for begins, _, _, ends in _elements(inner, _DATA):
        kept.append(inner[position:begins])
        position = ends
    words = _AROUND.sub("", "".join(kept) + inner[position:])
    for sign in signs()["after"]:
        words = words.partition(f"\n\n{sign}")[0]
    return words.strip() or text.strip()


def _alike(text: str) -> str:
    """Equal for texts that differ in white space and in what a program adds."""
    return "".join(unicodedata.normalize("NFC", own_words(text)).split())


class Pair(NamedTuple):
    """A question of the history with all that was answered to it."""

    question: str
    answer: str


def pairs_of(asked: Asked) -> list[Pair]:
    """The history before the last question. Instructions and the results of tools count for nothing."""
    found: list[list[str]] = []
    for message in asked.messages[: asked.last_question]:
        if message.role == "user":
            found.append([message.text])
        elif message.role == "assistant" and found:
            found[-1].append(message.text)
    pairs = [Pair(question, "\n".join(texts).strip()) for question, *texts in found]
    return [pair for pair in pairs if pair.answer]


class Place(NamedTuple):
    """Where a new turn goes: below `parent` in a chat, or in a new one. `earlier`: what the program said elsewhere
    before, which is shown with the first turn.
    """

    chat: UUID | None = None
    parent: int | None = NO_PARENT
    earlier: Sequence[Pair] = ()


class Kept(NamedTuple):
    """The turn of a request. `is_again`: it was there before, and an SDK tries again or a tool's result has come."""

    turn: Turn
    question: str
    earlier: Sequence[Pair] = ()
    is_again: bool = False


def keep(asked: Asked, program: Program, *, follows: Turn | None, model: str, uses_memory: bool, now: datetime) -> Kept:
    """Save what the person says as a turn, before any model is asked. `follows`: the turn that the program names.

    Raises as `create_turn`.
    """
    caller = program.caller
    names = [program.headers.get(name) for name in CHAT_HEADERS]
    name = next((name for name in [*names, asked.chat] if name), "")
    external_id = name and program.digest("chat", name)
    pairs, words = pairs_of(asked), own_words(asked.messages[asked.last_question].text)
    ids = _stored(asked, words, caller=caller, now=now)
    # A bound token sends no files, so what is too long is cut.
    message = words if len(words) <= MAX_MESSAGE_LENGTH else "" if ids else words[:MAX_MESSAGE_LENGTH]
    options: dict[str, Any] = {"message": message, "attachments": ids, "model": model, "memory": uses_memory}
    while True:
        # Two first requests of a named chat at once: the second one finds the chat of the first.
        with suppress(IntegrityError), acting_as(caller):
            if follows is not None:
                place = Place(follows.conversation_id, follows.turn_number)
            else:
                place = _place_of(pairs, external_id, program, now=now)
            digest = _digest_asked(words, place, external_id, program)
            if again := _asked_before(asked, digest, program, follows=follows, now=now):
                # A first attempt that failed has lost its calls, and with them what was said elsewhere before.
                return Kept(again, words, () if again.tool_calls else place.earlier, is_again=True)
            project = None if place.chat else program.token.project or None
            where: Any = {"conversation_id": place.chat, "parent": place.parent, "project": project}
            turn = create_turn(TurnRequest(**options, **where), caller=caller, now=now)
            if place.chat is None:
                chat = turn.conversation
                chat.source, chat.external_id = program.token.name[:32] or "app", external_id
                chat.save(update_fields=["source", "external_id"])
            remember(caller, [digest, program.digest("turn", str(turn.pk))], turn.pk)
            refuse_one_too_many(caller=caller, now=now)
            return Kept(turn, words, place.earlier)


def _stored(asked: Asked, words: str, *, caller: Caller, now: datetime) -> tuple[UUID, ...]:
    """The files of the question as attachments of its turn; also a text that is too long for a message."""
    if caller.bound_to:
        return ()
    found = [*asked.messages[asked.last_question].files]
    if len(words) > MAX_MESSAGE_LENGTH:
        data = words.encode(errors="replace")
        found.insert(0, BinaryContent(data, media_type="text/plain", identifier="message.txt"))
    store = partial(files.store, caller=caller, now=now, take_room=partial(quotas.take_file, caller))
    with acting_as(caller):
        return tuple(
            store(file=BytesIO(file.data), name=file.identifier, media_type=file.media_type).pk
            for file in found[: files.MOST_OF_A_MESSAGE]
        )


def _digest_asked(words: str, place: Place, external_id: str, program: Program) -> str:
    return program.digest("asked", f"{external_id or place.chat}:{place.parent}", _alike(words))


def _place_of(pairs: Sequence[Pair], external_id: str, program: Program, *, now: datetime) -> Place:
    """Below the last answer of the history that is ours; among several that of the longest history that agrees, then
    the latest. Without any: at the end of the chat that is named, or in a new one.
    """
    # Of a digest that stands twice, the last place counts.
    numbers = {digest: n for n, pair in enumerate(pairs) for digest in digests_of(pair, program)}
    known = turns_known_by(program.caller, numbers)
    turns = Turn.objects.for_caller(program.caller).filter(pk__in={pk for _, pk in known if pk is not None})
    named = None
    if external_id:
        named = Conversation.objects.for_caller(program.caller).filter(external_id=external_id).first()
    if named is not None:
        turns = turns.filter(conversation=named)
    found = {turn.pk: turn for turn in turns.only("conversation_id", "turn_number", "parent_number")}
    # By the number of the pair, and by their own, the turns that give its answer.
    answers = defaultdict[int, dict[tuple[UUID, int | None], Turn]](dict)
    for digest, pk in known:
        if turn := found.get(pk or 0):
            answers[numbers[digest]][turn.conversation_id, turn.turn_number] = turn
    if not answers and named is not None:
        # A summary may stand in place of the history.
        return Place(named.pk, (end_of(named) or NO_PARENT) if pairs else NO_PARENT)
    last = max(answers, default=-1)

    def agreeing(turn: Turn) -> int:
        count = 0
        before: Turn | None = turn
        while before:
            count += 1
            before = answers[last - count].get((turn.conversation_id, before.parent_number))
        return count

    # An answer that is known and gone has been deleted here: its history does not come back.
    place = Place(earlier=() if known else pairs)
    if answers:
        best = max(answers[last].values(), key=lambda turn: (agreeing(turn), turn.pk))
        place = Place(best.conversation_id, best.turn_number)
    # Of the next answer this program may have got a part, before what it got was remembered or its process killed.
    for question, answer in pairs[last + 1 :][:1]:
        sent = _alike(answer)
        for turn in _asked_lately(_digest_asked(question, place, external_id, program), program, now=now):
            saved = _alike(turn.assistant_message)
            if turn.status != Turn.Status.COMPLETE and (sent.startswith(saved) or saved.startswith(sent)):
                return Place(turn.conversation_id, turn.turn_number)
    return place


def _asked_lately(digest: str, program: Program, *, now: datetime) -> QuerySet[Turn]:
    """The turns of this question at its place, the latest first."""
    ids = [pk for _, pk in turns_known_by(program.caller, [digest]) if pk is not None]
    mine = Turn.objects.for_caller(program.caller)
    return mine.filter(pk__in=ids, said_at__gte=now - TRIED_AGAIN_WITHIN).order_by("-pk")


def digests_of(pair: Pair, program: Program, *, is_cut: bool = True) -> Iterator[str]:
    """By which an answer is found: by itself, and by its beginning; a short one with its question.

    `is_cut`: also by a shorter beginning, of an answer of which a program may have got no more.
    """
    answer = _alike(pair.answer)
    if 0 < len(answer) < SHORT:
        yield program.digest("short", _alike(pair.question), answer)
    elif answer:
        yield program.digest("answer", answer)
        if is_cut:
            yield program.digest("cut", answer[:SHORT])
        if len(answer) >= BEGINNING:
            yield program.digest("beginning", answer[:BEGINNING])


def _asked_before(asked: Asked, digest: str, program: Program, *, follows: Turn | None, now: datetime) -> Turn | None:
    """The turn of the same request, where an SDK says that it tries again, or the result of a tool has come.

    It is reopened; one that is complete is only shown, unless it goes on with the tool's result.
    """
    goes_on = asked.messages[-1].role == "tool"
    if not goes_on and program.headers.get("X-Stainless-Retry-Count", "0") in ("", "0"):
        return None
    turn = follows if goes_on and follows else _asked_lately(digest, program, now=now).first()
    if turn is None or (turn.has_ended and turn.status == Turn.Status.COMPLETE and not goes_on):
        return turn
    services.lock_conversation(program.caller, turn.conversation_id)
    turn.refresh_from_db()
    # One that waits for its person in the page is asked anew: nobody can answer here.
    services.close_waiting(turn)
    return services.reopen(turn, keeps_text=goes_on)


def remember_answer(kept: Kept, texts: Sequence[str], program: Program, *, is_cut: bool) -> None:
    """`texts`: the answer as it is saved, and as the program has got it, if that is another one."""
    pairs = [Pair(kept.question, text) for text in texts]
    remember(
        program.caller, sorted({d for pair in pairs for d in digests_of(pair, program, is_cut=is_cut)}), kept.turn.pk
    )
