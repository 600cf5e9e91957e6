"""Another path of a conversation's turns, and a branch that continues from one of them.

Everything happens under the lock of the conversation's row, like every other write to its turns.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller
from core.text import gettext_noop, shortened
from intake.chats import services
from intake.chats.tree import Tree
from intake.models import Conversation
from intake.models.conversations import TITLE_LENGTH

BRANCH_TITLE = "{title} (branch)"


def choose_version(*, caller: Caller, conversation_id: UUID, turn_number: int) -> int:
    """Choose the path of a turn, to its newest end; returns the number of the turn at that end.

    Raises `NotFound`.
    """
    with transaction.atomic():
        conversation = services.lock_conversation(caller, conversation_id)
        tree = Tree.of(conversation)
        if turn_number not in tree:
            raise NotFound
        path = tree.path_through(turn_number, preferred_end=conversation.current_number)
        conversation.current_number = path[-1]
        conversation.save(update_fields=["current_number"])
    return path[-1]


def branch(*, caller: Caller, conversation_id: UUID, turn_number: int, now: datetime) -> Conversation:
    """A new conversation that continues from a turn. It shows that turn and those above it without copying them.

    It has the settings of its origin. Raises `NotFound`, `StillRunning` while the turn is being answered,
    `InvalidInput` for a turn of a temporary chat.
    """
    with transaction.atomic():
        origin = services.lock_conversation(caller, conversation_id)
        services.ended_turn(origin, turn_number)
        if origin.expires_at is not None:
            raise InvalidInput(gettext_noop("This chat is temporary. Keep it first, then branch from it."))
        return Conversation.objects.create(
            user_id=caller.user_id,
            title=_branch_title(origin.title),
            project=origin.project,
            branched_from=origin.pk,
            branched_after=turn_number,
            model=origin.model,
            instructions=origin.instructions,
            temperature=origin.temperature,
            uses_memory=origin.uses_memory,
            uses_web=origin.uses_web,
            proposes=origin.proposes,
            started_at=now,
            last_active_at=now,
        )


def _branch_title(title: str) -> str:
    """The origin's title, cut if both parts do not fit, and marked only once."""
    mark = BRANCH_TITLE.format(title="")
    kept = title.removesuffix(mark)
    room = TITLE_LENGTH - len(mark)
    return BRANCH_TITLE.format(title=shortened(kept, room)) if kept else ""
