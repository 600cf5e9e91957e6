"""Makes the addresses of conversations and turns, for people and agents."""

from functools import cache
from urllib.parse import quote
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port
from django.urls import get_script_prefix, reverse

from intake.models import Turn

_AN_ID = "CONVERSATION"


def site_of(request: HttpRequest) -> str:
    """The scheme and host of this site, for a link that somebody else opens: in an email, an invitation.

    The name in the Host header is one of ALLOWED_HOSTS, but nothing checks its port. So without SITE_ADDRESS the link
    has a port only if this server itself listens on it; behind a proxy that is never the port of the site.
    """
    if settings.SITE_ADDRESS:
        return str(settings.SITE_ADDRESS)
    name, port = split_domain_port(request.get_host())
    is_own = settings.TRUSTED_PROXIES == 0 and port and port == str(request.META.get("SERVER_PORT"))
    return f"{request.scheme}://{name}:{port}" if is_own else f"{request.scheme}://{name}"


def conversation_path(conversation_id: UUID | str, *, turn_number: int | None = None, words: str = "") -> str:
    """The address of a conversation; with a turn, scrolled to it, and with some of its words, to these.

    The query makes the server include the turn, however old it is; the fragment makes the browser scroll there. A
    browser's own text fragments (`:~:text=`) would scroll to the first turn with the words, and do not work from a
    script.
    """
    path = _path_of_one(get_script_prefix()).replace(_AN_ID, quote(str(conversation_id), safe=""))
    at = f"&at={quote(words, safe='')}" if words else ""
    return path if turn_number is None else f"{path}?turn={turn_number}{at}#turn-{turn_number}"


def undo_path(conversation_id: UUID | str, *, turn_number: int, call_id: str) -> str:
    """The address for undoing a turn's tool call, by POST."""
    return reverse("undo_tool_call", args=[conversation_id, turn_number, call_id])


def branch_path(turn: Turn) -> str:
    """The address for creating a branch from a turn, by POST."""
    return reverse("branch_conversation", args=[turn.conversation_id, turn.turn_number])


# Pages and results contain dozens of these addresses, which differ only in the id.
@cache
def _path_of_one(script_prefix: str) -> str:
    return reverse("intake:conversation", args=[_AN_ID])
