"""What of a user's memory an answer was given: each source with its title and page, as pages, the API and exports say.

The titles are read when they are asked for, so that nothing remains of what was deleted. A caller who is bound to a
project gets its sources alone, and learns of no others.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal
from uuid import UUID

from django.urls import reverse
from django.utils.translation import gettext
from pydantic import Field

from core.isolation.acting import Caller, binding_of
from core.text import first_line
from core.text import gettext_noop as _
from core.validation import Output
from intake.chats.prompts import PAGE, Prompt, PromptPart
from intake.chats.tree import conversation_path
from intake.models import Attachment, AttachmentText, Conversation, Turn
from intake.models.conversations import with_pairs
from memory.addresses import document_path, note_path, page_path, project_key, record_path
from memory.left_out import digest_of
from memory.models import MemoryDocument, MemoryRecord
from memory.models.documents import ABOUT_ME


class SourceOutput(Output):
    """A part of the prompt that came from the user's memory."""

    kind: Annotated[
        Literal["about", "notes", "instructions", "record", "turn", "file", "page"],
        Field(
            description="`about`: what they say about themselves; `notes`: MEMORY.md, a log or a note; `page`: read on "
            "the web."
        ),
    ]
    id: Annotated[str, Field(description="As `fetch` takes it; of texts that are given whole, which of them.")]
    place: Annotated[str, Field(description="Its page; empty if it is no longer there.")]
    title: Annotated[str, Field(description="Empty if it is no longer there, or of another project than the chat.")]
    tokens: Annotated[int, Field(description="As this server counts them.")]
    used: Annotated[bool, Field(description="False for what was found and not sent to the model.")]


# Of texts that are given whole, by kind and id.
TITLES = {
    ("about", ""): _("About me"),
    ("notes", "all"): _("What always holds"),
    ("notes", "project"): _("What always holds in this project"),
    ("instructions", "all"): _("How you want answers in all chats"),
    ("instructions", "project"): _("Instructions of this project"),
    ("instructions", "chat"): _("Instructions of this chat"),
}


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """`state`: empty, or `gone`, `replaced`, or `elsewhere` for one of another project than the chat, whose title is
    not shown. `digest`: by which it is left out; empty if it is gone. `correct`: the page that corrects its text; empty
    for a passage, which stays as it was said or read.
    """

    part: PromptPart
    title: str = ""
    place: str = ""
    project: str = ""
    state: str = ""
    correct: str = ""

    @property
    def digest(self) -> str:
        is_row = self.part.kind in ("record", "turn", "file", "page") or "-" in self.part.source
        return digest_of(self.part.source if is_row else self.place) if self.place else ""

    @property
    def output(self) -> SourceOutput:
        part: Any = self.part
        about = {"tokens": part.tokens, "used": part.used}
        return SourceOutput(kind=part.kind, id=part.source, place=self.place, title=self.title, **about)


def place_of(kind: str, id_: str, project: str, conversation_id: UUID | None) -> str:
    """The page of a text that is given whole: `id_` says whether it is that of the project or of the chat."""
    of_project = project if id_ == "project" else ""
    if kind != "instructions":
        return document_path(ABOUT_ME if kind == "about" else None, project=of_project)
    if id_ == "chat" and conversation_id is not None:
        return conversation_path(conversation_id)
    return reverse("memory:edit_project", args=[project_key(project)]) if of_project else reverse("intake:account")


def sources_of(turns: Collection[Turn], caller: Caller) -> dict[int, list[AnswerSource]]:
    """By the key of each turn that has any, those that were sent first. The caller acts already."""
    parts = {turn.pk: Prompt.of(turn.prompt).sources for turn in turns}
    every = [part for of_turn in parts.values() for part in of_turn]
    if not every:
        return {}
    chats = Conversation.objects.for_caller(caller).filter(pk__in={turn.conversation_id for turn in turns})
    projects, found = dict(chats.values_list("pk", "project")), found_of(every, caller)
    bound = binding_of(caller)
    sources: dict[int, list[AnswerSource]] = {}
    for turn in turns:
        project = projects.get(turn.conversation_id, "")
        own = (_source(part, turn.conversation_id, project, found) for part in parts.get(turn.pk, ()))
        sources[turn.pk] = [each for each in own if not bound or (each.project == bound and each.state != "gone")]
    return sources


def _source(
    part: PromptPart, conversation_id: UUID, project: str, found: Mapping[tuple[str, str], AnswerSource]
) -> AnswerSource:
    if title := TITLES.get((part.kind, part.source)):
        own = project if part.source in ("project", "chat") else ""
        place = place_of(part.kind, part.source, project, conversation_id)
        day = ABOUT_ME if part.kind == "about" else None
        correct = place if part.kind == "instructions" else document_path(day, "edit", project=own)
        return AnswerSource(part, title, place, own, correct=correct)
    if (each := found.get((part.kind, part.source))) is None:
        return AnswerSource(part, state="gone")
    if each.project not in ("", project):
        each = replace(each, title="", state="elsewhere")
    return replace(each, part=part)


def found_of(parts: Iterable[PromptPart], caller: Caller) -> dict[tuple[str, str], AnswerSource]:
    """By kind and id, as far as they are there: records, notes, turns as `CONVERSATION/TURN`, whole conversations by
    their ids, and passages of files as `file:ATTACHMENT:PART`, at the message that has the file.
    """
    ids, found = defaultdict[str, set[str]](set), dict[tuple[str, str], AnswerSource]()
    for part in parts:
        ids[part.kind].add(part.source)

    def add(kind: str, id_: str, *about: str) -> None:
        found[kind, id_] = AnswerSource(PromptPart(kind, id_), *about)

    if ids["record"]:
        mine = MemoryRecord.objects.for_caller(caller)
        replaced = set(mine.filter(replaces__in=ids["record"]).values_list("replaces", flat=True))
        for row in mine.filter(pk__in=ids["record"]):
            state = "replaced" if row.pk in replaced else ""
            correct = reverse("memory:replace_record", args=[row.pk])
            add("record", str(row.pk), first_line(row.content), record_path(row.pk), row.project_id, state, correct)
    if notes := [id_ for id_ in ids["notes"] if "-" in id_]:
        for document in MemoryDocument.objects.for_caller(caller).filter(pk__in=notes):
            if document.kind == MemoryDocument.Kind.NOTE:
                add("notes", str(document.pk), document.title, note_path(document.pk), document.project)
                continue
            title = f"{document.get_kind_display()} {document.date or ''}".strip()
            path, correct = (document_path(document.day, doing, project=document.project) for doing in ("", "edit"))
            add("notes", str(document.pk), title, path, document.project, "", correct)
    keys = [(UUID(chat), int(number)) for chat, _, number in (id_.partition("/") for id_ in ids["turn"]) if number]
    for turn in Turn.objects.for_caller(caller).with_keys(keys).select_related("conversation") if keys else ():
        chat, path = turn.conversation, conversation_path(turn.conversation_id, turn_number=turn.turn_number)
        add("turn", f"{chat.pk}/{turn.turn_number}", f"{chat.title} ({turn.said_at:%Y-%m-%d})", path, chat.project)
    if whole := [id_ for id_ in ids["turn"] if "/" not in id_]:
        for chat in Conversation.objects.for_caller(caller).filter(pk__in=whole):
            add("turn", str(chat.pk), chat.title, conversation_path(chat.pk), chat.project)
    if passages := {(UUID(id_.split(":")[1]), int(id_.split(":")[2])): id_ for id_ in ids["file"] | ids["page"]}:
        files = Attachment.objects.for_caller(caller).filter(pk__in={file for file, _number in passages})
        by_id = {file.pk: file for file in files.exclude(conversation_id=None)}
        texts = AttachmentText.objects.for_caller(caller).filter(with_pairs("attachment_id", "number", passages))
        places = {
            (file, number): place for file, number, place in texts.values_list("attachment_id", "number", "place")
        }
        chats = Conversation.objects.for_caller(caller).in_bulk([file.conversation_id for file in by_id.values()])
        for key, id_ in passages.items():
            if (file := by_id.get(key[0])) and (of_file := chats.get(file.conversation_id)):
                title = ", ".join(filter(None, [file.title, places.get(key)]))
                path = conversation_path(of_file.pk, turn_number=file.turn_number)
                path = page_path(file.pk, key[1]) if file.address else path
                for kind in ("file", "page"):
                    add(kind, id_, title, path, of_file.project)
    return found


def passage_of(part: PromptPart, caller: Caller) -> str:
    """What was said in a turn, or what a part of a file or an imported note says."""
    if part.kind == "notes":
        notes = MemoryDocument.objects.for_caller(caller).filter(pk=part.source)
        return "".join(notes.values_list("content", flat=True))
    if part.kind in ("file", "page"):
        _file, id_, number = part.source.split(":")
        texts = AttachmentText.objects.for_caller(caller).filter(attachment_id=id_, number=number)
        return "".join(texts.values_list("text", flat=True))
    chat, _, number = part.source.partition("/")
    turn = Turn.objects.for_caller(caller).with_keys([(UUID(chat), int(number or 1))]).first()
    return "" if turn is None else f"{turn.user_message}\n\n{turn.assistant_message}".strip()


def places_cited(sources: Iterable[AnswerSource]) -> dict[str, str]:
    """The pages of numbered sources, by their numbers."""
    return {str(each.part.number): each.place for each in sources if each.part.number and each.place}


def chats_with_turns(sources: Iterable[PromptPart]) -> set[str]:
    """Of which a turn was used: one that was found as a whole too is shown and counted by its turns alone."""
    return {part.source.partition("/")[0] for part in sources if part.used and "/" in part.source}


def in_words(sources: Iterable[PromptPart]) -> str:
    """The line under an answer; empty if nothing was used."""
    used = [part for part in sources if part.used]
    pages = {part.source.rpartition(":")[0] for part in used if part.kind == PAGE}
    of_memory = sum(part.kind != PAGE and part.source not in chats_with_turns(used) for part in used)
    lines = [gettext("From your memory: %(count)s") % {"count": of_memory}] if of_memory else []
    return " · ".join([*lines, gettext("Read on the web: %(count)s") % {"count": len(pages)}] if pages else lines)
