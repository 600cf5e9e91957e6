"""Titles made by the model: after the first answer, for those who want them, and never over a person's own."""

import time

import pytest

from chat.agent.titles import clean_title
from intake.models import Conversation, User
from intake.models.conversations import TitledBy
from testing.model_server import BreakOff, CallTool, Hang, Refuse, Say

pytestmark = pytest.mark.django_db(transaction=True)

QUESTION = "Could you please help me a little with planning a dinner?\nThere are six of us."
FIRST_LINE = QUESTION.split("\n", 1)[0]


@pytest.fixture(autouse=True)
def titles_are_made(settings):
    settings.CHAT_TITLES = True


def title_after(seconds: float = 5.0, *, until: str = "model") -> str:
    """The title, once it is made, or as it is when that took too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and Conversation.objects.get().titled_by != until:
        time.sleep(0.02)
    return Conversation.objects.get().title


def test_the_model_makes_a_title_after_the_first_answer(person, log_in, language_model):
    model = language_model(
        Say(("Gladly.",)),
        Say(
            (
                "“Dinner ",
                "for six”.\n\nEnjoy!",
            )
        ),
        Say(("More.",)),
    )
    client = log_in(person)
    events = client.events(QUESTION)
    assert title_after() == "Dinner for six"
    asked = model.requests[1]["messages"]
    assert "in the language in which the user writes" in str(asked)
    assert QUESTION in asked[-1]["content"]
    assert "Gladly." in asked[-1]["content"]
    # After the second answer nobody is asked again.
    client.events("And wine?", conversation_id=events[0].data["conversationId"])
    time.sleep(0.3)
    assert len(model.requests) == 3


def test_the_answer_does_not_wait_for_the_title(person, log_in, language_model):
    language_model(Say(("Gladly.",)), Hang())
    begun = time.monotonic()
    events = log_in(person).events(QUESTION)
    assert events[-1].name == "done"
    assert time.monotonic() - begun < 4
    assert Conversation.objects.get().title == FIRST_LINE


@pytest.mark.parametrize("step", [Refuse(500), BreakOff(("Din",)), Say(("\n “” \n",)), Say(("<think>Hm",))])
def test_a_model_that_makes_no_title_leaves_the_first_line(person, log_in, language_model, step, logged):
    model = language_model(Say(("Gladly.",)), step, step)
    log_in(person).events(QUESTION)
    deadline = time.monotonic() + 10
    while len(model.requests) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.4)
    assert Conversation.objects.get().title == FIRST_LINE
    assert not logged.about("planning a dinner")


def test_a_chat_that_was_renamed_meanwhile_keeps_its_name(person, log_in, language_model):
    language_model(Say(("Gladly.",)), Say(("Dinner ", "for six"), seconds_apart=0.5))
    client = log_in(person)
    key = client.events(QUESTION)[0].data["conversationId"]
    client.submit(f"/c/{key}/rename/", title="Mine")
    time.sleep(1.5)
    conversation = Conversation.objects.get()
    assert (conversation.title, conversation.titled_by) == ("Mine", TitledBy.PERSON)


@pytest.mark.medium
def test_nobody_is_asked_for_a_title_where_it_is_turned_off(person, log_in, language_model, settings):
    model = language_model(Say(("One.",)), Say(("Two.",)), Say(("Three.",)))
    client = log_in(person)
    page = client.get("/settings/account/").text
    assert "The language model makes a title after the first answer" in page
    client.submit("/settings/account/titles/")
    assert not User.objects.get(pk=person.pk).titles_by_model
    client.events(QUESTION)
    time.sleep(0.5)
    settings.CHAT_TITLES = False
    User.objects.update(titles_by_model=True)
    client.events(QUESTION)
    time.sleep(0.3)
    assert len(model.requests) == 2


def test_recall_mode_makes_none(person, log_in):
    log_in(person).events(QUESTION)
    time.sleep(0.3)
    assert Conversation.objects.get().titled_by == TitledBy.LINE


def test_a_failed_answer_gives_no_title(person, log_in, language_model):
    model = language_model(Refuse(400), Say(("Never",)))
    log_in(person).events(QUESTION)
    time.sleep(0.3)
    assert len(model.requests) == 1


def test_a_title_comes_after_the_tools_have_been_used(person, log_in, language_model):
    language_model(CallTool("save_memory", {"content": "Six people"}), Say(("Noted.",)), Say(("Dinner party",)))
    log_in(person).events(QUESTION)
    assert title_after() == "Dinner party"


def test_a_title_goes_with_the_turn_that_it_was_made_of(person, log_in, language_model):
    language_model(Say(("Gladly.",)), Say(("Dinner for six",)), Say(("More.",)))
    client = log_in(person)
    key = client.events(QUESTION)[0].data["conversationId"]
    assert title_after() == "Dinner for six"
    client.events("And wine?", conversation_id=key)
    client.submit(f"/c/{key}/turns/1/delete/")
    assert Conversation.objects.get().title == "And wine?"


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("# **Dinner for six**", "Dinner for six"),
        ("Title: Dinner for six.", "Dinner for six"),
        ("<think>A dinner?</think>\n\n夕食の計画", "夕食の計画"),
        ("", ""),
        ("x" * 100, "x" * 79 + "…"),
        ("<thinking>A dinner?\nFor six.</thinking>\nDinner for six", "Dinner for six"),
        ("<thought>Six.</thought>Dinner for six", "Dinner for six"),
        ("A template began this.</think>\n\nDinner for six", "Dinner for six"),
        ("[THINK]Six[/THINK]Dinner for six", "Dinner for six"),
        ("<|channel|>analysis<|message|>Six<|end|><|channel|>final<|message|>Dinner for six", "Dinner for six"),
        ("<reasoning>never ended", ""),
        ("Sure! Here is a title: Dinner for six", "Dinner for six"),
        ("Sure! Here is a title:\n\n**Dinner for six**", "Dinner for six"),
        ("Sure, here's a possible title for the chat:\n“Dinner for six”", "Dinner for six"),
        ("Certainly! Dinner for six", "Dinner for six"),
        ("**Suggested title:** Dinner for six", "Dinner for six"),
        ("Chat Title: Dinner for six", "Dinner for six"),
        ("The title of this chat could be: Dinner for six", "Dinner for six"),
        ("Gerne! Hier ist ein Titel: Abendessen zu sechst", "Abendessen zu sechst"),
        ("¡Claro! Aquí tienes un título: Cena para seis", "Cena para seis"),
        ("Bien sûr ! Voici un titre : Dîner pour six", "Dîner pour six"),
        ("<title>Dinner for six</title>", "Dinner for six"),
        # Markdown, also in the middle of it.
        ("**Trip** to *Rome*", "Trip to Rome"),
        ("***Trip to Rome***", "Trip to Rome"),
        ("**A *short* trip**", "A short trip"),
        ("`git rebase` and ``git merge``", "git rebase and git merge"),
        ("__Trip to Rome__", "Trip to Rome"),
        ("_Trip to Rome_", "Trip to Rome"),
        ("~~Trip~~ Journey to Rome", "Trip Journey to Rome"),
        ("## Trip to Rome ##", "Trip to Rome"),
        ("> - Trip to Rome", "Trip to Rome"),
        ("[Trip](https://example.com/a_b) to ![Rome](x.png)", "Trip to Rome"),
        ('Title: "**Trip** to Rome"', "Trip to Rome"),
        ("**Title: Trip to Rome**", "Trip to Rome"),
        ("**Title**: **Trip** to Rome", "Trip to Rome"),
        ("Titel: „Reise nach Rom“", "Reise nach Rom"),
        ("Título: «Viaje a Roma»", "Viaje a Roma"),
        ("「ローマ旅行」", "ローマ旅行"),
        ("“Trip to Rome”.", "Trip to Rome"),
        ('"Trip to Rome', "Trip to Rome"),
        ("Trip to Rome:", "Trip to Rome"),
        # What only looks like it.
        ("Learning C#", "Learning C#"),
        ("C# and F# compared", "C# and F# compared"),
        (".NET in a day", ".NET in a day"),
        ("2*3*4 and 5 * 6 * 7", "2*3*4 and 5 * 6 * 7"),
        ("The __init__ of snake_case_names", "The __init__ of snake_case_names"),
        ("“Emma” and “Persuasion”", "“Emma” and “Persuasion”"),
        ("'90s music", "'90s music"),
        ("#42 on the list", "#42 on the list"),
        ("Moving to the U.S.", "Moving to the U.S."),
        ("Sure footing on ice", "Sure footing on ice"),
        ("Title deeds: what to know", "Title deeds: what to know"),
        ("The Hague: a weekend", "The Hague: a weekend"),
        ("OK Computer, track by track", "OK Computer, track by track"),
        ("Thinking about <think> tags", "Thinking about"),
    ],
)
def test_what_models_put_around_a_title_is_taken_away(written, title):
    assert clean_title(written) == title
