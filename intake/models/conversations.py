"""Conversations, their turns, and projects.

Each row names its owner; a personal query starts at `for_caller` or `for_user`.
"""

import operator
from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from typing import Any, Self, TypeVar, cast
from uuid import UUID

from django.db import models
from django.db.models import F, Func, Q
from django.db.models.expressions import Expression, RawSQL
from django.db.models.functions import Cast
from django.utils import timezone

from core.ids import uuid7
from core.isolation.acting import Caller
from core.text import LONGEST_PROJECT, pg_text, project_label
from intake.models.users import User, owner

TITLE_LENGTH = 80
MODEL_NAME_LENGTH = 200
PROJECT_LENGTH = LONGEST_PROJECT
PROJECT_COLOURS = ("blue", "teal", "green", "yellow", "orange", "red", "pink", "purple")
MAX_PROJECT_INSTRUCTIONS = 4_000


OwnedRow = TypeVar("OwnedRow", bound=models.Model)


class OwnedQuerySet(models.QuerySet[OwnedRow]):
    """Rows that name their owner in `user`. Row-level security checks the same on each row (core/isolation)."""

    def for_user(self, user: User) -> Self:
        return self.filter(user_id=user.pk)

    def for_caller(self, caller: Caller) -> Self:
        """Empty while the caller is unknown: rows without an owner are readable by no one."""
        return self.none() if caller.user_id is None else self.filter(user_id=caller.user_id)

    def of_project(self, user: User, project: str | None, *, field: str = "project") -> Self:
        """The rows of a project (empty: of none), which may be named by a folder or repository of it. None: of all
        but closed ones; with a hyphen before the name: of all but this one and closed ones.
        """
        if project is not None and not project.startswith("-"):
            return self.filter(**{f"{field}__in": labels_of(user, project)})
        closed = Project.objects.for_user(user).filter(is_closed=True).values("name")
        rows = self.exclude(**{f"{field}__in": closed})
        return rows if project is None else rows.exclude(**{f"{field}__in": labels_of(user, project[1:])})


class ConversationQuerySet(OwnedQuerySet["Conversation"]):
    def kept(self) -> Self:
        """Without temporary chats: the rows that are listed, searched and exported."""
        return self.filter(expires_at=None)

    def newest_first(self) -> Self:
        return self.order_by("-last_active_at", "-id")


class TitledBy(models.TextChoices):
    LINE = "line", "First line"
    MODEL = "model", "Language model"
    PERSON = "person", "Person"


class Conversation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # NULL for rows from before there were owners: no user can read those.
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    title = models.CharField(max_length=TITLE_LENGTH, blank=True, default="")
    source = models.CharField(max_length=32, default="chat")
    external_id = models.CharField(max_length=200, blank=True, default="")
    # A repository or folder (`core.text.project_label`), by which searches are limited. Empty: of no project.
    project = models.CharField(max_length=PROJECT_LENGTH, blank=True, default="", db_default="")
    # The number of the latest turn. Writers lock this row, so turn numbers have no gaps.
    turn_count = models.PositiveIntegerField(default=0, editable=False)
    # The turn at the end of the chosen path; the turns above it are its ancestors. NULL: no path has been chosen.
    current_number = models.PositiveIntegerField(null=True, editable=False)
    # Whether a turn has ever followed another than the latest. If not, all turns are on one path.
    has_versions = models.BooleanField(default=False, editable=False)
    # For a branch: the conversation and the turn from which it continues. Like a link, it has no foreign key: numbers
    # are never used again, so a pair without a turn means that the turn has been deleted.
    branched_from = models.UUIDField(null=True, editable=False)
    branched_after = models.PositiveIntegerField(null=True, editable=False)
    started_at = models.DateTimeField(default=timezone.now)
    last_active_at = models.DateTimeField(default=timezone.now)
    # The time of pinning, and the time of archiving.
    pinned_at = models.DateTimeField(null=True, blank=True)
    archived_at = models.DateTimeField(null=True, blank=True)
    # A temporary chat is deleted when the user leaves it, and at this time at the latest. NULL: it is kept.
    expires_at = models.DateTimeField(null=True, editable=False)
    # How it is answered. Empty, or the name of a removed model, means the user's default.
    model = models.CharField(max_length=MODEL_NAME_LENGTH, blank=True, default="", db_default="")
    instructions = models.TextField(blank=True, default="", db_default="")
    temperature = models.FloatField(null=True, blank=True)
    uses_memory = models.BooleanField(default=True, db_default=True)
    # Whether its answers may search the web and read pages, if staff have chosen a search.
    uses_web = models.BooleanField(default=False, db_default=False)
    # What its answers do not get of the user's memory, by digests (`memory.left_out`).
    left_out = models.JSONField(default=list, db_default=[], blank=True, editable=False)
    # Whether it is read for things worth keeping, once it has ended and if its user agreed (`User.proposes_since`).
    proposes = models.BooleanField(default=True, db_default=True)
    # The last turn that was read for that, and the tokens and outcome of all its readings (`memory.ended_chats`).
    read_up_to = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    readings = models.JSONField(default=dict, db_default={}, editable=False)
    # The source of the title: a model's title replaces only that of the first line, and no title replaces a user's.
    titled_by = models.CharField(max_length=8, choices=TitledBy, default=TitledBy.LINE)

    objects = ConversationQuerySet.as_manager()

    class Meta:
        db_table = "intake_conversations"
        indexes = [
            models.Index(fields=["user"], name="idx_ic_user_id"),
            models.Index(fields=["user", "-last_active_at", "-id"], name="idx_ic_user_recent"),
            models.Index(
                fields=["user", "-pinned_at"], name="idx_ic_user_pinned", condition=Q(pinned_at__isnull=False)
            ),
            models.Index(
                fields=["user", "branched_from"], name="idx_ic_branches", condition=Q(branched_from__isnull=False)
            ),
            models.Index(fields=["user", "project"], name="idx_ic_user_project", condition=~Q(project="")),
            models.Index(fields=["expires_at"], name="idx_ic_expiring", condition=Q(expires_at__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(branched_from=None, branched_after=None)
                | Q(branched_from__isnull=False, branched_after__isnull=False),
                name="intake_conversations_branched_from_a_turn",
            ),
            models.UniqueConstraint(
                fields=["user", "source", "external_id"],
                condition=~Q(external_id=""),
                name="intake_conversations_imported_once",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)

    def next_turn(self, *, follows: int | None, said_at: datetime, number: int | None = None, **fields: Any) -> "Turn":
        """An unsaved turn of this conversation, whose row is locked, or new; it is saved before the turn.

        `follows`: the number of its parent, or 0. `number` may leave a gap.
        """
        self.has_versions = self.has_versions or (follows or 0) != self.turn_count
        self.turn_count = number or self.turn_count + 1
        self.last_active_at = max(self.last_active_at, said_at)
        return Turn(
            conversation=self,
            user_id=self.user_id,
            turn_number=self.turn_count,
            parent_number=follows or None,
            is_temporary=self.expires_at is not None,
            said_at=said_at,
            **fields,
        )


class TurnQuerySet(OwnedQuerySet["Turn"]):
    def in_order(self) -> Self:
        return self.order_by("turn_number")

    def with_keys(self, keys: Iterable[tuple[UUID, int]]) -> Self:
        """The turns of these (conversation, turn number) pairs."""
        pairs = list(keys)
        return self.filter(with_pairs("conversation_id", "turn_number", pairs)) if pairs else self.none()


def with_pairs(key: str, number: str, pairs: Iterable[tuple[UUID, int]]) -> RawSQL:
    """The condition that these two columns are one of the pairs.

    As two parameters, for any number of pairs: one condition per pair takes longer to write than to run.
    """
    every = list(pairs)
    return RawSQL(  # noqa: S611 - the names of columns
        f"({key}, {number}) IN (SELECT * FROM unnest(%s::uuid[], %s::int[]))",  # noqa: S608 - the names of columns
        ([key for key, _ in every], [number for _, number in every]),
        output_field=models.BooleanField(),
    )


def bytes_of(*names: str) -> Expression:
    """The total bytes of these columns, as text in UTF-8."""
    each = (
        Func(Cast(name, models.TextField()), function="octet_length", output_field=models.IntegerField())
        for name in names
    )
    return cast(Expression, reduce(operator.add, each))


class Turn(models.Model):
    """A user's message and its answer.

    The turns of a conversation are a tree: turns with the same parent are versions of each other.
    """

    class Status(models.TextChoices):
        STREAMING = "streaming"
        COMPLETE = "complete"
        INTERRUPTED = "interrupted"
        FAILED = "failed"
        # Calls wait for the person (`intake.models.tools.PausedTurn`): nobody writes it, and its answer is not over.
        WAITING = "waiting"

    # A migration creates the foreign keys, which cascade in the database.
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="turns", db_index=False, db_constraint=False
    )
    # The owner again, so that the policy needs no other table.
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    # In the order of saving, over all versions.
    turn_number = models.PositiveIntegerField()
    # The number of the turn that this one follows; NULL for a first turn. A constraint keeps it smaller than the turn's
    # own number, so the database refuses a circle.
    parent_number = models.PositiveIntegerField(null=True, editable=False)
    user_message = models.TextField()
    assistant_message = models.TextField(blank=True, default="")
    # The reasoning of a thinking model: shown, never indexed, and never sent back to a model.
    reasoning = models.TextField(blank=True, default="", db_default="")
    # Copied from the conversation for workers, which may not read conversations. Temporary turns are never indexed.
    is_temporary = models.BooleanField(default=False, db_default=False, editable=False)
    # The answer only quotes the user's own history: shown, never indexed, because searches would find the quotes.
    is_recall = models.BooleanField(default=False)
    tool_calls = models.JSONField(default=list, blank=True)
    # The number of files of the message, so that a turn without files costs no query for them.
    attachment_count = models.PositiveSmallIntegerField(default=0, db_default=0, editable=False)
    status = models.CharField(max_length=16, choices=Status, default=Status.STREAMING)
    error = models.JSONField(null=True, blank=True)
    # The number of started attempts: a writer that another attempt has replaced can change nothing.
    attempt = models.PositiveIntegerField(default=1, db_default=1)
    # The usage of the answer, in the format of `intake.chats.usage`.
    usage = models.JSONField(null=True, blank=True)
    # What the answer was made of: ids and digests, in the format of `intake.chats.prompts`.
    prompt = models.TextField(blank=True, default="", db_default="", editable=False)
    # For quotas: an index contains it, so that the sum reads no rows.
    text_bytes = models.GeneratedField(
        expression=bytes_of("user_message", "assistant_message", "reasoning", "tool_calls", "prompt"),
        output_field=models.IntegerField(),
        db_persist=True,
    )
    said_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TurnQuerySet.as_manager()

    # Whether its message was sent before and its answer needs no writer (`intake.chats.services.create_turn`).
    is_replay = False

    class Meta:
        db_table = "intake_conversation_turns"
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "turn_number", "user"], nulls_distinct=False, name="intake_turns_numbered_once"
            ),
            models.CheckConstraint(
                condition=Q(parent_number=None) | Q(parent_number__gte=1, parent_number__lt=F("turn_number")),
                name="intake_turns_follow_an_earlier_one",
            ),
        ]
        indexes = [
            models.Index(fields=["user", "said_at"], include=["text_bytes"], name="idx_ict_user_said_at"),
            # The whole tree of a conversation by an index-only scan; also the children of a turn.
            models.Index(fields=["user", "conversation", "parent_number", "turn_number"], name="idx_ict_tree"),
            models.Index(fields=["updated_at"], name="idx_ict_streaming", condition=Q(status="streaming")),
        ]

    def __str__(self) -> str:
        return f"{self.conversation_id}#{self.turn_number}"

    @property
    def is_cut(self) -> bool:
        """Whether the model stopped at its token limit, in the middle of the answer."""
        return self.status == self.Status.COMPLETE and (self.usage or {}).get("finish_reason") == "length"

    @property
    def can_be_continued(self) -> bool:
        """Whether there is an incomplete answer."""
        broke_off = self.status in {self.Status.INTERRUPTED, self.Status.FAILED}
        return bool(self.assistant_message) and (broke_off or self.is_cut)

    @property
    def has_ended(self) -> bool:
        return self.status not in OPEN

    @property
    def is_being_written(self) -> bool:
        return self.status == self.Status.STREAMING


# The states of a turn whose answer is not over.
OPEN = (Turn.Status.STREAMING, Turn.Status.WAITING)


class Project(models.Model):
    """One label with its name, colour and instructions. The label is the key: chats, records and tokens store it.

    A label that is in use needs no row. `labels`: folders and repositories whose new chats belong to this project.
    `is_closed`: its texts are found only by searches of this project.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The migration creates the foreign key.
    user = owner()
    name = models.CharField(max_length=PROJECT_LENGTH)
    colour = models.CharField(max_length=8, choices=[(name, name) for name in PROJECT_COLOURS], default="blue")
    instructions = models.TextField(blank=True, default="")
    is_closed = models.BooleanField(default=False)
    labels = models.JSONField(blank=True, default=list)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OwnedQuerySet["Project"].as_manager()

    # Filled by `intake.chats.projects.list_projects`.
    has_row = True
    chats = 0
    kept = 0

    class Meta:
        db_table = "intake_projects"
        constraints = [
            # Also used to find closed projects.
            models.UniqueConstraint(fields=["user", "name"], name="intake_projects_named_once", include=["is_closed"]),
        ]

    def __str__(self) -> str:
        return self.name


def label_of(*, user: User, label: str) -> str:
    """The project to which the label of a folder or repository belongs, or else the label itself."""
    # What cannot be stored belongs to nothing; its own check refuses it.
    if not label or label != pg_text(label):
        return label
    owner = Project.objects.for_user(user).filter(labels__contains=[label]).values_list("name", flat=True).first()
    return owner or label


def labels_of(user: User, project: str) -> set[str]:
    """The labels under which texts of a project are stored; it may be named by a folder or repository of it."""
    # A name that is no label would otherwise be that of no project.
    label = project_label(project) or project
    return {label, project, label_of(user=user, label=label)}
