from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from evals import demo
from intake.models import Conversation, Turn, User
from memory.index.health import index_health
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 1, tzinfo=UTC)


@kept_rows
def the_demo():
    """Its person, and how many turns were saved."""
    user, _ = demo.ensure_person()
    return user, demo.load_demo(user, now=NOW)


def test_half_a_year_of_conversations_is_saved_as_said_then(the_demo):
    assert the_demo[1] == 76

    said = Turn.objects.order_by("said_at")
    assert Conversation.objects.count() == 17
    assert NOW - timedelta(days=183) < said[0].said_at < NOW - timedelta(days=165)
    assert NOW - timedelta(days=7) < said.last().said_at < NOW


def test_what_is_of_half_a_year_waits_for_its_vector_from_the_moment_it_is_saved(the_demo):
    demo.load_notes(the_demo[0], now=NOW)

    assert index_health(now=timezone.now()).due_since > timezone.now() - timedelta(days=1)


def test_within_a_conversation_time_goes_forward(the_demo):
    for conversation in Conversation.objects.for_user(the_demo[0]):
        times = [turn.said_at for turn in conversation.turns.in_order()]
        assert times == sorted(times), conversation.external_id
        assert (conversation.started_at, conversation.last_active_at) == (times[0], times[-1])


@pytest.mark.medium
def test_the_password_is_printed_once_and_works(capsys):
    call_command("load_demo")
    password = capsys.readouterr().out.split("with the password ")[1].split()[0]
    call_command("load_demo")

    assert User.objects.get(email=demo.EMAIL).check_password(password)
    assert capsys.readouterr().out == "demo@example.com has its history already.\n"
    assert Turn.objects.count() == 76


def test_a_run_that_was_cut_short_is_completed_by_the_next(the_demo):
    Conversation.objects.get(external_id="cat").delete()
    shortened = Conversation.objects.filter(external_id="piano")
    Turn.objects.get(conversation__in=shortened, turn_number=3).delete()
    shortened.update(turn_count=2, current_number=2)

    assert demo.load_demo(the_demo[0], now=NOW) == 4
    assert Turn.objects.count() == 76
