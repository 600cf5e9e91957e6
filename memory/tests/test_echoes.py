"""Questions that were asked before: they stand below what answers them."""

import pytest

from intake.models import Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.search import SearchMode, search_chat_history
from memory.search.echoes import is_question, repeats
from memory.search.history import HistoryRequest, search_history

pytestmark = pytest.mark.django_db

QUESTION = "Which worktop did we choose?"
FACT = "We take the oak worktop from the sawmill, 40 mm thick."


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (QUESTION, QUESTION),
        ("which worktop did we choose", "Which worktop did we choose, again?"),
        ("worktop", "Which worktop did we choose?"),
        (QUESTION, "tell me which worktop we choose"),
        ("what did I say", "What did I say?"),
        ("Wohin wollte ich im Frühling reisen?", "Wohin wollte ich im Fruhling reisen?"),
        ("¿Cuánto dejamos de señal por la casa?", "Cuanto dejamos de señal por la casa"),
        ("我的锁柜号码是多少", "我的锁柜号码是多少\uff1f"),
    ],
)
def test_a_message_that_only_asks_what_the_query_asks_repeats_it(query, message):
    assert repeats(query, message)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (QUESTION, "We chose the worktop."),
        ("meeting moved", "Should I tell Anna that the meeting is moved to Thursday at five in the large room?"),
        (QUESTION, "Which curtains did we choose?"),
        ("", QUESTION),
        (QUESTION, ""),
        (QUESTION, "Which worktop did we choose? " * 20),
    ],
)
def test_a_message_that_tells_something_repeats_nothing(query, message):
    assert not repeats(query, message)


def test_a_question_is_told_by_its_sign_or_its_first_word():
    assert is_question("The worktop?")
    assert is_question("remind me of the worktop")
    assert is_question("ما هو الرقم؟")
    assert not is_question("The worktop is oak.")
    assert not is_question("")


def first(user, query=QUESTION):
    hybrid = search_chat_history(user=user, query=query, limit=5, mode=SearchMode.HYBRID, now=NOW)
    history = search_history(HistoryRequest(query=query), user=user, now=NOW)
    messages = [result.reference for result in history.results if result.reference.turn_number]
    return [hybrid.matches[0].key[0], messages[0].conversation_id]


@pytest.fixture
def alice(settings):
    """With the real model, where the suite's fake would find no answer in other words."""
    options = {"cache_dir": settings.MODEL_CACHE_DIR}
    settings.EMBEDDER = {"BACKEND": "memory.backends.minilm.MiniLMEmbedder", "OPTIONS": options}
    alice = a_person("alice@example.com")
    for other in ("The curtains are 236 wide.", "The plumber found a stuck valve.", "We paint the hall in spring."):
        a_turn(alice, other, "Noted.")
    return alice


@pytest.mark.parametrize(
    "answer", ["", "I do not know which worktop you chose.", "I found nothing about a worktop. Tell me more of it?"]
)
@pytest.mark.parametrize("times", [1, 5])
def test_a_question_that_nobody_answered_is_below_what_answers_it(alice, answer, times):
    fact = a_turn(alice, FACT, "Oil it twice before the sink is cut out.")
    for _ in range(times):
        a_turn(alice, QUESTION, answer)
    index.embed_pending()
    assert first(alice) == [fact.conversation_id] * 2


def test_an_answer_for_which_the_memory_was_searched_is_below_what_it_found(alice):
    fact = a_turn(alice, FACT, "Oil it twice before the sink is cut out.")
    asked = a_turn(alice, "The worktop, once more?", "You take the oak worktop from the sawmill, 40 mm thick.")
    Turn.objects.filter(pk=asked.pk).update(tool_calls=[{"name": "mcp__recollect__search_history", "input": {}}])
    index.embed_pending()
    assert first(alice, "the oak worktop from the sawmill") == [fact.conversation_id] * 2


def test_an_answered_question_is_found_if_nothing_else_answers_it(alice):
    asked = a_turn(alice, "Which oil is good for an oak worktop?", "Hard wax oil, twice, with a day between the coats.")
    index.embed_pending()
    assert first(alice, "which oil is good for an oak worktop") == [asked.conversation_id] * 2


def test_of_an_answered_question_the_answer_is_shown(alice):
    a_turn(alice, QUESTION, "Your worktop is the one of oak.")
    index.embed_pending()
    history = search_history(HistoryRequest(query=QUESTION), user=alice, now=NOW)
    shown = next(result for result in history.results if result.reference.turn_number)
    assert shown.excerpt.text == "Assistant: Your worktop is the one of oak."


def test_a_question_with_the_query_word_for_word_is_no_exact_match(alice):
    fact = a_turn(alice, "The shed opens with 7391.", "Noted.")
    for _ in range(2):
        a_turn(alice, "What is 7391 for?", "That I do not know.")
    index.embed_pending()
    assert first(alice, "what is 7391 for?") == [fact.conversation_id] * 2
