"""Writes imported conversations: an exported turn becomes one turn here, however often it is imported.

1. `stretches` cuts the reader's output into stretches of a conversation, none longer than a batch, also by the bytes
   of its files.
2. `Batch.write` stores a batch of stretches in the transaction of its caller, who acts as the user. Turns that were
   imported before are recognised by their key (`ImportedItem`), and stay as they are here: edited, deleted or deleted
   with their conversation.
3. A turn whose answer is longer this time is updated, unless it has been changed here.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef

from core.ids import uuid7
from core.isolation.acting import Caller
from core.isolation.inserting import insert_many
from core.text import cut, pg_text, stored_label
from core.text import gettext_noop as _
from imports.models import Import, ImportedItem, ItemKind
from imports.reading.envelopes import opened, silent_rest
from imports.reading.files import Files
from imports.reading.items import ExportedConversation, ImportedConversation
from imports.storing.contents import hash_of, key_of, short_id
from imports.storing.files import attach_files, place_of, size_of
from imports.storing.turns import BETWEEN_ANSWERS, PlannedTurn, TurnPlace, first_words, nearest_number, planned_turns
from intake.chats import exporting, history
from intake.chats.deleting import delete_turn
from intake.chats.services import title_from, without_markup
from intake.chats.tree import leads_to
from intake.chats.usage import Usage
from intake.models import Conversation, Project, Turn, User
from intake.models.conversations import TITLE_LENGTH, TitledBy

BATCH_TURNS = 400
# Of files, in one transaction.
BATCH_BYTES = 64 * 1024 * 1024
NO_ORIGIN = _("it continues a conversation that is not here, so it was imported as one of its own")

ItemsByKey = dict[bytes, ImportedItem]


@dataclass(kw_only=True)
class TurnStretch:
    """A conversation, or the next turns of a long one."""

    conversation: ImportedConversation
    turns: list[PlannedTurn]
    # Of their files, in bytes.
    size: int = 0
    # Of a conversation that is not stored, where its turns are instead.
    passed_over: TurnPlace | None = None

    @cached_property
    def key(self) -> bytes:
        return key_of(self.conversation.product, "conversation", self.conversation.external_id)

    @cached_property
    def other_keys(self) -> list[bytes]:
        """The keys of the other sessions that it continues."""
        return [key_of(self.conversation.product, "conversation", other) for other in self.conversation.also_ids]


@dataclass(kw_only=True)
class BatchOutcome:
    """The result of a batch: counts, and by the external id of each conversation its id here and its new turns."""

    conversations: int = 0
    turns: int = 0
    versions: int = 0
    by_conversation: dict[str, tuple[UUID, int]] = field(default_factory=dict)
    # What is reported as skipped: the place, the reason, and the external id of its conversation.
    refused: list[tuple[str, str, str]] = field(default_factory=list)


def stretches(conversation: ImportedConversation, *, otherwise: datetime) -> Iterator[TurnStretch]:
    """`otherwise`: the time of items without one."""
    stretch = TurnStretch(conversation=conversation, turns=[])
    for turn in planned_turns(conversation, otherwise=otherwise):
        size = sum(map(size_of, turn.files))
        if len(stretch.turns) >= BATCH_TURNS or (stretch.turns and stretch.size + size > BATCH_BYTES):
            yield stretch
            stretch = TurnStretch(conversation=conversation, turns=[])
        stretch.turns.append(turn)
        stretch.size += size
    if stretch.turns:
        yield stretch


def known_items(user: User, batch: Sequence[TurnStretch]) -> ItemsByKey:
    """The items of the batch that were imported before."""
    turns = [turn for stretch in batch for turn in stretch.turns]
    keys = {key for stretch in batch for key in (stretch.key, *stretch.other_keys)}
    keys |= {key for turn in turns for key in (turn.key, turn.key_unanswered, *turn.keys_elsewhere)}
    items = ImportedItem.objects.for_user(user)
    known = {bytes(item.key): item for item in items.filter(key__in=list(keys))}
    # Questions without an answer in an older export, whose turn here has one, which is part of its key.
    asked: dict[tuple[Any, ...], bytes] = {}
    for stretch in batch:
        here = known[stretch.key].conversation_id if stretch.key in known else None
        for turn in stretch.turns if here else ():
            if turn.key == turn.key_unanswered and turn.key not in known:
                asked[here, turn.said_at, turn.user_message] = turn.key
    if not asked:
        return known
    ids, times = {pk for pk, _, _ in asked}, {at for _, at, _ in asked}
    mine = Turn.objects.for_user(user).filter(conversation__in=ids, said_at__in=times)
    questions = mine.values_list("pk", "conversation_id", "said_at", "user_message")
    found = {pk: key for pk, *question in questions if (key := asked.get(tuple(question)))}
    return known | {found[item.turn_id]: item for item in items.filter(turn_id__in=found) if item.turn_id}


def item_of(turn: PlannedTurn, known: ItemsByKey) -> ImportedItem | None:
    """An answered turn is the one that had no answer before; an agent's may have been appended to another session."""
    names = (turn.key, turn.key_unanswered, *turn.keys_elsewhere)
    return next((known[name] for name in names if name in known), None)


def says_more(planned: PlannedTurn, item: ImportedItem, turn: Turn) -> bool:
    """Whether the turn is as imported, and the export has more of it than an earlier one."""
    if hash_of(turn.user_message, turn.assistant_message) != bytes(item.content_hash):
        return False
    pairs = ((turn.user_message, planned.user_message), (turn.assistant_message, planned.assistant_message))
    is_older = all(here.startswith(there) for here, there in pairs) and not _is_mended(planned, turn)
    return not is_older and not item.was_before(planned.content_hash)


def _is_mended(planned: PlannedTurn, turn: Turn) -> bool:
    """Whether the export has the same words, and only an earlier reader kept a program's words with them."""
    question = turn.user_message
    is_same_question = planned.user_message in (question, opened([question], planned.product).text)
    return is_same_question and (
        planned.assistant_message == turn.assistant_message
        or planned.assistant_message == opened([turn.assistant_message], planned.product, is_answer=True).text
        or planned.assistant_message == silent_rest(turn.assistant_message)
        or _is_of_several(planned, turn.assistant_message)
    )


def _is_of_several(planned: PlannedTurn, answer: str) -> bool:
    """Whether the answer is that of this turn and of the next ones, whose questions were hidden before."""
    pieces = planned.assistant_message.split(BETWEEN_ANSWERS) if planned.assistant_message else []
    following = planned.following
    while following is not None and len(pieces) <= answer.count(BETWEEN_ANSWERS) * 4 + 4:
        pieces += following.assistant_message.split(BETWEEN_ANSWERS) if following.assistant_message else []
        following = following.following
    # Between them may stand questions of calls, which an earlier reader left out.
    left = iter(pieces)
    return all(piece in left for piece in answer.split(BETWEEN_ANSWERS))


class Batch:
    """Stretches whose files are read from `export`. Must live in a transaction that acts as `user`."""

    def __init__(
        self, batch: Sequence[TurnStretch], *, user: User, brought_by: Import, export: Files | None = None
    ) -> None:
        self._batch = batch
        self._export = export
        self._user = user
        self._import = brought_by
        self._known = known_items(user, batch)
        self._here = self._conversations()
        ids = [item.turn_id for item in self._known.values() if item.turn_id]
        self._turns_here = dict(Turn.objects.for_user(user).filter(pk__in=ids).values_list("pk", "turn_number"))
        # Once for all: a user's projects may have thousands of labels.
        named = Project.objects.for_user(user).values_list("name", "labels")
        self._project_of = {label: name for name, labels in named for label in labels}
        # The numbers of the turns of our own export's conversations that are here, with their times.
        own = {self._here[each.key].pk for each in batch if each.key in self._here and each.conversation.exported}
        mine = Turn.objects.for_user(user).filter(conversation__in=own) if own else Turn.objects.none()
        rows = mine.values_list("conversation_id", "turn_number", "said_at")
        self._numbers_here = {(pk, number): at for pk, number, at in rows}
        self._made: list[Conversation] = []
        self._changed: dict[UUID, Conversation] = {}
        self._new_turns: list[tuple[PlannedTurn, Turn]] = []
        # Turns that take the place behind one which comes in now: their item, and their number until now.
        self._moved: list[tuple[ImportedItem, Turn, int]] = []
        # Also turns that were here before.
        self._with_files: list[tuple[TurnStretch, PlannedTurn, Turn]] = []
        self._new_items: list[ImportedItem] = []
        self._outcome = BatchOutcome()

    def write(self) -> BatchOutcome:
        """Store the items that are not here yet."""
        for stretch in self._batch:
            conversation = self._conversation_of(stretch)
            if conversation is not None:
                self._add_turns(stretch, conversation)
        turns = [*(turn for _, turn in self._new_turns), *(turn for _, turn, _ in self._moved)]
        history.save(made=self._made, changed=list(self._changed.values()), turns=turns)
        for planned, turn in self._new_turns:
            fields = {"kind": ItemKind.TURN, "content_hash": planned.content_hash, "turn_id": turn.pk}
            self._note(planned.key, turn.conversation_id, **fields)
        insert_many(self._new_items)
        for item, turn, number in self._moved:
            item.turn_id = turn.pk
            item.save(update_fields=["turn_id"])
            caller, conversation_id = Caller(user_id=self._user.pk), turn.conversation_id
            delete_turn(caller=caller, conversation_id=conversation_id, turn_number=number, is_noted=False)
        for stretch, planned, turn in self._with_files:
            title, external_id = self._here[stretch.key].title, stretch.conversation.external_id
            for file, why in attach_files(turn, planned.files, user=self._user, export=self._export):
                self._outcome.refused.append((place_of(file, title, turn.said_at), why, external_id))
        return self._outcome

    def _conversations(self) -> dict[bytes, Conversation]:
        """By the key of each that is here: the one it became, or one that has its name already."""
        items = {stretch.key: self._known[stretch.key] for stretch in self._batch if stretch.key in self._known}
        ids = {key: item.conversation_id for key, item in items.items() if item.conversation_id}
        unknown = [stretch for stretch in self._batch if stretch.key not in items]
        names = {stretch.key: name for stretch in unknown if (name := _name_of(stretch.conversation))[1]}
        mine = Conversation.objects.for_user(self._user)
        found = mine.filter(external_id__in=[name for _, name in names.values()])
        by_name = {(source, name): pk for pk, source, name in found.values_list("pk", "source", "external_id")}
        ids |= {key: by_name[name] for key, name in names.items() if name in by_name}
        ids |= exported_here(self._user, unknown)
        locked = history.lock(user=self._user, ids=set(ids.values()))
        return {key: locked[pk] for key, pk in ids.items() if pk in locked}

    def _conversation_of(self, stretch: TurnStretch) -> Conversation | None:
        """None for one that was deleted here."""
        conversation = self._here.get(stretch.key)
        if conversation is None and stretch.key in self._known:
            return None
        if conversation is None:
            conversation = self._here[stretch.key] = self._new_conversation(stretch)
            if stretch.conversation.exported is None:
                self._made.append(conversation)
            self._outcome.conversations += 1
        elif (
            # From before there were projects.
            not conversation.project
            and conversation not in self._made
            and (project := self._project(stretch.conversation.project))
        ):
            conversation.project = project
            self._changed[conversation.pk] = conversation
        # What is appended to a session that this one continues comes here too.
        for key in (stretch.key, *stretch.other_keys):
            if key not in self._known:
                self._note(key, conversation.pk)
        return conversation

    def _project(self, label: str | None) -> str:
        stored = stored_label(label or "")
        return self._project_of.get(stored, stored)

    def _note(self, key: bytes, conversation_id: UUID, **fields: Any) -> None:
        """A conversation's item; a turn's with the fields that make it one."""
        fields = {"kind": ItemKind.CONVERSATION, "content_hash": hash_of(), **fields}
        item = ImportedItem(user=self._user, batch=self._import, key=key, conversation_id=conversation_id, **fields)
        self._known[key] = item
        self._new_items.append(item)

    def _new_conversation(self, stretch: TurnStretch) -> Conversation:
        conversation = stretch.conversation
        source, external_id = _name_of(conversation)
        if conversation.exported is not None:
            exported = conversation.exported
            made = _as_exported(conversation, exported, self._user, project=self._project(exported.project))
            self._check_origin(made, stretch)
            try:
                with transaction.atomic():
                    made.save(force_insert=True)
            except IntegrityError:
                # The user deleted it, and another account imported it meanwhile.
                made.id = uuid7()
                made.save(force_insert=True)
            return made
        first = stretch.turns[0].said_at
        started_at = min(conversation.created_at or first, first)
        # The export's title in plain text, because models make most titles; but the first words as they stand.
        title, words = title_from(pg_text(conversation.title or "").strip()), title_from(first_words(stretch.turns))
        return Conversation(
            user=self._user,
            title=words if title == words else without_markup(title) or words,
            source=source,
            external_id=external_id,
            project=self._project(conversation.project),
            started_at=started_at,
            last_active_at=(last := conversation.last_at or started_at),
            archived_at=last if conversation.is_archived else None,
        )

    def _check_origin(self, made: Conversation, stretch: TurnStretch) -> None:
        """Keep a branch only if it continues an earlier conversation of the user.

        The origin is there before the branch is made, so a branch of a branch cannot lead back to itself; a deleted
        conversation that comes in again could, and is followed upwards. A copy may have another id here.
        """
        if made.branched_from is None:
            return
        origin = self._origin_here(made.branched_from)
        if origin is None or leads_to(origin, made.pk):
            made.branched_from = made.branched_after = None
            external_id = stretch.conversation.external_id
            self._outcome.refused.append((external_id, NO_ORIGIN, external_id))
        else:
            made.branched_from = origin.pk

    def _origin_here(self, exported_id: UUID) -> Conversation | None:
        key = key_of("recollect", "conversation", str(exported_id))
        item = self._known.get(key) or ImportedItem.objects.for_user(self._user).filter(key=key).first()
        found = [item.conversation_id] if item is not None and item.conversation_id else []
        found += [exported_id, id_here(self._user, exported_id)]
        here = Conversation.objects.for_user(self._user).in_bulk(found)
        return next((here[pk] for pk in found if pk in here), None)

    def _add_turns(self, stretch: TurnStretch, conversation: Conversation) -> None:
        added = 0
        for planned in stretch.turns:
            item = item_of(planned, self._known)
            if item is not None:
                added += self._take_known(planned, item, stretch, conversation)
                continue
            parent = nearest_number(planned.parent)
            number = planned.exported.turn_number if planned.exported else None
            if number is not None and number <= conversation.turn_count:
                said_at = self._numbers_here.get((conversation.pk, number))
                # Older programs that edit JSON keep milliseconds.
                if said_at is None or abs(said_at - planned.said_at) < timedelta(milliseconds=1):
                    # Already here without an import, or deleted here.
                    planned.number = number if said_at else None
                    planned.place = "here" if said_at else "deleted"
                    continue
                # Written here since: this one comes after it.
                number = None
            turn = conversation.next_turn(
                follows=parent,
                said_at=planned.said_at,
                number=number,
                **_fields_of(planned),
            )
            planned.number, planned.place = turn.turn_number, "stored"
            # The chosen path continues with the new turns, unless the user continued it here.
            exported = stretch.conversation.exported
            has_path = exported is None or exported.current_number is not None
            if planned.is_current and conversation.current_number == parent and has_path:
                conversation.current_number = turn.turn_number
            self._new_turns.append((planned, turn))
            if planned.files:
                self._with_files.append((stretch, planned, turn))
            self._outcome.versions += not planned.is_current
            added += 1
        if added and conversation not in self._made:
            self._changed[conversation.pk] = conversation
        self._outcome.turns += added
        external_id = short_id(stretch.conversation.external_id)
        _, before = self._outcome.by_conversation.get(external_id, (conversation.pk, 0))
        self._outcome.by_conversation[external_id] = (conversation.pk, before + added)

    def _take_known(
        self, planned: PlannedTurn, item: ImportedItem, stretch: TurnStretch, conversation: Conversation
    ) -> bool:
        """Whether a turn that came in before has more text now, or the same without a program's words."""
        number = self._turns_here.get(item.turn_id or 0)
        # A worker that takes over finds the turns of the one before it.
        planned.place = "deleted" if number is None else "stored" if item.batch_id == self._import.pk else "here"
        if item.conversation_id != conversation.pk:
            # Appended to a session of its own before: it stays there, and nothing here follows it.
            planned.place = "deleted" if number is None else "here"
            return False
        planned.number = number
        if number is None:
            return False
        is_changed = False
        if bytes(item.content_hash) != planned.content_hash:
            turn = Turn.objects.for_user(self._user).select_for_update().get(pk=item.turn_id or 0)
            is_changed = says_more(planned, item, turn)
            if is_changed:
                self._lengthen(planned, item, turn, stretch, conversation)
                planned.place = "changed"
        elif planned.key != planned.key_unanswered and bytes(item.key) == planned.key_unanswered:
            # An appended turn has the key of its question alone, which other answers to it would take for theirs, and
            # of its calls the names.
            self._name(item, planned)
            Turn.objects.for_user(self._user).filter(pk=item.turn_id or 0).update(tool_calls=planned.tool_calls)
        self._move_behind_parent(planned, item, stretch, conversation)
        return is_changed

    def _name(self, item: ImportedItem, planned: PlannedTurn) -> None:
        """Another answer to the same question is now a version."""
        self._known.pop(bytes(item.key), None)
        item.key, item.content_hash = planned.key, planned.content_hash
        self._known[planned.key] = item
        item.save()

    def _lengthen(
        self, planned: PlannedTurn, item: ImportedItem, turn: Turn, stretch: TurnStretch, conversation: Conversation
    ) -> None:
        # A title that was made of the first words is made of the new ones.
        is_of_line = conversation.titled_by == TitledBy.LINE
        if is_of_line and conversation.title == title_from((turn.user_message or turn.assistant_message).strip()):
            conversation.title = title_from((planned.user_message or planned.assistant_message).strip())
            Conversation.objects.for_user(self._user).filter(pk=conversation.pk).update(title=conversation.title)
        if planned.files:
            self._with_files.append((stretch, planned, turn))
        for name, value in _fields_of(planned).items():
            setattr(turn, name, value)
        # Which indexes it again.
        turn.save()
        item.note_lengthened(by=self._import)
        self._name(item, planned)

    def _move_behind_parent(
        self, planned: PlannedTurn, item: ImportedItem, stretch: TurnStretch, conversation: Conversation
    ) -> None:
        """An earlier reader left out the turn before this one. A turn has a higher number than its parent, so this one
        gets another number, unless it was changed or continued here.
        """
        before, parent = planned.number, nearest_number(planned.parent)
        if before is None or parent is None or parent < before or conversation.pk in self._continued_here:
            return
        here = Turn.objects.for_user(self._user).get(pk=item.turn_id or 0)
        hashes = {bytes(item.content_hash), planned.content_hash, hash_of(here.user_message, here.assistant_message)}
        # A file that this export does not have would be lost with its turn.
        if len(hashes) > 1 or here.attachment_count > len(planned.files):
            return
        turn = conversation.next_turn(follows=parent, said_at=planned.said_at, **_fields_of(planned))
        planned.number = turn.turn_number
        if conversation.current_number == before:
            conversation.current_number = turn.turn_number
        self._moved.append((item, turn, before))
        self._changed[conversation.pk] = conversation
        self._with_files = [each for each in self._with_files if each[1] is not planned]
        if planned.files:
            self._with_files.append((stretch, planned, turn))

    @cached_property
    def _continued_here(self) -> set[UUID]:
        """The conversations of the batch with turns that no import brought."""
        turns = Turn.objects.for_user(self._user).filter(conversation__in=[each.pk for each in self._here.values()])
        imported = ImportedItem.objects.for_user(self._user).filter(turn_id=OuterRef("pk"))
        return set(turns.filter(~Exists(imported)).values_list("conversation_id", flat=True).distinct())


def _fields_of(planned: PlannedTurn) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "user_message": planned.user_message,
        "assistant_message": planned.assistant_message,
        "tool_calls": planned.tool_calls,
        "usage": Usage(model=planned.model).as_data() if planned.model else None,
        "status": Turn.Status.COMPLETE,
    }
    if planned.exported is not None:
        exported = planned.exported
        fields |= {"status": exported.status, "is_recall": exported.is_recall}
        fields |= {"error": exported.error, "usage": exported.usage, "reasoning": exported.reasoning}
    return fields


def exported_here(user: User, batch: Iterable[TurnStretch]) -> dict[bytes, UUID]:
    """Of Recollect's own conversations, those that are here with their original ids."""
    ids = {stretch.key: stretch.conversation.exported.id for stretch in batch if stretch.conversation.exported}
    mine = Conversation.objects.for_user(user).filter(pk__in=ids.values()) if ids else Conversation.objects.none()
    here = set(mine.values_list("pk", flat=True))
    return {key: pk for key, pk in ids.items() if pk in here}


def _as_exported(
    conversation: ImportedConversation, exported: ExportedConversation, user: User, *, project: str
) -> Conversation:
    """Unchanged if the export proves that this user exported it; else with another id and without its instructions.

    Keeping an id because it is free would tell which ids other accounts have.
    """
    is_own = exporting.is_own(user, exported.id, exported.instructions, proof=exported.proof)
    return Conversation(
        id=exported.id if is_own else id_here(user, exported.id),
        user=user,
        title=cut(pg_text(conversation.title or ""), TITLE_LENGTH),
        source=exported.source,
        external_id=exported.external_id,
        project=project,
        titled_by=exported.titled_by if exported.titled_by in TitledBy.values else TitledBy.PERSON,
        pinned_at=exported.pinned_at,
        archived_at=exported.archived_at,
        # The exported id, until `_check_origin` finds the conversation here.
        branched_from=exported.branched_from,
        branched_after=exported.branched_after,
        model=exported.model,
        instructions=exported.instructions if is_own else "",
        temperature=exported.temperature,
        uses_memory=exported.uses_memory,
        started_at=exported.started_at,
        last_active_at=exported.last_active_at,
    )


def id_here(user: User, exported_id: UUID) -> UUID:
    """The same for each import by this user, and another one for every other user."""
    return UUID(bytes=key_of("recollect", "id", str(user.pk), str(exported_id)), version=5)


def _name_of(conversation: ImportedConversation) -> tuple[str, str]:
    """The source and the external id of the conversation here; one that was started here has no external id."""
    if conversation.exported is not None:
        return conversation.exported.source, conversation.exported.external_id
    return conversation.product, short_id(conversation.external_id)
