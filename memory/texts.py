"""Checks what a person or their agent writes down for keeps, before anything is stored: whole or not at all."""

from core.errors import InvalidInput


def checked(text: str, *, field: str, max_length: int, may_be_blank: bool = False) -> str:
    """The text as it came. Raises `InvalidInput` that names the field and never quotes the text."""
    complaint = _complaint(text, max_length=max_length, may_be_blank=may_be_blank)
    if complaint:
        raise InvalidInput(errors={field: [complaint]})
    return text


def _complaint(text: str, *, max_length: int, may_be_blank: bool) -> str:
    if not may_be_blank and not text.strip():
        return "Write something."
    if len(text) > max_length:
        return f"At most {max_length:,} characters; this has {len(text):,}."
    if "\0" in text:
        return "A text cannot have a NUL character (U+0000)."
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "A text cannot have half of a surrogate pair (U+D800 to U+DFFF)."
    return ""
