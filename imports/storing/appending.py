"""Appends the turns of an agent's session while it runs, as if an import had brought them.

1. The turns get the keys that the importer gives to questions without an answer (`imports/storing/contents.py`). So a
   later import of the session recognises them, and they recognise the turns of an earlier one.
2. The calls of one user run one after the other. What is here, or was deleted here, is left alone; an answer that has
   become longer is brought up to date.
3. All that a product appends on one day belongs to one row of `Import`, by which it is undone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from pydantic import AfterValidator, Field, StringConstraints

from core.errors import InsufficientScope, InvalidInput
from core.isolation.acting import OTHER_PROJECT, binding_of, project_for
from core.text import LONGEST_PROJECT, pg_text, stored_label
from core.text import gettext_noop as _
from core.validation import Input, Output, PlainText, WrittenTime, refuse_nul, validate
from imports.models import MAX_PRODUCT, MAX_TITLE, Import, ImportedItem, ImportEntry, ItemKind
from imports.reading.envelopes import opened
from imports.reading.items import ImportedConversation, ImportedMessage
from imports.reading.session_tree import message_of
from imports.reading.values import parse_time
from imports.storing.contents import LONGEST_ID, key_of
from imports.storing.conversations import Batch, BatchOutcome, TurnStretch, item_of, known_items
from imports.storing.turns import GatheredTurn, PlannedTurn, first_words, planned_turn
from intake.models import Conversation, Turn, User
from intake.models.conversations import label_of
from memory import quotas

LONGEST_TEXT = 400_000
# The chats of this server, and the copies of an account: neither is a session of an agent.
_NO_PRODUCTS = ("chat", "recollect")
NO_TIME = _("A time from 2015 until now.")
TWICE = _("There is another turn with this uuid.")

SessionId = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_ID),
    AfterValidator(refuse_nul),
]


class AppendedTurn(Input):
    """A message of the user with its answer, which may still be empty or incomplete."""

    uuid: Annotated[SessionId, Field(description="The message's id in the product's own log, as an import finds it.")]
    parent: Annotated[
        SessionId | None,
        Field(description="The `uuid` of the turn that it follows. Without: the turn before it, here or in the call."),
    ] = None
    said_at: Annotated[WrittenTime, Field(alias="saidAt", description="When the user sent it.")]
    user: Annotated[str, Field(max_length=LONGEST_TEXT, description="The user's message.")]
    answer: Annotated[str, Field(max_length=LONGEST_TEXT, description="The answer's text, without calls.")] = ""
    model: Annotated[PlainText, Field(max_length=LONGEST_ID)] = ""
    tools: Annotated[
        list[Annotated[PlainText, Field(max_length=100)]],
        Field(max_length=500, description="The names of the tools that were called: no input, no result."),
    ] = []


class AppendedSession(Input):
    product: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9-]{0,31}$",
            max_length=MAX_PRODUCT,
            description="`claude-code`, `codex`, or another agent's name in small letters.",
        ),
    ]
    session: Annotated[SessionId, Field(description="Its id in the product.")]
    project: Annotated[
        PlainText,
        Field(
            max_length=LONGEST_PROJECT,
            description="The repository (`me/app`, or its address). Without: the token's project, or else the folder.",
        ),
    ] = ""
    branch: Annotated[PlainText, Field(max_length=LONGEST_ID, description="Accepted, and not stored.")] = ""
    cwd: Annotated[PlainText, Field(max_length=4_096, description="Its folder.")] = ""
    turns: Annotated[list[AppendedTurn], Field(min_length=1, max_length=100)]


class AppendOutput(Output):
    stored: Annotated[int, Field(description="Turns that are new here, or have become longer.")]
    here: Annotated[int, Field(description="Turns that were here before, or were deleted here and stay deleted.")]
    left_out: Annotated[
        int | None,
        Field(description="Turns in which the user says nothing, such as a program's own prompts, if there are any."),
    ] = None


def append(data: Any, *, user: User, project: str, now: datetime) -> AppendOutput:
    """Store the turns of the request's body; `project` is the token's. Call it while acting as the user.

    Raises `InvalidInput`, `QuotaExceeded`, `RateLimited`, and `InsufficientScope` for a session of another project than
    the caller is bound to.
    """
    wanted = validate(AppendedSession, _without_unstorable(data))
    _check(wanted, now=now)
    try:
        with transaction.atomic():
            return _append(wanted, user, project, now)
    except IntegrityError:
        # An import has stored a turn of this session at the same moment: now it is known.
        try:
            with transaction.atomic():
                return _append(wanted, user, project, now)
        except IntegrityError:
            if binding_of(user):
                # The session is here, in another project.
                raise InsufficientScope(OTHER_PROJECT) from None
            raise


def _without_unstorable(data: Any) -> Any:
    """A log may have cut an emoji in half, or kept a NUL: neither keeps the rest of the words out."""
    turns = data.get("turns") if isinstance(data, dict) else None
    if not isinstance(turns, list):
        return data
    return {**data, "turns": [_plain(turn) if isinstance(turn, dict) else turn for turn in turns]}


def _plain(turn: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: pg_text(turn[name]) for name in ("user", "answer") if isinstance(turn.get(name), str)}
    return {**turn, **texts}


def _check(wanted: AppendedSession, *, now: datetime) -> None:
    errors: dict[str, list[str]] = {}
    if wanted.product in _NO_PRODUCTS:
        errors["product"] = [_("There is no such product.")]
    count = Counter(turn.uuid for turn in wanted.turns)
    for place, turn in enumerate(wanted.turns):
        if parse_time(turn.said_at.isoformat(), now=now) is None:
            errors[f"turns.{place}.saidAt"] = [NO_TIME]
        if count[turn.uuid] > 1:
            errors[f"turns.{place}.uuid"] = [TWICE]
    if errors:
        raise InvalidInput(errors=errors)


@dataclass(frozen=True, slots=True)
class _Session:
    """A session, with the conversation that it is here, if it is."""

    wanted: AppendedSession
    conversation: ImportedConversation
    here: Conversation | None


def _append(wanted: AppendedSession, user: User, project: str, now: datetime) -> AppendOutput:
    # The calls of a user run one after the other, so that two cannot store the same turn.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    session = _session(wanted, user, project)
    turns = _planned(session, user)
    left_out = len(wanted.turns) - len(turns)
    stretch = TurnStretch(conversation=session.conversation, turns=turns)
    stretch.turns = _changing(stretch, session, user)
    outcome = BatchOutcome()
    if stretch.turns:
        outcome = _store(stretch, session, user, now)
    return AppendOutput(stored=outcome.turns, here=len(turns) - outcome.turns, left_out=left_out or None)


def _session(wanted: AppendedSession, user: User, project: str) -> _Session:
    """One that was resumed under another id belongs to the conversation of its first id, whose turns have its keys."""
    key = key_of(wanted.product, "conversation", wanted.session)
    item = ImportedItem.objects.for_user(user).filter(key=key).first()
    mine = Conversation.objects.for_user(user)
    here = (
        mine.filter(pk=item.conversation_id).first()
        if item is not None and item.conversation_id is not None
        else mine.filter(source=wanted.product, external_id=wanted.session).first()
    )
    named = label_of(user=user, label=stored_label(wanted.project))
    bound_to = project_for(user, named) if binding_of(user) else ""
    if bound_to and here is None and item is not None and item.conversation_id is not None:
        raise InsufficientScope(OTHER_PROJECT)
    conversation = ImportedConversation(
        product=wanted.product,
        external_id=here.external_id if here is not None and here.external_id else wanted.session,
        title=None,
        created_at=None,
        last_at=None,
        project=bound_to or wanted.project or project or wanted.cwd or None,
        messages=(),
    )
    return _Session(wanted, conversation, here)


def _planned(session: _Session, user: User) -> list[PlannedTurn]:
    """As the importer plans the turns of a path, without those in which the user says nothing."""
    by_uuid: dict[str, PlannedTurn] = {}
    outside = _outside(session, user)
    before = outside.get(None)
    for turn in session.wanted.turns:
        message, words = message_of(
            turn.uuid, "user", turn.user, turn.said_at.isoformat(), product=session.wanted.product
        )
        answer = opened([turn.answer], session.wanted.product, is_answer=True).text
        text = message.text or (words.command if answer else "")
        parent = by_uuid.get(turn.parent or "") or outside.get(turn.parent) or before
        if not text and not message.attachments:
            continue
        exchange = GatheredTurn(
            question=ImportedMessage(
                id=turn.uuid, parent=None, role="user", text=text, at=message.at, attachments=message.attachments
            ),
            answers=_answers(turn, answer),
            parent=None,
            is_current=True,
        )
        before = by_uuid[turn.uuid] = planned_turn(session.conversation, exchange, parent, turn.said_at)
    return list(by_uuid.values())


def _answers(turn: AppendedTurn, answer: str) -> list[ImportedMessage]:
    """Without an id: the turn has the key of its question alone."""
    calls = tuple({"name": name} for name in turn.tools if name)
    if not answer and not calls:
        return []
    return [ImportedMessage(id="", parent=None, role="assistant", text=answer, model=turn.model, tool_calls=calls)]


def _outside(session: _Session, user: User) -> dict[str | None, PlannedTurn]:
    """The turns that are here and that these may follow: by their uuid, and by None the end of the chosen path."""
    here = session.here
    if here is None:
        return {}
    product, external_id = session.wanted.product, session.conversation.external_id
    names = {turn.parent for turn in session.wanted.turns if turn.parent}
    keys = {key_of(product, "turn", external_id, name, ""): name for name in names}
    mine = Turn.objects.for_user(user).filter(conversation=here)
    items = ImportedItem.objects.for_user(user).filter(key__in=list(keys), conversation_id=here.pk)
    names_of = {item.turn_id: keys[bytes(item.key)] for item in items if item.turn_id}
    found: dict[str | None, PlannedTurn] = {
        names_of[turn.pk]: _as_planned(turn) for turn in mine.filter(pk__in=list(names_of))
    }
    path = mine.filter(turn_number=here.current_number) if here.current_number else mine
    last = path.order_by("-turn_number").first()
    return found | ({None: _as_planned(last)} if last else {})


def _as_planned(turn: Turn) -> PlannedTurn:
    """A turn that is here already, for another to follow."""
    return PlannedTurn(
        key=b"",
        key_unanswered=b"",
        parent=None,
        is_current=True,
        user_message=turn.user_message,
        assistant_message=turn.assistant_message,
        said_at=turn.said_at,
        number=turn.turn_number,
    )


def _changing(stretch: TurnStretch, session: _Session, user: User) -> list[PlannedTurn]:
    """The turns that are new here, and those whose text is another than when they came in."""
    known = known_items(user, [stretch])
    if stretch.key in known and session.here is None:
        # The conversation was deleted here, and stays so.
        return []
    items = {turn.key: item_of(turn, known) for turn in stretch.turns}
    changed = {key for key, item in items.items() if item is not None}
    new = [turn for turn in stretch.turns if turn.key not in changed]
    gone = _deleted_here(new, session, user)
    kept = [
        turn
        for turn in stretch.turns
        if turn.key not in gone and ((item := items[turn.key]) is None or bytes(item.content_hash) != turn.content_hash)
    ]
    size = sum(len(turn.user_message.encode()) + len(turn.assistant_message.encode()) for turn in kept)
    if kept:
        quotas.take(user.pk, turns=sum(items[turn.key] is None for turn in kept), size=size, fills_queue=True)
    _number_known(stretch.turns, items, user)
    return kept


def _number_known(turns: Sequence[PlannedTurn], items: Mapping[bytes, ImportedItem | None], user: User) -> None:
    """New turns follow them."""
    ids = [item.turn_id for item in items.values() if item is not None and item.turn_id]
    numbers = dict(Turn.objects.for_user(user).filter(pk__in=ids).values_list("pk", "turn_number"))
    for turn in turns:
        item = items[turn.key]
        turn.number = None if item is None else numbers.get(item.turn_id or 0)


def _deleted_here(new: Sequence[PlannedTurn], session: _Session, user: User) -> set[bytes]:
    """The keys of turns that an import brought, which knows their answers' ids too, and that were deleted here.

    Only the text is left to recognise them by. The same words said again after that import are new.
    """
    if not new or session.here is None:
        return set()
    by_text = {turn.content_hash: turn for turn in new}
    items = ImportedItem.objects.for_user(user).filter(
        kind=ItemKind.TURN,
        conversation_id=session.here.pk,
        content_hash__in=list(by_text),
        batch__isnull=False,
    )
    found = {item.turn_id: item for item in items if item.turn_id}
    for pk in Turn.objects.for_user(user).filter(pk__in=list(found)).values_list("pk", flat=True):
        del found[pk]
    imports = Import.objects.for_user(user).filter(pk__in={item.batch_id for item in found.values()})
    ended = dict(imports.values_list("pk", "created_at"))
    gone = set()
    for item in found.values():
        turn = by_text[bytes(item.content_hash)]
        if item.batch_id in ended and turn.said_at <= ended[item.batch_id]:
            gone.add(turn.key)
    return gone


def _store(stretch: TurnStretch, session: _Session, user: User, now: datetime) -> BatchOutcome:
    batch = _import_of_today(session.wanted.product, user, now)
    outcome = Batch([stretch], user=user, brought_by=batch).write()
    if outcome.turns:
        _count(batch, stretch, outcome, user, now)
        _choose_newest(stretch, session, user)
    elif not any(batch.stored.values()):
        batch.delete()
    _relabel(session, user)
    return outcome


def _relabel(session: _Session, user: User) -> None:
    """The project that the agent names takes the place of the folder that an import found, and of no project.

    Any other one is where the user has moved the conversation.
    """
    project = label_of(user=user, label=stored_label(session.wanted.project))
    if not project or session.here is None:
        return
    # A repository's folder usually has its name.
    folders = {stored_label(session.wanted.cwd), session.wanted.project.rpartition("/")[2].removesuffix(".git")}
    if session.here.project in {"", *folders, *(label_of(user=user, label=each) for each in folders)} - {project}:
        Conversation.objects.for_user(user).filter(pk=session.here.pk).update(project=project)


def _choose_newest(stretch: TurnStretch, session: _Session, user: User) -> None:
    """The chosen path ends at the newest turn, also where the user went back in the session and took another way.

    Unless the user continued the conversation here.
    """
    last = stretch.turns[-1].number
    if session.here is None or last is None:
        return
    items = ImportedItem.objects.for_user(user).filter(conversation_id=session.here.pk, turn_id__isnull=False)
    turns = Turn.objects.for_user(user).filter(conversation=session.here)
    if not turns.exclude(pk__in=list(items.values_list("turn_id", flat=True))).exists():
        Conversation.objects.for_user(user).filter(pk=session.here.pk).update(current_number=last)


def _import_of_today(product: str, user: User, now: datetime) -> Import:
    """The import to which belongs what this product appends on this day, in the user's time zone."""
    name = f"{product} {user.local_time(now):%Y-%m-%d}"
    appended = Import.objects.for_user(user).filter(product=product, filename=name, bytes=0, state=Import.State.DONE)
    batch = appended.select_for_update().order_by("-created_at").first()
    return batch or Import.objects.create(
        user=user,
        filename=name,
        product=product,
        bytes=0,
        state=Import.State.DONE,
        progress=1.0,
        found={"conversations": 0, "turns": 0, "documents": 0, "records": 0, "skipped": 0},
        stored={"conversations": 0, "turns": 0, "versions": 0, "documents": 0, "records": 0},
        created_at=now,
        updated_at=now,
        started_at=now,
        finished_at=now,
    )


def _count(batch: Import, stretch: TurnStretch, outcome: BatchOutcome, user: User, now: datetime) -> None:
    """In the import and its line for the session, which the page of imports shows."""
    ((external_id, (conversation_id, turns)),) = outcome.by_conversation.items()
    times = [turn.said_at for turn in stretch.turns]
    entry, is_new = ImportEntry.objects.for_user(user).get_or_create(
        user=user,
        batch=batch,
        kind=ItemKind.CONVERSATION,
        external_id=external_id,
        defaults={
            "title": " ".join(first_words(stretch.turns)[:MAX_TITLE].split()),
            "status": ImportEntry.Status.NEW if outcome.conversations else ImportEntry.Status.LONGER,
            "conversation_id": conversation_id,
            "first_at": min(times),
        },
    )
    entry.turns, entry.new_turns, entry.stored = (each + turns for each in (entry.turns, entry.new_turns, entry.stored))
    entry.versions += outcome.versions
    entry.last_at = max(times)
    entry.save()
    batch.count("stored", conversations=outcome.conversations, turns=turns, versions=outcome.versions)
    batch.count("found", conversations=int(is_new), turns=turns)
    batch.first_at = min([*times, *filter(None, [batch.first_at])])
    batch.last_at = max([*times, *filter(None, [batch.last_at])])
    batch.updated_at = batch.finished_at = now
    batch.save(update_fields=["stored", "found", "first_at", "last_at", "updated_at", "finished_at"])
