"""Pages of what a person keeps: records, to-dos and notes in one list, which is searched and narrowed.

A record is written, edited, ticked, replaced, brought back and deleted here. A replaced one is shown struck through.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from chat.pages.common import NOTE, TODO, RecordFilter, RecordForm, done, page_for_registered, show, type_in_words
from chat.pages.narrowing import within
from core.errors import Conflict, InvalidInput, NotFound
from core.ids import parse_id
from core.paging import Position, position_in_address
from core.text import first_line, gettext_noop, in_page_language, shortened
from intake.accounts.identity import caller_of, person_of
from intake.chats.reading import as_turn_number, get_turn
from intake.chats.services import without_nul
from intake.chats.tree import conversation_path
from intake.llm.language_models import is_recall_mode
from intake.models import Conversation, Turn, User
from memory import documents, ended_chats, proposals, records
from memory.addresses import note_path, record_path
from memory.left_out import digest_of, leave_out
from memory.models import MemoryDocument, MemoryRecord
from memory.models.documents import ACCEPTED, MAX_DOCUMENT_LENGTH, NEVER, REJECTED
from memory.proposals import ProposalOutput
from memory.records import TODO_TYPES, RecordOutput
from memory.sources_of_answers import passage_of, sources_of

RECORDS_PER_PAGE = 30
# The kinds of the list, and the types of records that a menu offers for each.
KINDS = [
    (TODO, _("To-dos")),
    ("fact", _("Facts")),
    ("preference", _("Preferences")),
    ("decision", _("Decisions")),
    ("lesson", _("Lessons")),
    (NOTE, _("Notes")),
]


@dataclass(frozen=True, slots=True)
class Kept:
    """A record or a note of the list. `source`: the path of the turn that it was kept from, if that is still there."""

    record: RecordOutput | None = None
    note: MemoryDocument | None = None
    is_past: bool = False
    source: str = ""

    @property
    def type_in_words(self) -> str:
        return type_in_words(self.record.type) if self.record is not None else ""

    @property
    def position(self) -> Position:
        if self.record is not None:
            return Position(self.record.created_at, self.record.id)
        assert self.note is not None  # noqa: S101 - it is one of the two
        return Position(self.note.updated_at, self.note.pk)


@page_for_registered
def kept(request: HttpRequest) -> HttpResponse:
    form = RecordForm(request.POST or None)
    return done(request, _("Saved."), _back(request)) if _saved(request, form) else _list(request, form)


@page_for_registered
def record(request: HttpRequest, record_id: str) -> HttpResponse:
    found = _read(request, record_id)
    return _page(request, "memory/record.html", found)


@page_for_registered
def edit_record(request: HttpRequest, record_id: str) -> HttpResponse:
    """If another change came first, the user sees it before replacing it."""
    user, found = person_of(request), _read(request, record_id)
    form = RecordForm(request.POST) if request.method == "POST" else RecordForm.of(found)
    if form.is_valid():
        about: dict[str, Any] = {"record_id": found.id, "facts": form.facts, **form.held}
        try:
            with form.complaining():
                records.rewrite(user=user, expected=[form.cleaned_data["state"]], now=timezone.now(), **about)
                return done(request, _("Saved."), record_path(found.id))
        except Conflict:
            mine = RecordForm.of(found, **{**form.held, "tags": ", ".join(form.held["tags"])})
            return _editor(request, found, mine, has_changed=True, status=HTTPStatus.CONFLICT)
    return _editor(request, found, form)


@page_for_registered
def replace_record(request: HttpRequest, record_id: str) -> HttpResponse:
    """A new record in the place of this one, which begins with its text."""
    found = _read(request, record_id)
    form = RecordForm(request.POST) if request.method == "POST" else RecordForm.of(found, state="")
    if (made := _saved(request, form, {"replaces": found.id})) is not None:
        return done(request, _("Saved. It replaces the earlier one."), record_path(made.id))
    return _editor(request, found, form, is_replacing=True)


@page_for_registered
def correct_passage(request: HttpRequest, conversation_id: str, turn_number: str, digest: str) -> HttpResponse:
    """A new record that begins with a passage of an answer's sources. The passage stays where it was said or read, and
    no chat and no agent gets it any more, unless the person wants that.
    """
    caller, number = caller_of(request), as_turn_number(turn_number) or 0
    turn = get_turn(caller=caller, conversation_id=parse_id(conversation_id), turn_number=number)
    sources = sources_of([turn], caller).get(turn.pk, ())
    source = next((each for each in sources if each.digest == digest and not each.correct), None)
    if source is None:
        raise NotFound
    passage = shortened(passage_of(source.part, caller), 2_000)
    form = RecordForm(request.POST or None, initial={"content": passage, "type": "fact", "project_id": source.project})
    leaves_out = not form.is_bound or "leaves_out" in request.POST
    facts: dict[str, Any] = {}
    if source.part.kind == "turn":
        chat, _slash, of_chat = source.part.source.partition("/")
        facts = {"source_conversation": parse_id(chat), "source_turn": int(of_chat or 1)}
        # A whole chat goes with its first turn, which gave it its title.
        digest = digest_of(f"{chat}/{of_chat or 1}")
    if (made := _saved(request, form, facts, leaves_out=digest if leaves_out else "")) is not None:
        return done(request, _("Saved."), record_path(made.id))
    context: dict[str, Any] = {"form": form, "passage": passage, "source": source, "leaves_out": leaves_out}
    context["back"] = conversation_path(turn.conversation_id, turn_number=number)
    return show(request, "memory/edit_record.html", tab="records", **context)


@page_for_registered
def tick_record(request: HttpRequest, record_id: str) -> HttpResponse:
    """Marks a to-do as done, or as open with `done` empty."""
    found = _read(request, record_id)
    if request.method == "POST" and found.is_todo:
        facts = {"done": bool(request.POST.get("done"))}
        records.rewrite(user=person_of(request), record_id=found.id, facts=facts, now=timezone.now())
        return redirect(_back(request))
    return redirect(record_path(found.id))


@page_for_registered
def bring_back_record(request: HttpRequest, record_id: str) -> HttpResponse:
    found = _read(request, record_id)
    if request.method == "POST":
        records.bring_back(user=person_of(request), record_id=found.id, now=timezone.now())
        messages.success(request, _("Both records are valid now."))
    return redirect(record_path(found.id))


@page_for_registered
def delete_record(request: HttpRequest, record_id: str) -> HttpResponse:
    found = _read(request, record_id)
    if request.method != "POST":
        return show(request, "memory/delete_record.html", record=found, back=record_path(found.id), tab="records")
    records.delete(user=person_of(request), record_id=found.id)
    return done(request, _("Record deleted."), "memory:records")


@require_safe
@page_for_registered
def notes(request: HttpRequest) -> HttpResponse:
    """The former address of imported notes, which stand among what is kept."""
    return redirect(reverse("memory:records", query={"type": NOTE}), permanent=True)


@page_for_registered
def note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = documents.read_note(user=person_of(request), note_id=parse_id(note_id))
    return show(request, "memory/note.html", note=found, tab="records")


@page_for_registered
def delete_note(request: HttpRequest, note_id: str) -> HttpResponse:
    found = documents.read_note(user=person_of(request), note_id=parse_id(note_id))
    if request.method != "POST":
        return show(request, "memory/delete_note.html", note=found, back=note_path(found.pk), tab="records")
    documents.delete_note(user=person_of(request), note_id=found.pk)
    return done(request, _("Note deleted."), "memory:records")


@page_for_registered
def preview(request: HttpRequest) -> HttpResponse:
    """The text of an editor as Markdown is shown, as a part of a page; nothing is saved."""
    text = without_nul(request.POST.get("content", ""))[:MAX_DOCUMENT_LENGTH]
    return render(request, "memory/_preview.html", {"text": text})


def _read(request: HttpRequest, record_id: str) -> RecordOutput:
    return records.read(user=person_of(request), record_id=parse_id(record_id))


DECISIONS = {"accept": ACCEPTED, "reject": REJECTED, "never": NEVER}


@page_for_registered
def proposed(request: HttpRequest) -> HttpResponse:
    """Those that wait, by chat, and the latest decisions. `?chat=` those of one chat, `?project=` those of one project.

    A POST applies `do` (accept, reject, never, undo) to each `id`; of a single one it may change what is saved.
    """
    if request.method != "POST":
        return _proposals(request)
    user, now = person_of(request), timezone.now()
    ids = [parse_id(text) for text in request.POST.getlist("id")]
    do = request.POST.get("do", "")
    if not ids or (do not in DECISIONS and do != "undo"):
        raise InvalidInput(errors={"do": [gettext_noop("There is no such decision.")]})
    changed = {name: request.POST[name] for name in ("content", "type", "project_id") if name in request.POST}
    try:
        for pk in ids:
            if do == "undo":
                proposals.undo(user=user, proposal_id=pk)
            else:
                proposals.decide(user=user, proposal_id=pk, state=DECISIONS[do], now=now, **changed)
    except InvalidInput as error:
        sentence = next(iter((error.errors or {"": [error.detail]}).values()))[0]
        return _proposals(request, failed=ids[0], trouble=in_page_language(sentence), changed=changed)
    except Conflict:
        messages.error(request, _("This was decided elsewhere meanwhile."))
    query = request.POST.get("query", "")
    return redirect(reverse("memory:proposals") + (f"?{query}" if query else ""))


def _proposals(request: HttpRequest, **failure: Any) -> HttpResponse:
    user = person_of(request)
    chat, after = request.GET.get("chat"), position_in_address(request.GET.get("after"))
    of: dict[str, Any] = {"user": user, "conversation": parse_id(chat) if chat else None}
    of["project"] = request.GET.get("project") or None
    waiting = proposals.list_proposals(**of, after=after, limit=RECORDS_PER_PAGE)
    decided = proposals.list_proposals(**of, states=[*DECISIONS.values()], by="decided_at", limit=20)
    today = ended_chats.tokens_of_day(user, now=timezone.now())
    context = {
        "groups": _by_chat(user, waiting.rows, **failure),
        "more": waiting.more,
        "decided": decided.rows,
        "chat": chat,
        "today": {**today, "tokens": _grouped(today["input"] + today["output"])},
        "most": _grouped(settings.PROPOSAL_TOKENS_A_DAY),
        "has_model": bool(settings.PROPOSAL_TOKENS_A_DAY) and not is_recall_mode(),
        **failure,
    }
    status = HTTPStatus.BAD_REQUEST if failure else None
    return show(request, "memory/proposals.html", status=status, tab="records", **context)


def _by_chat(user: User, rows: Sequence[ProposalOutput], **failure: Any) -> list[dict[str, Any]]:
    """The proposals of each chat with its title, what its reading cost, and how many were left out."""
    chats = Conversation.objects.for_user(user).in_bulk([row.source_conversation for row in rows])
    replaced = {row.replaces for row in rows if row.replaces is not None and proposals.can_replace(user, row.replaces)}
    texts: dict[Any, str] = dict(
        MemoryRecord.objects.for_user(user).filter(pk__in=replaced).values_list("pk", "content")
    )
    groups: dict[UUID | None, dict[str, Any]] = {}
    for row in rows:
        chat = None if row.source_conversation is None else chats.get(row.source_conversation)
        group = groups.setdefault(row.source_conversation, {"chat": chat, "items": [], "tokens": _cost(chat)})
        item = {
            "proposal": row,
            "path": conversation_path(chat.pk, turn_number=row.source_turn) if chat else "",
            "replaced": texts.get(row.replaces, ""),
            "type": row.type,
            "type_in_words": type_in_words(row.type),
            "project_id": row.project_id,
            "content": row.content,
        }
        if row.id == failure.get("failed"):
            item |= {"has_failed": True, **failure["changed"]}
        item["types"] = RecordForm(initial=item, auto_id=f"%s-{row.id}")["type"]
        # In the order of the chat.
        group["items"].insert(0, item)
    return list(groups.values())


def _cost(chat: Conversation | None) -> str:
    """The tokens of all readings of a chat; empty if it was never read."""
    readings = {} if chat is None else chat.readings
    return _grouped(readings["input"] + readings["output"]) if readings else ""


def _grouped(number: int) -> str:
    return number_format(number, force_grouping=True)


def _saved(
    request: HttpRequest, form: RecordForm, facts: dict[str, Any] | None = None, *, leaves_out: str = ""
) -> RecordOutput | None:
    """None, with the errors on the form, for an invalid record. `leaves_out`: the digest of the passage it corrects."""
    if form.is_valid():
        user = person_of(request)
        with form.complaining(), transaction.atomic():
            made = records.create(user=user, now=timezone.now(), facts=form.facts | (facts or {}), **form.held)
            if leaves_out:
                leave_out(user=user, digest=leaves_out)
            return made
    return None


def _back(request: HttpRequest) -> str:
    """The home page, or the list, each as it was narrowed: the form sends the query of its address."""
    query = request.POST.get("query", "")
    page = reverse("intake:home" if request.POST.get("from_home") else "memory:records")
    return page + (f"?{query}" if query else "")


def _editor(request: HttpRequest, found: RecordOutput, form: RecordForm, **context: Any) -> HttpResponse:
    return _page(request, "memory/edit_record.html", found, form=form, back=record_path(found.id), **context)


def _page(request: HttpRequest, template: str, found: RecordOutput, **context: Any) -> HttpResponse:
    (item,) = _kept(person_of(request), [found])
    context |= {"item": item, "record": found, "title": first_line(found.content)}
    return show(request, template, tab="records", **context)


def _list(request: HttpRequest, form: RecordForm) -> HttpResponse:
    user, narrowing = person_of(request), RecordFilter(request.GET)
    fitting = narrowing.cleaned_data if narrowing.is_valid() else {}
    kind, project = fitting.get("type", ""), fitting.get("project", "")
    found = _found(user, fitting, position_in_address(request.GET.get("after")))
    context = {
        "found": found[:RECORDS_PER_PAGE],
        "more": found[RECORDS_PER_PAGE - 1].position if len(found) > RECORDS_PER_PAGE else None,
        "narrowing": narrowing,
        "is_narrowed": any(fitting.values()),
        "has_more_filters": any(fitting.get(name) for name in ("project", "tag", "replaced")),
        "kinds": _kinds(user, kind),
        "proposed": proposals.count_waiting(user),
        "chosen": kind,
        "within": within(project),
        "form": form,
    }
    return show(request, "memory/records.html", status=form.status or narrowing.status, tab="records", **context)


def _kinds(user: User, chosen: str) -> list[tuple[str, Any]]:
    """The kinds that the person has something of; none if there is only one."""
    types = {type.lower() for type in MemoryRecord.objects.for_user(user).values_list("type", flat=True).distinct()}
    if not types.isdisjoint(TODO_TYPES):
        types.add(TODO)
    if MemoryDocument.objects.for_user(user).filter(kind=MemoryDocument.Kind.NOTE).exists():
        types.add(NOTE)
    shown = [(value, name) for value, name in KINDS if value in {chosen, *types}]
    return shown if len(shown) > 1 else []


def _found(user: User, fitting: dict[str, Any], after: Position | None) -> list[Kept]:
    """The newest records and notes that fit, one more than a page has."""
    kind, project, tag = (fitting.get(name, "") for name in ("type", "project", "tag"))
    page: dict[str, Any] = {"user": user, "words": fitting.get("q", ""), "after": after, "limit": RECORDS_PER_PAGE + 1}
    rows = records.list_records(
        type=kind if kind not in ("", TODO) else None,
        is_todo=kind == TODO,
        project_id=project or None,
        tag=tag or None,
        include_replaced=bool(fitting.get("replaced")),
        **page,
    ).rows
    found = _kept(user, rows)
    # A note has no tag.
    if kind in ("", NOTE) and not tag:
        found += [Kept(note=note) for note in documents.list_notes(project=project, **page).rows]
    newest = sorted(found, key=lambda item: (item.position.moment, item.position.row_id), reverse=True)
    return newest[: RECORDS_PER_PAGE + 1]


def _kept(user: User, rows: Sequence[RecordOutput]) -> list[Kept]:
    today = records.today_of(user)
    named = [(row.source_conversation, row.source_turn or 0) for row in rows if row.source_conversation]
    turns = Turn.objects.for_user(user).with_keys(named).values_list("conversation_id", "turn_number")
    paths = {f"{chat}/{number}": conversation_path(chat, turn_number=number) for chat, number in turns}
    sources = (paths.get(f"{row.source_conversation}/{row.source_turn}", "") for row in rows)
    return [Kept(row, None, row.is_past(today), source) for row, source in zip(rows, sources, strict=True)]
