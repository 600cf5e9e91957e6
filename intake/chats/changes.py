"""Tells a user's open pages which of their chats has changed, without content (`GET /api/v1/intake/events`).

A change is sent over Redis from a separate thread, so that an unavailable Redis delays no request; pages then see the
change when they are loaded again. Each web process subscribes once, for all its open pages.
"""

import asyncio
import hashlib
import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from django.conf import settings
from django.db import transaction
from redis import Redis
from redis import asyncio as asyncio_redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from core import resilience
from core.isolation.acting import Caller

logger = logging.getLogger(__name__)

REST_SECONDS = 2.0
TIMEOUT_SECONDS = 2.0

ChangedChat = tuple[int, str]


def tell(caller: Caller, *conversation_ids: UUID) -> None:
    """Send after the current transaction has committed."""
    transaction.on_commit(lambda: tell_now(caller, *conversation_ids))


def tell_now(caller: Caller, *conversation_ids: UUID) -> None:
    """Send a committed change. Needs no database, and may be called on an event loop."""
    if caller.user_id is not None:
        _teller.put([(caller.user_id, str(conversation_id)) for conversation_id in conversation_ids])


class _ChangeTeller:
    """One thread per process, started with the first change."""

    def __init__(self) -> None:
        self._requested = threading.Event()
        self._lock = threading.Lock()
        self._changes: dict[ChangedChat, None] = {}
        self._started_in: int | None = None

    def put(self, changes: list[ChangedChat]) -> None:
        with self._lock:
            self._changes.update(dict.fromkeys(changes))
            if self._started_in != os.getpid():
                threading.Thread(target=self._run, name="teller of changes", daemon=True).start()
                self._started_in = os.getpid()
        self._requested.set()

    def _run(self) -> None:
        while self._requested.wait():
            # Changes that arrive together are sent together: an import of a thousand chats is a few messages.
            time.sleep(0.05)
            self._requested.clear()
            with self._lock:
                changes, self._changes = list(self._changes), {}
            by_user: dict[int, list[str]] = defaultdict(list)
            for user_id, conversation_id in changes:
                by_user[user_id].append(conversation_id)
            try:
                client = _client(settings.REDIS_URL)
                for user_id, conversation_ids in by_user.items():
                    client.publish(_channel(), json.dumps({"user": user_id, "conversations": conversation_ids}))
            except RedisError as error:
                # Not retried: the next change, or a reload, updates the pages.
                logger.warning("No page hears of a change: Redis is away (%s)", type(error).__name__)
                time.sleep(REST_SECONDS)


_teller = _ChangeTeller()


@lru_cache(maxsize=4)
def _client(url: str) -> Redis:
    return resilience.client(url, seconds=TIMEOUT_SECONDS)


def _channel() -> str:
    """Two installations may share a Redis, whose numbered databases do not separate channels."""
    digest = hashlib.blake2b(settings.SECRET_KEY.encode(), digest_size=8)
    return f"recollect:changes:{digest.hexdigest()}"


_tasks: set[asyncio.Task[None]] = set()


class _ChangeListener:
    """The open pages of one event loop, and the one subscription that serves them."""

    def __init__(self) -> None:
        self.queues: dict[int, set[asyncio.Queue[str | None]]] = defaultdict(set)
        self.task: asyncio.Task[None] | None = None

    def open(self, user_id: int) -> asyncio.Queue[str | None]:
        # The longest queue of a page. A page that reads nothing for so long is told to reload everything.
        queue: asyncio.Queue[str | None] = asyncio.Queue(200)
        self.queues[user_id].add(queue)
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self._listen())
            # A cancelled task still has to close its connection, and nothing else would keep it alive.
            _tasks.add(self.task)
            self.task.add_done_callback(_tasks.discard)
        return queue

    def close(self, user_id: int, queue: asyncio.Queue[str | None]) -> None:
        self.queues[user_id].discard(queue)
        if not self.queues[user_id]:
            del self.queues[user_id]
        if not self.queues and self.task is not None:
            self.task.cancel()
            self.task = None

    def end(self) -> None:
        """End every stream without waiting: the server stops."""
        for queue in [queue for queues in self.queues.values() for queue in queues]:
            _put(queue, None)

    async def _listen(self) -> None:
        options: Any = {
            "socket_timeout": None,
            "socket_connect_timeout": TIMEOUT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
        }
        while True:
            try:
                async with asyncio_redis.from_url(settings.REDIS_URL, **options) as client, client.pubsub() as pubsub:
                    await pubsub.subscribe(_channel())
                    async for message in pubsub.listen():
                        if message["type"] == "message":
                            self._hand_on(json.loads(message["data"]))
            except (RedisError, OSError) as error:
                logger.warning("No page hears of changes for the moment: Redis is away (%s)", type(error).__name__)
            await asyncio.sleep(REST_SECONDS)

    def _hand_on(self, message: dict[str, object]) -> None:
        user_id, conversation_ids = message["user"], message["conversations"]
        if isinstance(user_id, int) and isinstance(conversation_ids, list):
            for queue in self.queues.get(user_id, ()):
                for conversation_id in conversation_ids:
                    _put(queue, conversation_id)


_listeners: WeakKeyDictionary[asyncio.AbstractEventLoop, _ChangeListener] = WeakKeyDictionary()


@contextmanager
def changes_of(user_id: int) -> Iterator[asyncio.Queue[str | None]]:
    """A queue of the ids of the user's conversations that change while the block runs; None is the end."""
    listener = _listeners.setdefault(asyncio.get_running_loop(), _ChangeListener())
    queue = listener.open(user_id)
    try:
        yield queue
    finally:
        listener.close(user_id, queue)


def end_streams() -> None:
    """Callable from any thread and from a signal handler."""
    for loop, listener in list(_listeners.items()):
        if not loop.is_closed():
            loop.call_soon_threadsafe(listener.end)


def _put(queue: asyncio.Queue[str | None], item: str | None) -> None:
    if queue.full():
        queue.get_nowait()
    queue.put_nowait(item)
