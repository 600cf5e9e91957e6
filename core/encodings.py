"""Decodes texts of any encoding: by a mark, by the zeros of UTF-16, as UTF-8, or as the likeliest of the old ones."""

# ruff: noqa: RUF001 - other scripts are the subject
import codecs
import math
import re
import unicodedata

_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# No text has a larger share of signs that mean nothing.
MOST_NONSENSE = 0.02

# The letters that a writing has beyond ASCII, and what each costs; of a writing with two bytes a sign, the first bytes
# of its common signs. What a sign costs is about the logarithm of how many others could stand in its place.
_ACCENTS = "äöüßéèêëàâáãåçñíîïóôõøúùûæœ"
_CENTRAL = "ąćęłńóśźżáčďéěíňřšťúůýžőűöüäôăâîşţ"
_WRITINGS: dict[str, tuple[str | range, float]] = {
    "cp1252": (_ACCENTS, 3.0),
    "cp1250": (_CENTRAL, 3.3),
    "iso8859-2": (_CENTRAL, 3.4),
    "cp1254": ("çğıöşüâîi̇", 3.2),
    "mac_roman": (_ACCENTS, 3.8),
    "cp1251": ("абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґў", 3.3),
    "koi8-r": ("абвгдежзийклмнопрстуфхцчшщъыьэюя", 3.5),
    "cp1253": ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ", 3.3),
    "cp1255": ("אבגדהוזחטיךכלםמןנסעףפץצקרשת", 3.3),
    "cp1256": ("ابتثجحخدذرزسشصضطظعغفقكلمنهويةىءأإآؤئ", 3.4),
    "cp874": ("กขคฆงจฉชซญฎฐณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮะัาำิีึืุูเแโใไ็่้๊๋์ๆ", 4.3),
    "gb18030": (range(0xB0, 0xD8), 8.0),
    "cp949": (range(0xB0, 0xC9), 7.8),
    "big5": (range(0xA4, 0xC7), 8.6),
    "cp932": (range(0x88, 0x98), 8.7),
    "euc_jp": (range(0xB0, 0xD0), 8.7),
}
_KANA = re.compile("[ぁ-ヶー]")
_WIDE_SIGNS = re.compile("[\u3000-\u3002\uff01-\uff1f]")
_QUOTES = "€“”‘’„–—…«»°§"


def decoded(data: bytes) -> tuple[str, str]:
    """The text with plain line ends, and its encoding if that was guessed, or an empty text."""
    encoding = next((encoding for mark, encoding in _MARKS.items() if data.startswith(mark)), "")
    guessed = ""
    if not encoding and b"\0" in (beginning := data[:8_192]):
        choices = [(share_of_nonsense(beginning.decode(each, "replace")), each) for each in ("utf-16-le", "utf-16-be")]
        encoding = min(choices)[1] if min(choices)[0] <= MOST_NONSENSE else ""
    text = data.decode(encoding or "utf-8", errors="replace")
    # Those that the text has in UTF-8 are signs of its own.
    bad = 0 if encoding else text.count("\ufffd") - data.count("\ufffd".encode())
    # A text in UTF-8 with some damage stays one.
    if bad and sum(sign > "\x7f" for sign in text) < 2 * bad + 1:
        guessed = _likeliest(data)
        text = data.decode(guessed, errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n"), guessed


def share_of_nonsense(text: str) -> float:
    """How many of its signs no text has: controls, halves, what Unicode does not define."""
    bad = sum(sign not in "\t\n\f\r\x1b" and unicodedata.category(sign) in ("Cc", "Cn", "Co", "Cs") for sign in text)
    return (bad + text.count("\ufffd")) / max(1, len(text))


def _likeliest(data: bytes) -> str:
    """The encoding in which the lines beyond ASCII cost least."""
    lines: list[bytes] = []
    left = 20_000
    for line in data.splitlines(keepends=True):
        if not line.isascii() and (left := left - len(line)) > 0:
            lines.append(line)
    sample = b"".join(lines) or data[:20_000]
    return min(_WRITINGS, key=lambda encoding: _cost(sample, encoding))


def _cost(sample: bytes, encoding: str) -> float:
    try:
        text = sample.decode(encoding)
    except UnicodeDecodeError:
        return math.inf
    expected, each = _WRITINGS[encoding]
    cost, before = 0.0, " "
    for sign in text:
        if isinstance(expected, range):
            if not sign.isascii():
                cost += _cost_of_wide(sign, encoding, expected, each)
        elif not (sign.isascii() and before.isascii()):
            if not sign.isascii():
                is_quote = sign in _QUOTES and not before.isalpha()
                cost += each + 0.7 * sign.isupper() if sign.lower() in expected else 4 if is_quote else 10
            cost += 4 if before.islower() and sign.isupper() else 0
            if sign.isalpha() and before.isalpha():
                # A word is of one script; and accents seldom stand side by side.
                is_latin = expected[0] < "\u0300"
                cost += 2.5 * (not sign.isascii() and not before.isascii()) if is_latin else 0
                cost += 4 if not is_latin and sign.isascii() != before.isascii() else 0
        before = sign
    return cost


def _cost_of_wide(sign: str, encoding: str, common: range, each: float) -> float:
    if encoding in ("cp932", "euc_jp") and _KANA.match(sign):
        return 5.1
    if _WIDE_SIGNS.match(sign):
        return 6.6
    code = sign.encode(encoding)
    return each if len(code) == 2 and code[0] in common else each + 4 if len(code) == 2 else 8
