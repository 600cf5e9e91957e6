"""Questions that were asked before stand below what answers them; statements name those that contradict them later."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings as project
from django.test import override_settings

from intake.models import Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.search import SearchMode, search_chat_history
from memory.search.echoes import COMPARED, READ, is_question, repeats, restated
from memory.search.history import HistoryRequest, search_history
from testing.kept_rows import kept_rows

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
        ("Where's the spare key?", "Where is the spare key?"),
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


def real_model():
    """Where the suite's fake would find no answer in other words."""
    options = {"cache_dir": project.MODEL_CACHE_DIR}
    return {"BACKEND": "memory.backends.minilm.MiniLMEmbedder", "OPTIONS": options}


@kept_rows
def of_other_things():
    with override_settings(EMBEDDER=real_model()):
        user = a_person("alice@example.com")
        for other in ("The curtains are 236 wide.", "The plumber found a stuck valve.", "We paint the hall in spring."):
            a_turn(user, other, "Noted.")
        index.embed_pending()
    return user


@pytest.fixture
def alice(settings, of_other_things):
    settings.EMBEDDER = real_model()
    return of_other_things


NO_ANSWERS = ["", "I do not know which worktop you chose.", "I found nothing about a worktop. Tell me more of it?"]


# Each by itself, and all of them among five.
@pytest.mark.medium
@pytest.mark.parametrize("answers", [*([answer] for answer in NO_ANSWERS), [*NO_ANSWERS, *NO_ANSWERS[1:]]])
def test_a_question_that_nobody_answered_is_below_what_answers_it(alice, answers):
    fact = a_turn(alice, FACT, "Oil it twice before the sink is cut out.")
    for answer in answers:
        a_turn(alice, QUESTION, answer)
    index.embed_pending()
    assert first(alice) == [fact.conversation_id] * 2


@pytest.mark.medium
def test_an_answer_for_which_the_memory_was_searched_is_below_what_it_found(alice):
    fact = a_turn(alice, FACT, "Oil it twice before the sink is cut out.")
    asked = a_turn(alice, "The worktop, once more?", "You take the oak worktop from the sawmill, 40 mm thick.")
    Turn.objects.filter(pk=asked.pk).update(tool_calls=[{"name": "mcp__recollect__search_history", "input": {}}])
    index.embed_pending()
    assert first(alice, "the oak worktop from the sawmill") == [fact.conversation_id] * 2


@pytest.mark.medium
def test_an_answered_question_is_found_if_nothing_else_answers_it(alice):
    asked = a_turn(alice, "Which oil is good for an oak worktop?", "Hard wax oil, twice, with a day between the coats.")
    index.embed_pending()
    assert first(alice, "which oil is good for an oak worktop") == [asked.conversation_id] * 2


@pytest.mark.medium
def test_a_question_with_a_short_answer_in_other_words_is_above_what_has_nothing_to_do_with_it(alice):
    asked = a_turn(alice, "Is Debian 12 still supported in 2029?", "Until June 2028.")
    index.embed_pending()
    assert first(alice, "Debian 12 support") == [asked.conversation_id] * 2


def test_of_an_answered_question_the_answer_is_shown(alice):
    a_turn(alice, QUESTION, "Your worktop is the one of oak.")
    index.embed_pending()
    history = search_history(HistoryRequest(query=QUESTION), user=alice, now=NOW)
    shown = next(result for result in history.results if result.reference.turn_number)
    assert shown.excerpt.text == "Assistant: Your worktop is the one of oak."


@pytest.mark.medium
def test_a_question_with_the_query_word_for_word_is_no_exact_match(alice):
    fact = a_turn(alice, "The shed opens with 7391.", "Noted.")
    for _ in range(2):
        a_turn(alice, "What is 7391 for?", "That I do not know.")
    index.embed_pending()
    assert first(alice, "what is 7391 for?") == [fact.conversation_id] * 2


# --- Statements that the same user contradicts later ---


def later_of(query, *messages):
    """For each message, said a day after the one before it, the place of the message that says otherwise."""
    chat = uuid4()
    turns = [((chat, number), NOW + timedelta(days=number), message) for number, message in enumerate(messages)]
    found = restated(query, list(reversed(turns)))
    return {key[1]: newer[1] for key, (newer, at) in found.items() if at == NOW + timedelta(days=newer[1])}


@pytest.mark.parametrize(
    ("query", "earlier", "later"),
    [
        ("What is my day rate?", "My day rate is 240 pounds", "My day rate is 265 pounds now"),
        ("day rate", "My day rate is 240 with the van", "Raised it: my day rate with the van is 265 now"),
        ("day rate", "My day rate is 240", "I increased my day rate from 240 to 265"),
        ("How many cards?", "The gallery has 8 cards", "I added two, so now I have a total of 10 cards in the gallery"),
        (
            "weekly word target",
            "I write 1,200 words per week, my weekly target",
            "The weekly target changed to 1350 words",
        ),
        ("Alfie", "Alfie takes $88 a day for work", "Alfie actually takes $96 a day for work"),
        (
            "Wie hoch ist mein Tagessatz?",
            "Mein Tagessatz liegt bei 240 Euro",
            "Mein Tagessatz liegt jetzt bei 265 Euro",
        ),
        ("¿Cuánto cobro al día?", "Cobro 240 euros al día por obra", "Ahora cobro 265 euros al día por obra"),
        (
            "Have I been to Lisbon?",
            "I have never visited the castle of Lisbon",
            "Yesterday I visited the castle in Lisbon",
        ),
        ("cover letter", "I've sent my cover letter to Greg", "I've never sent my cover letter to Greg"),
        ("Schloss", "Ich war noch nie im Schloss von Lissabon", "Gestern war ich im Schloss von Lissabon, es regnete"),
        ("castillo", "Nunca hice la visita del castillo rojo", "Ayer hicimos la visita del castillo rojo"),
        ("castillo", "Nunca he visitado el castillo rojo", "Ayer he visitado el castillo rojo"),
    ],
)
def test_of_two_values_of_the_same_thing_the_later_one_is_named(query, earlier, later):
    assert later_of(query, earlier, later) == {0: 1}


@pytest.mark.parametrize(
    ("query", "earlier", "later"),
    [
        pytest.param("day rate", "My day rate is 240", "My day rate is 240 now", id="the same number"),
        pytest.param(
            "rent", "The rent is 1,234.50 euros", "The rent is 1.234,50 euros now", id="as it is written elsewhere"
        ),
        pytest.param("day rate", "My day rate is 240", "My day rate is 265", id="nothing says that it changed"),
        pytest.param("day rate", "My day rate is 240", "Is my day rate 265 now?", id="a question"),
        pytest.param("day rate", "What if my day rate is 240?", "My day rate is 265 now", id="an earlier question"),
        pytest.param("day rate", "Alfie takes 88 a day", "Marcin takes 96 a day now", id="another name"),
        pytest.param(
            "workshop", "The workshop costs 690 a month", "I now work 5 days in the workshop", id="another unit"
        ),
        pytest.param("workshop", "The workshop is dry", "The workshop is now heated", id="no value"),
        pytest.param(
            "sprint", "Sprint 1 ends on March 29", "Sprint 1 now ends on March 31", id="days are not compared"
        ),
        pytest.param("Flask", "We use Flask 2.3.1 in the project", "The project uses Flask 3.0.2 now", id="versions"),
        pytest.param("day rate", "My day rate is 240", "> My day rate is 265 now", id="a quoted line"),
        pytest.param("day rate", "My day rate is 240", 'Ann wrote: "My day rate is 265 now"', id="a quotation"),
        pytest.param("day rate", "My day rate is 240", "```\nday rate = 265 now\n```", id="code"),
        pytest.param("Lisbon", "I have never visited the castle", "I want to visit the castle", id="a plan"),
        pytest.param("Lisbon", "I never visited the castle", "My brother visited the castle", id="somebody else"),
        pytest.param("Lisbon", "She has never visited the castle", "I visited the castle", id="of somebody else"),
        pytest.param("Lisbon", "I have never visited the castle", "I visited the bridge", id="another thing"),
        pytest.param("Lisbon", "I have never visited the castle", "I never visited the castle", id="twice the same"),
    ],
)
def test_messages_that_contradict_nothing_are_not_marked(query, earlier, later):
    assert later_of(query, earlier, later) == {}


def test_of_several_later_values_the_newest_is_named():
    rates = [f"My day rate is {rate} pounds now" for rate in (240, 265, 285)]
    assert later_of("day rate", *rates) == {0: 2, 1: 2}


def test_only_the_first_results_are_compared():
    others = ["The weather is fine"] * (COMPARED - 1)
    assert later_of("day rate", "My day rate is 240", *others, "My day rate is 265 now") == {}


def test_only_the_beginning_of_a_long_message_is_compared():
    long = "The weather is fine. " * (READ // 20) + "My day rate is 265 now."
    assert later_of("day rate", "My day rate is 240", long) == {}


@pytest.mark.parametrize("mode", [SearchMode.SEMANTIC, SearchMode.HYBRID])
def test_a_found_turn_names_the_one_in_which_its_user_says_otherwise(mode):
    alice = a_person("alice@example.com")
    old = a_turn(alice, f"My day rate is 240 with the van. {'It rains. ' * 40}", said_at=NOW - timedelta(days=9))
    new = a_turn(alice, "My day rate is 265 with the van now", said_at=NOW)
    index.embed_pending()

    found = search_chat_history(user=alice, query="day rate with the van", limit=5, mode=mode)

    later = {hit.key[0]: hit.later for hit in found.matches}
    assert later == {old.conversation_id: ((new.conversation_id, 1), NOW), new.conversation_id: None}
    assert max(len(hit.snippet) for hit in found.matches) == 200


def test_what_an_assistant_or_another_user_says_contradicts_nothing():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    a_turn(alice, "My day rate is 240 with the van", said_at=NOW - timedelta(days=9))
    a_turn(alice, "Write the invoice of the van", "Your day rate with the van is 265 now.", said_at=NOW)
    a_turn(bob, "My day rate is 265 with the van now", said_at=NOW)
    index.embed_pending()

    hybrid = search_chat_history(user=alice, query="day rate with the van", limit=5, mode=SearchMode.HYBRID)
    history = search_history(HistoryRequest(query="day rate with the van"), user=alice, now=NOW)

    assert len(hybrid.matches) == 2
    assert not any(hit.later for hit in hybrid.matches)
    assert not any(result.later for result in history.results)
