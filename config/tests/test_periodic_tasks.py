"""Every task of the schedule goes on past an item that fails, says it once, and does it when it can."""

import logging
import os
from datetime import timedelta
from uuid import uuid4

import pytest
import redis
from django.conf import settings as configured
from django.db import connection
from django.utils import timezone
from oauth2_provider.models import get_application_model

from agent_tools.oauth import clients as oauth
from chat.answers import hub as answers
from config.celery import app
from core import rounds
from core.isolation.acting import Caller, acting_as
from core.rounds import for_each
from intake.accounts import activity, visitors
from intake.attachments import services as attachments
from intake.chats import retention, services, temporary
from intake.models import Activity, Attachment, Conversation, Session, Turn, User
from intake.models.activity import ActivityEntry
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_person, a_temporary_turn, a_turn, a_visitor
from memory import ended_chats, index
from memory.index import attachments as read_files
from memory.index import segments
from memory.models import DeletedText, Embedding, IndexedText
from memory.overview import drawing
from memory.tasks import SWEPT
from memory.tests.attached import attach
from memory.tests.vectors import directions, fill
from testing.examiner import as_a_worker

pytestmark = pytest.mark.django_db

LONG_AGO = NOW - timedelta(days=1000)


class Failing:
    """The function under this name, which raises an error for some arguments until `heal` is called."""

    def __init__(self, monkeypatch, module, name, when=lambda *_: True):
        self._monkeypatch, self._module, self._name = monkeypatch, module, name
        self._own = getattr(module, name)

        def failing(*args, **kwargs):
            if when(*args):
                raise RuntimeError("of this one item")
            return self._own(*args, **kwargs)

        monkeypatch.setattr(module, name, failing)

    def heal(self):
        self._monkeypatch.setattr(self._module, self._name, self._own)


# Each makes two things to do and lets the first fail. It returns the failure, whether the second is done, and whether
# the first is.


def sweep_pending(monkeypatch):
    a_turn(a_person(), "I adopted a cat")
    failing = Failing(monkeypatch, index, "quarantine_exhausted")
    return failing, lambda: not Embedding.objects.filter(vector=None).exists(), None


def sweep_deleted(monkeypatch):
    fill(a_person(), directions(2, seed=1), has_bits=False)
    return Failing(monkeypatch, segments, "purge"), lambda: not Embedding.objects.filter(bits=None).exists(), None


def sweep_lost(monkeypatch):
    with redis.Redis.from_url(configured.REDIS_URL) as kept:
        kept.delete(*(kept.keys(f"{SWEPT}*") or ["none"]))
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    turns = [a_turn(user, text) for user in (alice, bob) for text in ("cat", "dog")]
    segments.flush()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM intake_conversation_turns WHERE id = ANY(%s)", [[turns[0].pk, turns[2].pk]])
    monkeypatch.setattr("memory.tasks.segments.purge", lambda **_: 0)
    failing = Failing(monkeypatch, segments, "mark_lost", lambda user_id: user_id == alice.pk)
    return failing, lambda: DeletedText.objects.filter(user=bob).exists(), None


def draw_maps(monkeypatch):
    drawn, waiting = [], [1, 2]
    monkeypatch.setattr(drawing, "claim", lambda now: waiting.pop(0) if waiting else None)
    monkeypatch.setattr(drawing, "draw", drawn.append)
    failing = Failing(monkeypatch, drawing, "draw", lambda user_id: user_id == 1)

    def is_second_done():
        waiting.append(1)
        return drawn == [2]

    class Claimed:
        @staticmethod
        def heal():
            failing.heal()
            # Its claim has expired.
            waiting.append(1)

    return Claimed, is_second_done, lambda: drawn[-1] == 1


def remove_old_turns(monkeypatch):
    monkeypatch.setattr(configured, "RETENTION_DAYS", 30)
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    for user in (alice, bob):
        a_turn(user, "long ago", said_at=LONG_AGO)
    User.objects.filter(pk=alice.pk).update(retention_due_at=LONG_AGO)
    User.objects.filter(pk=bob.pk).update(retention_due_at=NOW)
    failing = Failing(monkeypatch, retention, "_remove_some_of", lambda user_id, _: user_id == alice.pk)

    def is_second_done():
        alice.refresh_from_db()
        assert alice.retention_due_at > timezone.now(), "comes after the others"
        User.objects.filter(pk=alice.pk).update(retention_due_at=LONG_AGO)
        return not Turn.objects.filter(user=bob).exists()

    return failing, is_second_done, lambda: not Turn.objects.exists()


def remove_silent_visitors(monkeypatch):
    visitor = a_visitor()
    User.objects.filter(pk=visitor.pk).update(joined_at=LONG_AGO)
    failing = Failing(monkeypatch, visitors, "remove_silent")
    return failing, None, lambda: not User.objects.exists()


def remove_temporary_chats(monkeypatch):
    alice = a_person()
    with acting_as(alice):
        a_temporary_turn(alice, "secret")
    Conversation.objects.update(expires_at=LONG_AGO)
    return Failing(monkeypatch, temporary, "remove_expired"), None, lambda: not Turn.objects.exists()


def remove_forgotten_files(monkeypatch):
    a_file(a_person(), now=LONG_AGO)
    failing = Failing(monkeypatch, attachments, "remove_forgotten")
    return failing, None, lambda: not Attachment.objects.exists()


def read_attachments(monkeypatch):
    a_file(a_person())
    failing = Failing(monkeypatch, read_files, "read_safely")
    heal = failing.heal

    def heal_at_once():
        heal()
        # Before the lease of the failed attempt is over.
        Attachment.objects.update(next_attempt_at=LONG_AGO)

    failing.heal = heal_at_once
    return failing, None, lambda: Attachment.objects.get().state == "read"


def index_older_attachments(monkeypatch):
    attach(a_person(), b"Milk", read=False)
    with as_a_worker():
        read_files.read_waiting(until=timezone.now())
    IndexedText.objects.in_corpus("attachment").delete()
    failing = Failing(monkeypatch, read_files, "index_read")
    return failing, None, lambda: IndexedText.objects.in_corpus("attachment").exists()


def remove_expired_sessions(monkeypatch):
    Session.objects.create(session_key="a" * 32, session_data="", expire_date=LONG_AGO)
    failing = Failing(monkeypatch, type(Session.objects), "remove_expired")
    return failing, None, lambda: not Session.objects.exists()


def read_ended_chats(monkeypatch):
    monkeypatch.setattr(configured, "LLM_MODEL", "scripted")
    users = [a_person(f"{n}@example.com") for n in range(2)]
    User.objects.update(proposes_since=LONG_AGO)
    for user in users:
        turn = a_turn(user, "The worktop is oak.")
        Conversation.objects.filter(pk=turn.conversation_id).update(last_active_at=NOW)
    monkeypatch.setattr(ended_chats, "ask_model", lambda *_: ("{}", 1, 1))
    failing = Failing(monkeypatch, ended_chats, "read_next", lambda user: user.pk == users[0].pk)
    is_read = [lambda user=user: Conversation.objects.get(user=user).read_up_to == 1 for user in users]
    return failing, is_read[1], is_read[0]


def remove_old_activity(monkeypatch):
    activity.note(a_person(), Activity.CHAT_DELETED)
    ActivityEntry.objects.update(at=LONG_AGO)
    return Failing(monkeypatch, activity, "remove_old"), None, lambda: not ActivityEntry.objects.exists()


def sweep_imports(monkeypatch, tmp_path):
    monkeypatch.setattr(configured, "IMPORTS_DIR", tmp_path)
    stray, forgotten = tmp_path / "7" / "a.txt", tmp_path / "7" / str(uuid4())
    for path in (stray, forgotten):
        path.parent.mkdir(exist_ok=True)
        path.write_text("left")
        os.utime(path, (0, 0))

    class Stray:
        heal = stray.unlink

    return Stray, lambda: stray.exists() and not forgotten.exists(), lambda: not stray.exists()


def sweep_oauth(monkeypatch):
    get_application_model().objects.create(client_type="public", authorization_grant_type="authorization-code")
    get_application_model().objects.update(created=LONG_AGO, updated=LONG_AGO, registration_source="dcr")
    failing = Failing(monkeypatch, oauth, "clear_expired")
    return failing, lambda: not get_application_model().objects.exists(), None


def close_abandoned_turns(monkeypatch):
    turns = [
        services.create_turn(
            services.TurnRequest(message="Hi"), caller=Caller(user_id=a_person(f"{n}@example.com").pk), now=NOW
        )
        for n in range(2)
    ]
    Turn.objects.update(updated_at=LONG_AGO)
    own = services.interrupt_turn

    class First:
        @staticmethod
        def heal():
            monkeypatch.setattr(services, "interrupt_turn", own)

    def failing(*, turn_id, **fields):
        if turn_id == turns[0].pk:
            raise RuntimeError("of this one item")
        return own(turn_id=turn_id, **fields)

    monkeypatch.setattr(answers.services, "interrupt_turn", failing)
    is_closed = [lambda turn=turn: not Turn.objects.filter(pk=turn.pk, status="streaming").exists() for turn in turns]
    return First, is_closed[1], is_closed[0]


CASES = {
    "memory.sweep_pending": sweep_pending,
    "memory.sweep_deleted": sweep_deleted,
    "memory.sweep_lost": sweep_lost,
    "memory.draw_maps": draw_maps,
    "memory.remove_silent_visitors": remove_silent_visitors,
    "memory.remove_temporary_chats": remove_temporary_chats,
    "memory.remove_forgotten_files": remove_forgotten_files,
    "memory.read_attachments": read_attachments,
    "memory.index_older_attachments": index_older_attachments,
    "memory.remove_old_turns": remove_old_turns,
    "memory.remove_old_activity": remove_old_activity,
    "memory.remove_expired_sessions": remove_expired_sessions,
    "memory.read_ended_chats": read_ended_chats,
    "imports.sweep": sweep_imports,
    "agent_tools.sweep_oauth": sweep_oauth,
    "memory.close_abandoned_turns": close_abandoned_turns,
}
AS_THE_WEB_ROLE = [
    name for name in CASES if app.amqp.router.route({}, name)["queue"].name in configured.QUEUES_OF_USERS
]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(rounds, "_known", {})


def test_every_task_of_the_schedule_has_a_case_here():
    assert set(CASES) == {*configured.SCHEDULE}


@pytest.mark.parametrize("name", CASES)
def test_a_task_goes_on_past_a_failure_says_it_once_and_retries_it(name, monkeypatch, tmp_path, caplog):
    make = CASES[name]
    failing, is_second_done, is_first_done = (
        make(monkeypatch, tmp_path) if name == "imports.sweep" else make(monkeypatch)
    )
    run(name)
    assert is_second_done is None or is_second_done()
    run(name)
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1, [record.getMessage() for record in errors]
    assert "tried again later" in errors[0].getMessage()
    if is_second_done is not None and name == "memory.remove_old_turns":
        is_second_done()
    failing.heal()
    run(name)
    assert is_first_done is None or is_first_done()


def run(name):
    app.autodiscover_tasks(force=True)
    if name in AS_THE_WEB_ROLE:
        app.tasks[name].apply(throw=True)
        return
    with as_a_worker():
        app.tasks[name].apply(throw=True)


def test_a_failure_that_was_away_for_a_round_is_said_again(caplog):
    def work(item):
        if item:
            raise ValueError

    for items in ([1, 1], [1], [0], [1]):
        for_each("a task", items, work)
    assert len(caplog.records) == 2


def test_a_database_that_is_away_ends_the_round_after_three_items():
    from django.db import OperationalError

    tried = []

    def work(item):
        tried.append(item)
        raise OperationalError

    *_, has_all = for_each("a task", range(10), work)
    assert not has_all
    assert tried == [0, 1, 2]
