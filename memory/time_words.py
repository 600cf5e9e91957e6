"""The words of time in English, German, Spanish and French, without their accents, for `time_windows`."""

import re
from collections.abc import Iterable
from typing import TypeVar

Value = TypeVar("Value")


def _by_word(rows: Iterable[tuple[Value, str]]) -> dict[str, Value]:
    """The value of each word, from rows of a value and its words."""
    return {word: value for value, words in rows for word in words.split()}


NUMBERS = _by_word(
    enumerate(
        (
            "a an one ein einem einer eine un una uno une",
            "two zwei dos deux couple",
            "three drei tres trois",
            "four vier cuatro quatre",
            "five funf cinco cinq",
            "six sechs seis",
            "seven sieben siete sept",
            "eight acht ocho huit",
            "nine neun nueve neuf",
            "ten zehn diez dix",
            "eleven elf once onze",
            "twelve zwolf doce douze",
        ),
        start=1,
    )
)
MONTHS = _by_word(
    enumerate(
        (
            "january jan januar janner enero janvier",
            "february feb februar febrero fevrier",
            "march mar marz marzo mars",
            "april apr abril avril",
            "may mai mayo",
            "june jun juni junio juin",
            "july jul juli julio juillet",
            "august aug agosto aout",
            "september sep sept septiembre septembre",
            "october oct oktober octubre octobre",
            "november nov noviembre novembre",
            "december dec dezember diciembre decembre",
        ),
        start=1,
    )
)
WEEKDAYS = _by_word(
    enumerate(
        (
            "monday montag lunes lundi",
            "tuesday dienstag martes mardi",
            "wednesday mittwoch miercoles mercredi",
            "thursday donnerstag jueves jeudi",
            "friday freitag viernes vendredi",
            "saturday samstag sonnabend sabado samedi",
            "sunday sonntag domingo dimanche",
        )
    )
)
SEASONS = _by_word(
    (
        (3, "spring fruhling fruhjahr primavera printemps"),
        (6, "summer sommer verano ete"),
        (9, "autumn fall herbst otono automne"),
        (12, "winter invierno hiver"),
    )
)
FEASTS = _by_word(
    (
        ("christmas", "christmas xmas weihnachten navidad noel"),
        ("easter", "easter ostern pascua paques"),
        ("new year", "new-year silvester neujahr nochevieja nouvel-an"),
    )
)
UNITS = _by_word(
    (
        ("day", "day days tag tage tagen dia dias jour jours"),
        ("week", "week weeks woche wochen semana semanas semaine semaines"),
        ("month", "month months monat monate monaten mes meses mois"),
        ("year", "year years jahr jahre jahren ano anos an ans annee"),
        ("weekend", "weekend weekends wochenende finde week-end"),
    )
)
# Words that put a day or a month without a year into the past.
PAST = re.compile(
    r"\b(did|was|were|had|happened|went|said|told|talked|wrote|discussed|asked|mentioned|spoke|chatted"
    r"|hab|habe|haben|hatte|hatten|war|waren|sagte|sprachen|besprochen|erzahlt|geschrieben|gesagt|passiert"
    r"|dije|dijimos|hablamos|hable|conte|escribi|fue|era|paso|hicimos|hice|estuve"
    r"|ai|avons|avait|etait|disait|parle|dit|raconte|ecrit|fait)\b"
)
# With one of these, the time may be that of a plan: "where did I want to go in spring?"
INTENT = re.compile(
    r"\b(want|wanted|intend|intended|hope|hoped|book|booked|going to|supposed to|ha[dv]e? \w+ planned"
    r"|wollte|wollten|vorhatte|gebucht|queria|quiero|reserve|voulais|veux|prevu)\b"
)
# If a question has no other words, it asks only about the time.
_FILLER = """
what did do was were is are had have has we you i me my us our it there that the a an of on in at to about with and
tell told say said talk talked talking write wrote written discuss discussed chat chatted speak spoke spoken happen
happened busy mention mentioned conversation conversations ask asked everything anything show list find please
wir ich du dir mir uns was woruber hab habe haben hast hatte hatten war waren es das die der den uber von mit und
gesagt sagte erzahlt gesprochen geredet geschrieben besprochen passiert alles
que hicimos hice dije dijimos hablamos hable conte escribi paso de sobre yo te nos el la lo los las todo
qu quoi que ce est j ai avons avez parle dit raconte ecrit fait passe nous je tu vous le les tout
"""
FILLER = frozenset(_FILLER.split())

ORDINAL_WEEKS = (
    ("first", "1st", "ersten", "erste", "primera", "premiere"),
    ("second", "2nd", "zweiten", "zweite", "segunda", "deuxieme"),
    ("third", "3rd", "dritten", "dritte", "tercera", "troisieme"),
    ("fourth", "4th", "vierten", "vierte", "cuarta", "quatrieme"),
)
_ORDINAL_DAYS = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth
"""
ORDINAL_DAYS = {word: number for number, word in enumerate(_ORDINAL_DAYS.split(), start=1)}
