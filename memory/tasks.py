"""The tasks of the workers, and the checks before a worker's first task.

A task carries no text and no vector. It reads the pending rows in the database, so running it twice changes nothing.
"""

import logging
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from celery import current_app, shared_task
from celery.signals import worker_init
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.db import DatabaseError, connections
from django.utils import timezone

from core import resilience
from core.checks import refuse_former_settings
from core.isolation.checks import refuse_unless_isolated
from core.isolation.connecting import WEB, WORKER, add_logins_of_a_worker, use_login
from core.isolation.fitting import refuse_unless_fitting
from core.rounds import for_each, seconds_until, steps
from intake.accounts import activity, visitors
from intake.attachments import services as attachments
from intake.chats import consent, known_answers, retention, temporary
from intake.chats.running import close_abandoned_turns as close_turns
from intake.models import User
from intake.models.sessions import Session
from memory import ended_chats, index
from memory.backends.embedders import EmbedderError, configured_embedders, get_embedder, require_active
from memory.index import attachments as read_files
from memory.index import segments, vectors
from memory.overview import drawing

logger = logging.getLogger(__name__)

# The user up to whom today's round of `sweep_lost` has come. In Redis, because it may be lost: the round begins again.
SWEPT = "recollect:swept"
# A worker that is stopped lets its tasks end.
TASK_SECONDS = 10


@worker_init.connect
def refuse_unless_isolated_by_each_login(**_: Any) -> None:
    """The logins that its queues ask for: the worker role may not write conversations, and so imports act as people.

    Also in the parent process of a worker that forks, whose connections and pools its children must not inherit.
    """
    roles, queues = settings.DATABASE_ROLES, {*current_app.amqp.queues.consume_from}
    add_logins_of_a_worker()
    try:
        refuse_former_settings()
        refuse_unless_fitting()
        for login, role, is_needed in (
            (WEB, roles.web, queues & settings.QUEUES_OF_USERS),
            (WORKER, roles.worker, queues - settings.QUEUES_OF_USERS),
        ):
            if is_needed:
                _leave_no_connection()
                use_login(login)
                refuse_unless_isolated(role)
    except (CommandError, ImproperlyConfigured) as refusal:
        sys.exit(f"The worker cannot start: {refusal}")
    except DatabaseError as error:
        sys.exit(f"The worker cannot start: the database does not answer ({error}).")
    finally:
        _leave_no_connection()


@worker_init.connect
def refuse_without_a_model(**_: Any) -> None:
    try:
        embedders = configured_embedders()
        for embedder in embedders:
            embedder.check()
        require_active(*(embedder.name for embedder in embedders))
    except EmbedderError as error:
        sys.exit(f"The worker cannot start: {error}")
    except DatabaseError as error:
        sys.exit(f"The worker cannot start: the database does not say which model is active ({error}).")
    finally:
        _leave_no_connection()


@worker_init.connect
def load_the_model(**_: Any) -> None:
    """So that the first turn does not wait for it, where turns are embedded. An import only counts tokens."""
    if "celery" not in current_app.amqp.queues.consume_from:
        return
    try:
        get_embedder().warm_up(for_documents=True)
    except EmbedderError:
        logger.exception("The embedding model cannot be loaded; what waits will be tried again")


def _leave_no_connection() -> None:
    connections.close_all()
    connections["default"].close_pool()  # type: ignore[attr-defined]


@shared_task(name="memory.embed_pending")
def embed_pending() -> None:
    """Fill vectors; a long queue is processed in several tasks.

    A separate task flushes terms later: pending terms can be found already, a missing vector cannot.
    """
    index.embed_pending(until=timezone.now() + timedelta(seconds=TASK_SECONDS))
    flush_terms.apply_async(retry=False)
    if index.has_pending(now=timezone.now()):
        embed_pending.apply_async(retry=False)


@shared_task(name="memory.flush_terms")
def flush_terms() -> None:
    """Move pending terms into segments, and rewrite those with deleted texts."""
    until = timezone.now() + timedelta(seconds=TASK_SECONDS)
    steps("memory.flush_terms", lambda: segments.flush(until=until), lambda: segments.purge(until=until))


@shared_task(name="memory.read_attachments")
def read_attachments() -> None:
    """Read the files that wait, and index those that got their message after they were read."""
    now = timezone.now()
    until = now + timedelta(seconds=TASK_SECONDS)
    has_more: list[bool] = []
    steps(
        "memory.read_attachments",
        lambda: has_more.append(read_files.read_waiting(until=until)),
        lambda: read_files.index_read(since=now - read_files.RECENT, until=until),
    )
    if any(has_more):
        read_attachments.apply_async(retry=False)


@shared_task(name="memory.index_older_attachments")
def index_older_attachments() -> None:
    """The same for the files of visitors who have registered since."""
    now = timezone.now()
    since, until = now - timedelta(days=settings.VISITOR_DAYS + 2), now + timedelta(seconds=TASK_SECONDS)
    steps("memory.index_older_attachments", lambda: read_files.index_read(since=since, until=until))


@shared_task(name="memory.sweep_deleted")
def sweep_deleted() -> None:
    """Remove the index data of deleted texts, and add the bits of vectors from before there were any."""
    until = timezone.now() + timedelta(seconds=TASK_SECONDS)
    steps(
        "memory.sweep_deleted",
        lambda: segments.purge(until=until),
        lambda: vectors.add_missing_bits(until=until),
    )


@shared_task(name="memory.sweep_lost")
def sweep_lost() -> None:
    """Remove the index data of texts that were deleted in the database itself, from each user once a day, and the
    digests of what other programs know.

    It reads all of a user's segments. So each run takes some users, and the next run goes on after them.
    """
    until, today = timezone.now() + timedelta(seconds=TASK_SECONDS), f"{timezone.now():%Y-%m-%d}"
    redis = resilience.client(settings.REDIS_URL, seconds=2)
    key = f"{SWEPT}:{today}"
    reached = [int(redis.get(key) or 0)]

    def sweep_one(user_id: int) -> None:
        # Also past a user who fails, who is tried again tomorrow.
        reached[0] = user_id
        read_files.forget_lost(user_id)
        segments.mark_lost(user_id)
        known_answers.forget_gone(user_id, now=timezone.now())
        consent.forget_logins(user_id)

    before = reached[0]
    for_each("memory.sweep_lost", _users_after(before), sweep_one, seconds=seconds_until(until))
    if reached[0] != before:
        redis.set(key, reached[0], ex=timedelta(days=2))
        segments.purge(until=timezone.now() + timedelta(seconds=TASK_SECONDS))


def _users_after(user_id: int) -> Iterator[int]:
    while ids := list(User.objects.filter(pk__gt=user_id).order_by("pk").values_list("pk", flat=True)[:1_000]):
        yield from ids
        user_id = ids[-1]


@shared_task(name="memory.draw_maps")
def draw_maps() -> None:
    """Draw the maps and find the words of the timelines that users look at and that are outdated."""
    until = timezone.now() + timedelta(seconds=TASK_SECONDS)
    steps(
        "memory.draw_maps",
        lambda: drawing.drop_unasked(now=timezone.now()),
        lambda: drawing.draw_due(until=until),
    )


@shared_task(name="memory.remove_silent_visitors")
def remove_silent_visitors() -> None:
    after = timedelta(days=settings.VISITOR_DAYS)
    steps("memory.remove_silent_visitors", lambda: visitors.remove_silent(now=timezone.now(), after=after))


def _task(name: str, *work: Callable[[], Any]) -> Any:
    """A task that takes these steps."""

    def task() -> None:
        steps(name, *work)

    return shared_task(name=name)(task)


remove_temporary_chats = _task("memory.remove_temporary_chats", lambda: temporary.remove_expired(now=timezone.now()))
# Uploaded files that no message has named within a day.
remove_forgotten_files = _task(
    "memory.remove_forgotten_files", lambda: attachments.remove_forgotten(now=timezone.now())
)
# As the web role too: no other may read sessions.
remove_expired_sessions = _task(
    "memory.remove_expired_sessions", lambda: Session.objects.remove_expired(now=timezone.now())
)
close_abandoned_turns = _task("memory.close_abandoned_turns", lambda: close_turns(now=timezone.now()))
# Rows without a message: the broker was unavailable, a worker died, a lease expired.
sweep_pending = _task("memory.sweep_pending", lambda: index.quarantine_exhausted(now=timezone.now()), embed_pending)


@shared_task(name="memory.remove_old_activity")
def remove_old_activity() -> None:
    """Activity entries that are more than a year old."""
    steps("memory.remove_old_activity", activity.remove_old)


@shared_task(name="memory.remove_old_turns")
def remove_old_turns() -> None:
    """In the queue `people`, whose tasks may act as each user (`QUEUES_OF_USERS`)."""
    steps(
        "memory.remove_old_turns",
        lambda: retention.remove_old_turns(now=timezone.now()) and remove_old_turns.apply_async(retry=False),
    )


@shared_task(name="memory.read_ended_chats")
def read_ended_chats() -> None:
    """In the same queue, whose tasks may read chats as each user."""
    now = timezone.now()
    if ended_chats.read_due(now=now, until=now + timedelta(seconds=TASK_SECONDS)):
        read_ended_chats.apply_async(retry=False)
