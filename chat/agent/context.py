"""The context of one answer: its user and their notes, the files of its messages, and the events that come back.

Everything in a file is data of unknown origin: it stands between the marks of `UntrustedData`, like what tools return.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from hashlib import sha256
from typing import Any
from uuid import UUID

from pydantic_ai import RunContext
from pydantic_ai.messages import BinaryContent, ToolReturn

from agent_tools.tools.context import without_left_out
from chat.agent.search_engines import chosen_engine
from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller
from core.text import UntrustedData, cut
from intake.attachments import services
from intake.attachments.reading.pictures import PICTURES
from intake.attachments.services import attachments_of, get
from intake.chats.consent import servers_of
from intake.chats.prompts import PromptPart
from intake.llm.language_models import LanguageModel, model_for
from intake.llm.tokens import tokens_of
from intake.models import (
    Attachment,
    AttachmentText,
    ChatPreferences,
    Conversation,
    Project,
    ToolServer,
    Turn,
    User,
)
from intake.models.installation import default_instructions
from memory import documents
from memory.addresses import document_path
from memory.models.documents import ABOUT_ME, DocumentDay


@dataclass(frozen=True, slots=True)
class ChatDeps:
    """`zone` is the user's; None for a visitor.

    `notes`, `about`: the beginnings of their MEMORY.md and their USER.md, if any. `house_rules`: the instructions of
    this installation, for everybody. `how_to_answer`: their own for all chats; `instructions`: for this one. `project`:
    the label of the chat's project; `project_instructions`, `project_notes`: of that, its MEMORY.md.

    `model` is None in recall mode, and if no server lists one. `sees_reasons`: whether the model server's own words
    about a failure are for this user; they may contain an address or a piece of a key.

    `conversation_id`: that of the chat, which its own searches leave out.

    `tools`: as the model reads them; `has_tools`: whether its window has room for them. `results_tokens`: how much they
    may find, None without a limit, in an answer whose prompt has `history_length` messages. `files_tokens`: the room
    for the files of one message. `parts`: the instructions; `beyond`: what they say of the messages that do not fit.
    `compared`: the turns outside of the prompt and of every search that share words with the message, by relevance.
    `left_out`: the digests of what this chat does not get of the user's memory (`memory.left_out`). `quoted`: what
    recall mode has quoted. `uses_web`: whether this chat's switch is on and staff have chosen a search; `keeps_pages`:
    whether the pages that are read stay with the turn of this `turn_number`.

    `can_ask`: whether the person sits before a page and can be asked before a call; `servers`: whose tools are offered
    then. `foreign`: the origins of results in this answer that others have written. `message`: the person's own words.
    `steps_before`: the requests of this answer before it paused.
    """

    caller: Caller
    now: datetime
    zone: tzinfo | None = None
    notes: str = ""
    about: str = ""
    house_rules: str = ""
    how_to_answer: str = ""
    instructions: str = ""
    project: str = ""
    project_instructions: str = ""
    project_notes: str = ""
    model: LanguageModel | None = None
    temperature: float | None = None
    uses_memory: bool = True
    is_temporary: bool = False
    can_ask: bool = False
    uses_web: bool = False
    keeps_pages: bool = True
    turn_number: int | None = None
    conversation_id: UUID | None = None
    sees_reasons: bool = False
    user: User | None = None
    tools: str = ""
    has_tools: bool = True
    results_tokens: int | None = None
    history_length: int = 1
    files_tokens: int = 0
    parts: tuple[PromptPart, ...] = ()
    beyond: tuple[PromptPart, ...] = ()
    left_out: frozenset[str] = frozenset()
    quoted: list[PromptPart] = field(default_factory=list)
    servers: tuple[ToolServer, ...] = ()
    foreign: list[str] = field(default_factory=list)
    message: str = ""
    steps_before: int = 0
    compared: Sequence[tuple[float, Turn]] = ()
    untrusted: UntrustedData = field(default_factory=UntrustedData)

    @property
    def can_look_up(self) -> bool:
        """Whether the tools read what was said in this chat, and its files."""
        return self.has_tools and self.uses_memory and self.caller.is_registered and not self.is_temporary

    @property
    def sees_pictures(self) -> bool:
        return self.model is not None and self.model.sees_pictures

    @property
    def is_indexed(self) -> bool:
        """Nothing of a visitor or of a temporary chat is."""
        return self.user is not None and not self.is_temporary


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTool:
    """A tool that the chat's model may call.

    `origin` is `memory`, `web` or the name of a server; `acts` says whether a call changes or sends something. `call`
    returns the text for the model, with metadata that has its `summary` for people. `asks` returns the reason why the
    person is asked before this call, None where it needs no question; a tool without `asks` never asks.
    """

    name: str
    description: str
    schema: dict[str, Any]
    origin: str
    acts: bool
    call: Callable[[RunContext[ChatDeps], dict[str, Any]], Awaitable[ToolReturn[str]]]
    asks: Callable[[RunContext[ChatDeps], dict[str, Any]], Awaitable[str | None]] | None = None
    # By which the person may allow it for longer than one call, if it has an address and does not destroy anything.
    address: str = ""
    own_name: str = ""
    destroys: bool = False

    @property
    def fingerprint(self) -> str:
        """Of all that the person sees of it: a tool that is described otherwise is another one."""
        described = json.dumps(
            [self.own_name or self.name, self.description, self.schema, self.destroys], sort_keys=True
        )
        return sha256(described.encode()).hexdigest()


def deps_for(
    caller: Caller, conversation: Conversation, *, now: datetime, message: str = "", can_ask: bool = False
) -> ChatDeps:
    """Read the settings of the chat and the caller's notes. `can_ask`: whether the person sits before a page.

    A user whose account was deleted is treated like a visitor.
    """
    deps = ChatDeps(
        caller=caller,
        now=now,
        house_rules=default_instructions(),
        instructions=conversation.instructions,
        model=model_for(conversation, caller),
        temperature=conversation.temperature,
        uses_memory=conversation.uses_memory,
        is_temporary=conversation.expires_at is not None,
        conversation_id=conversation.pk,
        message=message,
    )
    user = User.objects.filter(pk=caller.user_id, is_visitor=False).first() if caller.user_id is not None else None
    if user is None:
        return deps
    user.bound_to = caller.bound_to
    preferences = ChatPreferences.objects.for_user(user).first() or ChatPreferences()
    uses_web = can_ask and conversation.uses_web and chosen_engine() is not None
    can_ask = can_ask and not deps.is_temporary and not caller.bound_to
    deps = replace(
        deps,
        user=user,
        zone=user.zone,
        how_to_answer=preferences.how_to_answer,
        sees_reasons=user.is_staff and user.is_active,
        uses_web=uses_web,
        keeps_pages=preferences.keeps_pages,
        left_out=frozenset([*preferences.left_out, *conversation.left_out]),
        can_ask=can_ask,
        # One that waits for a log-in would refuse what was allowed.
        servers=tuple(each for each in servers_of(user) if each.is_connected or not each.wants_login)
        if can_ask
        else (),
    )
    if name := conversation.project:
        project = Project.objects.for_user(user).filter(name=name).first() or Project()
        deps = replace(deps, project=name, project_instructions=project.instructions)
    if not conversation.uses_memory:
        return deps
    of_project = _cut_notes(user, None, deps.left_out, project=name) if name else ""
    about, notes = (_cut_notes(user, day, deps.left_out) for day in (ABOUT_ME, None))
    return replace(deps, notes=notes, about=about, project_notes=of_project)


# The length of each of the notes in the model's instructions (MEMORY.md, USER.md) at most.
NOTES_LENGTH = 8_000


def _cut_notes(user: User, day: DocumentDay, left_out: Collection[str], *, project: str = "") -> str:
    # One more than needed shows whether there is more; what is left out makes room for as much.
    length = NOTES_LENGTH * (2 if left_out else 1) + 1
    notes = documents.beginning(user=user, day=day, project=project, length=length)
    if left_out:
        notes = without_left_out(notes, document_path(day, project=project), left_out)
    return notes if len(notes) <= NOTES_LENGTH else notes[:NOTES_LENGTH] + "\n… (cut here: search for the rest)"


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """`id` is this project's own: vendors' ids are not always unique within an answer. `origin`, `tool`: of a tool from
    elsewhere, its server and its name there.
    """

    id: str
    name: str
    input: dict[str, Any]
    origin: str = ""
    tool: str = ""

    def as_data(self) -> dict[str, Any]:
        """As a turn keeps it, and readers get it."""
        of_server = {"origin": self.origin, "tool": self.tool} if self.origin else {}
        return {"id": self.id, "name": self.name, "input": self.input, **of_server}


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`summary` is a line of Markdown for people, with links to the results; `found` the text that the model reads,
    and `shows` the ids of its sources.

    `stored` and `place` say what the call stored and where, so that it can be undone; None if it stored nothing.
    `sources`: what it brought, as parts of the prompt.
    """

    call: ToolCalled
    summary: str
    is_error: bool = False
    stored: str | None = None
    place: dict[str, Any] | None = None
    found: str | None = None
    shows: Sequence[str] = ()
    undone_at: str | None = None
    sources: tuple[PromptPart, ...] = ()

    @property
    def id(self) -> str:
        return self.call.id


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """The call waits for the person. `approval` is what they are shown: why they are asked, which of its words were
    recalled (`marks`), and for how long they may allow it (`chat`, `always`).
    """

    call: ToolCalled
    approval: dict[str, Any]

    @property
    def id(self) -> str:
        return self.call.id


@dataclass(frozen=True, slots=True)
class TextWritten:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningWritten:
    """The reasoning of a thinking model. `seconds` is the thinking time of this answer so far; None if unknown."""

    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The model has finished; `finish_reason` is None if its vendor gives none.

    The tokens are those of all requests for the answer, None if they were not counted.
    """

    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None
    # Those of the first request alone, whose prompt our own count is compared with.
    first_input_tokens: int | None = None


AgentEvent = ToolCalled | ToolReturned | ApprovalAsked | TextWritten | ReasoningWritten
# Events that arrive in pieces; neighbours of one kind may be joined and split anywhere.
WRITTEN = (TextWritten, ReasoningWritten)


# What vendors count for a picture of this size, in tokens, at the most.
TOKENS_OF_A_PICTURE = 1_600
MOST_PICTURES = 10
# Of an outline: a book has a hundred headings, and its pages are counted.
MOST_PLACES = 60
TEXTS_AT_ONCE = 50

FILE = "The person attached the file “{name}” to the message below ({media_type}, id {id}). {state}"
WHOLE = "This is its whole text:"
BEGINNING = "It does not fit here. This is its beginning:"
NO_ROOM = "Its text does not fit here."
EMPTY = "It has no text."
WAITING = "Its text is still being read and is not here yet; say so if the question needs it."
UNREADABLE = "Its text cannot be read ({why}); say so if the question needs it."
PICTURE = "It is a picture, and you see it with the message."
UNSEEN = "It is a picture. You cannot see pictures: say so if the question needs it."
OUTLINE = "Its parts, in order: {places}."
HOW_TO_READ = (
    "Read more of it with `read_attachment` (attachmentId {id}), by place or part, and find passages in it with "
    "`search_history`. To name a page to the person, link to [the page](/api/v1/attachments/{id}/content#page=NUMBER)."
)


def is_being_read(turn: Turn) -> bool:
    """Whether the text of a file of this turn is not there yet."""
    mine = Attachment.objects.filter(user=turn.user_id, conversation_id=turn.conversation_id)
    files = mine.filter(turn_number=turn.turn_number).exclude(kind=Attachment.Kind.PAGE)
    return files.filter(state=Attachment.State.WAITING).exists()


def names_of(turn: Turn) -> str:
    return ", ".join(each.name for each in attachments_of([turn])[turn.pk])


def described(turn: Turn, deps: ChatDeps) -> str:
    """What stands before the message of a turn with files, in about `files_tokens`.

    Each file gets the same share, and what a short one leaves is the next one's.
    """
    files, blocks, tokens = attachments_of([turn])[turn.pk], [], deps.files_tokens
    for number, file in enumerate(files):
        # What others may need is theirs; a picture needs none.
        block = _block(file, deps, tokens // (len(files) - number))
        blocks.append(block)
        tokens -= tokens_of(block)
    return "\n\n".join(blocks)


def pictures_of(turn: Turn, deps: ChatDeps, *, at_most: int) -> tuple[BinaryContent, ...]:
    """The pictures of a turn, for a model that sees them, still without their bytes: `picture` fills them in."""
    if not turn.attachment_count or not deps.sees_pictures:
        return ()
    pictures = [file for file in attachments_of([turn])[turn.pk] if file.media_type in PICTURES][:at_most]
    return tuple(BinaryContent(b"", media_type=file.media_type, identifier=str(file.pk)) for file in pictures)


def picture(caller: Caller, attachment_id: str) -> BinaryContent | None:
    """A picture in the size that models read; None if it was deleted meanwhile, or cannot be read."""
    try:
        data, media_type = services.scaled(get(caller=caller, attachment_id=attachment_id), for_models=True)
    except (InvalidInput, NotFound):
        return None
    return BinaryContent(data=data, media_type=media_type)


def _block(file: Attachment, deps: ChatDeps, tokens: int) -> str:
    about: dict[str, Any] = {"name": _quoted(file.name), "media_type": file.media_type, "id": file.pk}
    around = deps.untrusted.around
    if without_text := _why_without_text(file, deps):
        return FILE.format(**about, state=without_text)
    # Such as that some pages have no text.
    note = (file.error or {}).get("message", "")
    head = FILE.format(**about, state=f"{note} {BEGINNING}".strip())
    rest = _rest(file, deps)
    text, is_whole = _beginning(file, tokens - tokens_of(head) - tokens_of(rest))
    if is_whole:
        return f"{FILE.format(**about, state=f'{note} {WHOLE}'.strip())}\n{around(text)}"
    if not text:
        head = FILE.format(**about, state=f"{note} {NO_ROOM}".strip())
    return "\n".join(each for each in (head, text and around(text), rest) if each)


def _why_without_text(file: Attachment, deps: ChatDeps) -> str:
    """A sentence for the model; empty for a file with a text."""
    if file.media_type in PICTURES:
        return PICTURE if deps.sees_pictures else UNSEEN
    if file.state == Attachment.State.WAITING:
        return WAITING
    if file.state == Attachment.State.UNREADABLE:
        why = (file.error or {}).get("message", "").rstrip(".")
        return UNREADABLE.format(why=why or "no reason is known")
    return "" if file.parts else EMPTY


def _rest(file: Attachment, deps: ChatDeps) -> str:
    """The outline of what is not here, and how to read it."""
    places = [_quoted(str(place)) for place, _number in file.places if place]
    shown = places if len(places) <= MOST_PLACES else [*places[:MOST_PLACES], f"… {places[-1]}"]
    outline = OUTLINE.format(places="; ".join(shown)) if shown else ""
    return "\n".join(filter(None, (outline, HOW_TO_READ.format(id=file.pk) if deps.can_look_up else "")))


def _beginning(file: Attachment, tokens: int) -> tuple[str, bool]:
    """As much of the text as fits, with its places, and whether that is all of it."""
    pieces: list[str] = []
    place = ""
    for text in _texts(file):
        piece = f"[{text.place}]\n{text.text}" if text.place and text.place != place else text.text
        place, needed = text.place, tokens_of(piece)
        if needed > tokens:
            part = cut(piece, max(0, len(piece) * tokens // needed))
            # A piece that is shorter says nothing.
            return "\n\n".join([*pieces, *([part] if len(part) >= 200 else [])]), False
        pieces.append(piece)
        tokens -= needed
    return "\n\n".join(pieces), True


def _texts(file: Attachment) -> Iterator[AttachmentText]:
    """In order, a page of them at a time: of a long file only the first pages are read."""
    mine = AttachmentText.objects.filter(user=file.user_id, attachment=file.pk).order_by("number")
    first = 0
    while texts := list(mine.filter(number__gte=first)[:TEXTS_AT_ONCE]):
        yield from texts
        first = texts[-1].number + 1


def _quoted(name: str) -> str:
    """On one line, and without the signs that end it: a name is the sender's, too."""
    return " ".join(name.replace("“", '"').replace("”", '"').split())
