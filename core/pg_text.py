"""Cleans text and JSON from outside so that PostgreSQL can store them, and cuts text between signs.

A sign is what a reader sees as one (a grapheme cluster, https://unicode.org/reports/tr29/): a letter with its accents,
a flag, a family.
"""

import math
import re
import unicodedata
from typing import Any

_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")


def storable_text(text: str) -> str:
    """Remove NUL characters, and replace halves of surrogate pairs, which have no UTF-8, with U+FFFD."""
    return _UNSTORABLE.sub(lambda found: "" if found[0] == "\0" else "\ufffd", text)


def storable(value: Any) -> Any:
    """Make every text of a JSON value storable; a number that JSON does not have becomes its name."""
    match value:
        case str():
            return storable_text(value)
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {storable_text(str(name)): storable(each) for name, each in value.items()}
        case list():
            return [storable(each) for each in value]
        case _:
            return value


ELLIPSIS = "…"
# How far a cut moves back to fall between two words. Scripts without spaces have none there.
WORD_LEEWAY = 30
# The longest sign that is kept whole: a family has a dozen code points, and a text may have thousands of accents.
LONGEST_SIGN = 32
_ZERO_WIDTH_JOINER = "\u200d"
_VIRAMA = 9
# Thai and Lao vowels that follow their letter and are no marks.
_SPACING_VOWELS = "\u0e33\u0eb3"


def shortened(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis, `length` code points at most; cut between words if there are any."""
    if len(text) <= length:
        return text
    end = cut_point(text, length - len(ELLIPSIS))
    space = text.rfind(" ", max(0, end - WORD_LEEWAY), end)
    return text[: space if space > 0 else end].rstrip(" ,;:") + ELLIPSIS


def cut(text: str, length: int) -> str:
    """The beginning of a text without an ellipsis, `length` code points at most, and without a half sign at its end."""
    return text[: cut_point(text, length)]


def cut_point(text: str, length: int) -> int:
    """The last place at or before `length` that is not inside a sign."""
    end = min(length, len(text))
    for index in range(end, max(0, end - LONGEST_SIGN), -1):
        if index == len(text) or not is_inside_sign(text, index):
            return index
    return 0 if end < LONGEST_SIGN else end


def is_inside_sign(text: str, index: int) -> bool:
    """Whether a cut before this position would separate an accent from its letter, or split an emoji or a syllable."""
    before, after = text[index - 1], text[index]
    if _ZERO_WIDTH_JOINER in {before, after} or before + after == "\r\n":
        return True
    if unicodedata.category(after) in {"Mn", "Me", "Mc"} or _is_skin_tone(after) or _is_tag(after):
        return not before.isspace()
    if after in _SPACING_VOWELS or (unicodedata.combining(before) == _VIRAMA and unicodedata.category(after) == "Lo"):
        return True
    if _is_jamo(before) and _is_jamo(after):
        return after >= "\u1160"
    return _is_flag_half(after) and _flag_halves_before(text, index) % 2 == 1


def _is_skin_tone(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_tag(character: str) -> bool:
    """Of a flag such as Scotland's."""
    return "\U000e0020" <= character <= "\U000e007f"


def _is_jamo(character: str) -> bool:
    """A letter of a Korean syllable that is written in parts; the first one begins the syllable."""
    return "\u1100" <= character <= "\u11ff"


def _is_flag_half(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_halves_before(text: str, index: int) -> int:
    start = index
    while start and _is_flag_half(text[start - 1]):
        start -= 1
    return index - start


def capped(text: str, at_most: int) -> str:
    """The text, or its beginning with an ellipsis and the number of characters that are left out."""
    return text if len(text) <= at_most else f"{text[:at_most]}… ({len(text) - at_most:,} more characters)"
