"""The words of time in the languages that people write, without their accents, for `time_windows`."""

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
# For each language the names of its months, and what stands before a month alone: "may" and "march" are also verbs,
# "on mars" is no month, and April is a first name.
MONTH_NAMES = (
    (
        "january february march april may june july august september october november december",
        r"in|of|during|since|until|till|from|between|early|mid|late|last|this|next|the month of"
        r"|(?:and|to|by)(?! (?:may|march) \w)",
    ),
    (
        "januar februar marz april mai juni juli august september oktober november dezember",
        "im|anfang|mitte|ende|seit|bis|und|zwischen|letzten|vergangenen|diesen|nachsten",
    ),
    (
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "en|de|del|desde|hasta|entre|y",
    ),
    (
        "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre",
        "en|au|de|du|et|depuis|fin|entre|debut|mi",
    ),
    (
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "in|a|di|da|dal|nel|tra|fino a|entro",
    ),
    (
        "januari februari maart april mei juni juli augustus september oktober november december",
        "in|van|sinds|tot|begin|half|eind|tussen|vorige|afgelopen",
    ),
    (
        "janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro dezembro",
        "em|de|desde|ate|entre|do",
    ),
    ("jan feb mar apr - jun jul aug sep oct nov dec", "in|since|until|from"),
    ("janner - mrz - - - - - sept okt - dez", "im|seit|bis"),
)
MONTHS = {word: number for names, _ in MONTH_NAMES for number, word in enumerate(names.split(), start=1) if word != "-"}
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
    r"|ai|avons|avait|etait|disait|parle|dit|raconte|ecrit|fait"
    r"|ho|hai|abbiamo|avevo|avevamo|era|detto|parlato|scritto|fatto|successo"
    r"|heb|hebben|hadden|waren|zei|zeiden|besproken|gepraat|geschreven|gezegd|gebeurd"
    r"|disse|dissemos|falamos|falei|conversamos|escrevi|foi|aconteceu|fizemos|fiz)\b"
    "|[了过過]|ました|だった|った|했|었|았"
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
che cosa di ho hai abbiamo detto parlato scritto fatto successo il lo
wat waarover heb hebben we wij ik je over gepraat gesproken gezegd geschreven gedaan gebeurd er
que o sobre falamos disse dissemos falei conversamos escrevi fizemos fiz aconteceu
에 에는 의 우리 우리가 나 나는 내가 무슨 무엇을 뭐 뭘 무슨말 말 말을 이야기 이야기를 얘기 얘기를 했지
했어 했나 했나요 했습니까 말했지
我 们 們 你 您 跟 和 聊 了 什 么 麼 说 說 过 過 谈 談 的 呢 吗 嗎 都 在 那 天 讲 講 哪 些 事 情 有 做
私 僕 達 何 話 言 し い ま た か の に は を で と っ て 書
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
# Of other languages the first day alone has a word.
ORDINAL_DAYS = {word: number for number, word in enumerate(_ORDINAL_DAYS.split(), start=1)} | dict.fromkeys(
    ("ersten", "premier", "primero", "primo", "eerste", "primeiro"), 1
)
