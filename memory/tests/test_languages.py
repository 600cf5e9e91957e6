"""Each text is stemmed by its own language, and a query by those that the person's texts have."""

import pytest

from core.isolation.acting import acting_as
from intake.tests.factories import a_person, a_turn
from memory.index import scoring
from memory.index.terms import configuration_of, configurations
from memory.models import Corpus, IndexedText
from memory.models.documents import Scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def score(user, query):
    with acting_as(user):
        return scoring.score(Scope(user, (Corpus.CHAT,)), query=query, limit=10)


def found(user, query):
    return score(user, query).hits


def ideal(user, query):
    return score(user, query).ideal


@pytest.mark.parametrize(
    ("text", "configuration"),
    [
        ("Wir haben die Handschuhe in dem roten Karton gefunden", "german"),
        ("Los guantes están en la caja que compramos para el viaje", "spanish"),
        ("Nous avons acheté des gants pour le voyage", "french"),
        ("Abbiamo comprato i guanti per il viaggio di domani", "italian"),
        ("Comprei as luvas para uma viagem com o meu irmão", "portuguese"),
        ("Wij hebben de handschoenen voor het feest gekocht", "dutch"),
        ("Мы купили новые окна для дома, order 4711", "russian"),
        ("Αγοράσαμε όλα όσα θέλαμε", "greek"),
        ("اشترينا قفازات للرحلة", "arabic"),
        ("The gloves are in the box, said die Kessler", "english"),
        ("She says “wie bitte” a lot, and it is the only German that she has", "english"),
        ("4711 LMP-20931-B", "english"),
        ("竹林がきれいだった", "english"),
        ("", "english"),
    ],
)
def test_a_text_is_of_the_language_that_its_script_or_its_function_words_say(text, configuration):
    assert configuration_of(text, "") == configuration
    assert configuration in configurations()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Die Häuser in der Straße wurden nach dem Krieg gebaut", "Haus"),
        ("Los niños cantaban canciones en la plaza", "cantando una canción"),
        ("Мы купили новые окна для дома", "окно"),
        ("اشترينا الكتب الجديدة", "كتب"),
    ],
)
def test_another_form_of_a_word_finds_a_text_in_its_own_language(alice, text, query):
    a_turn(alice, "We bought a new lamp for the desk", "")
    a_turn(alice, text, "")
    (hit,) = found(alice, query)
    assert hit.lexical > 0


def test_a_word_finds_a_text_whose_language_was_misjudged_as_it_stands(alice):
    a_turn(alice, "Handschuhe vergessen", "")
    assert IndexedText.objects.get().configuration == "english"
    a_turn(alice, "Wir haben die Fäustlinge in dem Karton gefunden", "")
    assert len(found(alice, "Wo sind die Handschuhe?")) == 1


def test_a_query_promises_no_more_because_texts_in_another_language_are_there(alice):
    bob = a_person("bob@example.com")
    for person, other in ((alice, "The kettle sings"), (bob, "Wir haben die Handschuhe in dem Karton")):
        a_turn(person, "We bought a new lamp for the desk", "")
        a_turn(person, other, "")
    query = "what did we say about the lamp for the desk"
    assert ideal(bob, query) == pytest.approx(ideal(alice, query))


def test_function_words_of_the_query_are_looked_for_in_no_other_language(alice):
    a_turn(alice, "Wir haben in dem Kino The Hours gesehen, und es war schön", "")
    assert not found(alice, "where was the kettle")
    a_turn(alice, "The war was long", "")
    assert not found(alice, "Wo war die Katze, und wie war es in dem Haus?")[1:]


def test_somebody_elses_languages_are_not_asked(alice):
    a_turn(a_person("bob@example.com"), "Wir haben die Häuser in dem Dorf gesehen", "")
    a_turn(alice, "The Haus is a club", "")
    a_turn(alice, "Häuser", "")
    assert len(found(alice, "Haus")) == 1


def test_one_configuration_can_be_for_all_texts(settings, alice):
    settings.TEXT_SEARCH_CONFIG = "german"
    a_turn(alice, "The gloves are in the box", "")
    assert IndexedText.objects.get().configuration == "german"
    assert configurations() == ["german"]
