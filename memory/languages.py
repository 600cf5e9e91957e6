"""Which language a text is in, as far as its terms are concerned: the text-search configuration that finds them.

A text has one, kept with it; a query is stemmed by each that the person's texts have. So a text whose language was
misjudged is found by its own words all the same, since those of the query went the same way: all that is lost is that
another form of them finds it.

1. A script of its own names the language whose stemmer PostgreSQL has for it.
2. In Latin script the function words decide, for every text of some length has several of them. Those of one language
   must be at least two and more than the English ones; else the text is taken to be in English.
"""

import re
from collections import Counter

from django.conf import settings

# The value of `TEXT_SEARCH_CONFIG` with which each text is looked at.
BY_LANGUAGE = "auto"
ENGLISH = "english"
# So much of a text is looked at, and so many different function words are enough to tell its language.
LOOKED_AT = 2_000
ENOUGH = 2

_BY_SCRIPT = {
    "russian": re.compile(r"[\u0400-\u04ff]"),
    "greek": re.compile(r"[\u0370-\u03ff]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "hindi": re.compile(r"[\u0900-\u097f]"),
}
# The commonest words of each. One that is a word of several counts for all of them.
_FUNCTION_WORDS = {
    ENGLISH: (
        "the of and to is that it was for with you this have not are my we what how i be they from at in on a as by or "
        "an he she but his her were which who when there had has been would will can if so do did does your our"
    ),
    "german": (
        "der die das und ist nicht ich ein eine einen einem einer den dem des mit auf für von zu zum zur im in sich "
        "auch wir sie er es wie bei mein meine meinen nach wurde wurden war waren oder aber haben hat hatte werden "
        "wird noch nur wenn kann als an am um aus so durch über was wer wo wann welche welcher welches mir dir du"
    ),
    "spanish": (
        "el la los las de y en una un por con del al para que está como más pero su sus mi muy fue hay este esta "
        "cuando donde sobre yo qué cómo cuál es se no lo le son era ser ha o entre también desde hasta quién "
        "cuándo dónde"
    ),
    "french": (
        "le la les de des et une un dans est pour qui que pas sur je du au aux avec il elle nous vous mais ce cette "
        "sont mon ma ses été où être c'est en ne se par plus d'une comme ou son sa leur quel quelle"
    ),
    "italian": (
        "il la gli di che è per con una un non sono della del nel alla ho mi anche più come questo questa dei ma ci "
        "perché quando e i le in si da al ha lo dove chi"
    ),
    "portuguese": (
        "o os a as um uma não com do da de em para que é mais por foi são eu na no ao dos das minha meu você isso "
        "também onde quando e se como ou qual"
    ),
    "dutch": (
        "het de een van en in is niet ik dat op te voor met zijn er aan ook maar naar bij wij mijn heb hebben wordt "
        "nog deze dit wat hoe die was als om of waar wie"
    ),
}
_LANGUAGES_OF = {
    word: [name for name, words in _FUNCTION_WORDS.items() if word in words.split()]
    for words in _FUNCTION_WORDS.values()
    for word in words.split()
}
_WORD = re.compile(r"[^\W\d_]+")


def configuration_of(*sides: str) -> str:
    """The configuration for a text, whose sides are one text here."""
    if settings.TEXT_SEARCH_CONFIG != BY_LANGUAGE:
        return str(settings.TEXT_SEARCH_CONFIG)
    text = "\n".join(side[:LOOKED_AT] for side in sides)
    return (None if text.isascii() else _by_script(text)) or _by_function_words(text)


def configurations() -> list[str]:
    """All that a text may have, the one of most texts first."""
    if settings.TEXT_SEARCH_CONFIG != BY_LANGUAGE:
        return [str(settings.TEXT_SEARCH_CONFIG)]
    return [*_FUNCTION_WORDS, *_BY_SCRIPT]


def _by_script(text: str) -> str | None:
    """The one in which most of the letters are."""
    counts = {name: len(letters.findall(text)) for name, letters in _BY_SCRIPT.items()}
    name = max(counts, key=lambda each: counts[each])
    return name if counts[name] * 2 > sum(map(str.isalpha, text)) else None


def _by_function_words(text: str) -> str:
    counts: Counter[str] = Counter()
    for word in set(_WORD.findall(text.lower())):
        counts.update(_LANGUAGES_OF.get(word, ()))
    if not counts:
        return ENGLISH
    name, count = counts.most_common(1)[0]
    return name if count >= ENOUGH and count > counts[ENGLISH] else ENGLISH
