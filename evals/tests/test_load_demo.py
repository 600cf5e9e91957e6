from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command

from evals import demo
from evals.datasets.loading import embed_all
from intake.models import Conversation, Turn, User
from memory.search import search_chat_history

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

# Asked in other words than were used: what is found is found by its meaning.
QUESTIONS = {
    "How much did my new bicycle cost?": "I bought the grey one",
    "What should we do about processes that crash in the middle of their work?": "What happens if a worker is killed",
    "Which alert tells me that background tasks are piling up?": "And how do I notice that it falls behind",
    "the recipe for the nut dip my guests liked": "It went really well. The peanut sauce",
    "My joint aches when I walk down the stairs": "Since the 12 km on Sunday it hurts",
    "vegetables for a terrace without much light": "My balcony faces north-east",
    "our program runs out of RAM when reading huge spreadsheets": "Our import script is killed at 8 GB",
    "getting the money back from the landlord": "We are leaving our flat",
    "vegetarian meals in Japan": "My partner doesn't eat fish",
    "What did the aeroplane tickets cost?": "Flights are booked",
    "how to negotiate with my boss about pay": "I have my yearly review",
    "a keyboard instrument that does not disturb the neighbours": "We live on the third floor with thin walls",
    "continuous integration is too slow": "Our pipeline takes 23 minutes",
    "my pet refuses food": "She hasn't eaten anything",
}


def test_half_a_year_of_conversations_is_saved_as_said_then():
    user, _ = demo.ensure_person()

    assert demo.load_demo(user, now=NOW) == len(demo.read_demo()) == 76

    said = Turn.objects.for_user(user).order_by("said_at")
    assert Conversation.objects.for_user(user).count() == 17
    assert NOW - timedelta(days=183) < said[0].said_at < NOW - timedelta(days=165)
    assert NOW - timedelta(days=7) < said.reverse()[0].said_at < NOW


def test_within_a_conversation_time_goes_forward():
    user, _ = demo.ensure_person()
    demo.load_demo(user, now=NOW)

    for conversation in Conversation.objects.for_user(user):
        times = [turn.said_at for turn in conversation.turns.in_order()]
        assert times == sorted(times), conversation.external_id
        assert (conversation.started_at, conversation.last_active_at) == (times[0], times[-1])


def test_the_password_is_printed_once_and_works(capsys):
    call_command("load_demo")
    password = capsys.readouterr().out.split("with the password ")[1].split()[0]
    call_command("load_demo")

    assert User.objects.get(email=demo.EMAIL).check_password(password)
    assert capsys.readouterr().out == "demo@example.com has its history already.\n"
    assert Turn.objects.count() == 76


def test_a_run_that_was_cut_short_is_completed_by_the_next():
    user, _ = demo.ensure_person()
    demo.load_demo(user, now=NOW)
    Conversation.objects.get(external_id="cat").delete()
    shortened = Conversation.objects.get(external_id="piano")
    shortened.turns.filter(turn_number=3).delete()
    Conversation.objects.filter(pk=shortened.pk).update(turn_count=2, current_number=2)

    assert demo.load_demo(user, now=NOW) == 4
    assert Turn.objects.for_user(user).count() == 76


@pytest.mark.slow
def test_questions_in_other_words_find_the_right_turn_among_the_first_three(real_embedder):
    user, _ = demo.ensure_person()
    demo.load_demo(user, now=NOW)
    embed_all(report=lambda line: None)

    missed = {}
    for question, requested in QUESTIONS.items():
        found = [match.snippet for match in search_chat_history(user=user, query=question, limit=3).matches]
        if not any(snippet.startswith(requested) for snippet in found):
            missed[question] = found

    assert not missed
