"""Texts that the tools share: the note for visitors, and links in summaries."""

from collections.abc import Sequence

from django.utils.text import Truncator

from core.errors import AuthenticationRequired
from intake.models import User

NO_CALLER = "user identity required"
NOBODY = "Nothing to search yet: register or log in to have a memory"
LINKS = 3
LINK_LENGTH = 48


def known(user: User | None) -> User:
    if user is None:
        raise AuthenticationRequired(NO_CALLER)
    return user


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def link(title: str, path: str) -> str:
    """With a short title, without characters that would end the link in Markdown."""
    plain = title.translate(str.maketrans("[]\\`", "()/'")) or "Conversation"
    return f"[{Truncator(plain).chars(LINK_LENGTH)}]({path})"


def first_of(places: Sequence[str]) -> str:
    more = f" and {len(places) - LINKS} more" if len(places) > LINKS else ""
    return f"{', '.join(places[:LINKS])}{more}"
