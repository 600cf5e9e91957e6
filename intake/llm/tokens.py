"""Counts the tokens of a text without its model's tokenizer."""

import re
from math import ceil
from typing import TYPE_CHECKING

from core.text import cut_point

# Loading it takes a second of a processor, and `manage.py mcp`, for which an agent waits, only counts tokens here.
if TYPE_CHECKING:
    pass


# Each kind of character weighs at least what six tokenizers make of it (docs/decisions/0050): GPT-4o's, GPT-4's, those
# of two generations of Llama, Mistral's and the built-in embedding model's. English comes out a third above the newest.
# Once a server has counted, its figures correct this (`chat.agent.prompt.ratio_of`).

_UPPER = bytes(range(65, 91))
_LETTERS = _UPPER + bytes(range(97, 123))
_DIGITS = bytes(range(48, 58))
_SIGNS = bytes(each for each in range(33, 127) if each not in _LETTERS + _DIGITS)
_CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\r") + b"\x7f"
_CONSONANTS = bytes(each for each in _LETTERS if each not in b"aeiouyAEIOUY")
_AS_WORDS = bytes(97 if each in _LETTERS else 32 for each in range(256))
_AS_CONSONANTS = bytes(99 if each in _CONSONANTS else 32 for each in range(256))
_BETWEEN_CONSONANTS = re.compile(rb"c(?=cc)")
_GAPS = re.compile(rb" {2,}|[\t\r]+")
_ASCII = re.compile(r"[\x00-\x7f]+")
# Latin letters with marks and Western punctuation, Cyrillic, scripts of which a letter is about a token, Chinese,
# Japanese and Korean, and what is beyond 16 bits; anything else is in between.
_SCRIPTS = (
    (re.compile("[\u0080-\u036f\u1e00-\u1eff\u2010-\u2027\u20ac]+"), 3.0),
    (re.compile("[\u0400-\u052f]+"), 0.6),
    (re.compile("[\u0370-\u03ff\u0530-\u06ff\u0900-\u0eff\u3040-\u30ff]+"), 1.5),
    (re.compile("[\u1100-\u11ff\u3000-\u303f\u31f0-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+"), 1.6),
    (re.compile("[\U00010000-\U0010ffff]+"), 4.0),
)
CUT_MARK = "\n[… {count:,} characters are left out here …]\n"
# What a template adds around each message, and around each tool.
TOKENS_OF_A_MESSAGE = 8


def tokens_of(text: str) -> int:
    """More than its model will count, as a rule. It takes a tenth of a second for a million characters."""
    ascii_ = text.encode("ascii", "ignore")
    total = (
        0.3 * len(ascii_.translate(_AS_WORDS).split())
        + 0.19 * _count(ascii_, _LETTERS)
        + 0.2 * _count(ascii_, _UPPER)
        + 1.5 * len(_BETWEEN_CONSONANTS.findall(ascii_.translate(_AS_CONSONANTS)))
        + 1.35 * _count(ascii_, _DIGITS)
        + 1.0 * _count(ascii_, _SIGNS)
        + 1.9 * len(_GAPS.findall(ascii_))
        + 1.15 * ascii_.count(b"\n")
        + 1.0 * _count(ascii_, _CONTROLS)
    )
    if len(ascii_) < len(text):
        others = _ASCII.sub("", text)
        for script, weight in _SCRIPTS:
            left = script.sub("", others)
            total += weight * (len(others) - len(left))
            others = left
        total += 2.2 * len(others)
    return ceil(total)


def _count(text: bytes, characters: bytes) -> int:
    return len(text) - len(text.translate(None, characters))


def cut_middle(text: str, tokens: int) -> str:
    """The text, or its beginning and its end in at most so many tokens, with a mark that says what is missing."""
    counted = tokens_of(text)
    if counted <= tokens:
        return text
    kept = len(text) * tokens // max(1, counted)
    while kept > 0:
        first = cut_point(text, kept * 3 // 5)
        last = len(text) - (kept - kept * 3 // 5)
        pieces = f"{text[:first]}{CUT_MARK.format(count=last - first)}{text[last:]}"
        if tokens_of(pieces) <= tokens:
            return pieces
        kept = kept * 9 // 10 - 1
    return ""
