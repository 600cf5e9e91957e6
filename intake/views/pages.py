"""The chat's pages, rendered from the database: a new chat, a conversation, the list of all conversations."""

from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from core.errors import NotFound
from core.ids import parse_id
from core.isolation.acting import read_as
from core.pagination import position_in_address
from intake.choices import offered_choices
from intake.identity import caller_of, is_registered
from intake.language_models import ask_servers
from intake.listing import list_conversations, list_in_order, list_one
from intake.models import Conversation
from intake.reading import (
    TURNS_PER_PAGE,
    SharedTurns,
    TurnWindow,
    as_turn_number,
    get_conversation,
    get_turn,
    open_answers,
    shared_to_show,
    turns_to_show,
)
from intake.services import MAX_MESSAGE_LENGTH
from intake.views.changing import P, View
from intake.views.failures import log_in_to_see

EXAMPLES = [
    _("Help me plan a dinner for six on Friday. Two are vegetarian."),
    _("What did we say about the dinner?"),
    _("I decided to learn the cello. Suggest a plan for the first month."),
    _("Which decisions have I talked through here, and what did I decide?"),
]


def personal_page(view: View[P]) -> View[P]:
    """Also for visitors, to read, if there are any (`settings.VISITORS`). Never cached."""

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not settings.VISITORS and not is_registered(request):
            return redirect_to_login(request.get_full_path())
        ask_servers()
        try:
            return read_as(caller_of(request), lambda: view(request, *args, **kwargs))
        except NotFound:
            # Perhaps a session has ended. The same for every address, and so it tells nothing about any.
            if is_registered(request):
                raise
            return log_in_to_see(request)

    return login_not_required(never_cache(require_safe(wrapper)))


@personal_page
def home(request: HttpRequest) -> HttpResponse:
    shown = {"examples": EXAMPLES, "is_temporary": "temporary" in request.GET}
    return render(request, "intake/chat.html", {**_shell(request), **shown})


@personal_page
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    found = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    window, above = _turns(request, found)
    shown = {"conversation": found, "window": window, "above": above, "shown_before": request.GET.get("of")}
    around = as_turn_number(request.GET.get("turn"))
    shown["deleted_turn"] = around is not None and around not in {turn.turn_number for turn in window.turns}
    is_temporary = found.expires_at is not None
    return render(request, "intake/chat.html", {**_shell(request, found), **shown, "is_temporary": is_temporary})


def _turns(request: HttpRequest, conversation: Conversation) -> tuple[TurnWindow, SharedTurns | None]:
    """A branch's own turns, then further up the shared ones, whose conversation `of` names."""
    before, origin = as_turn_number(request.GET.get("before")), request.GET.get("of")
    if before is not None and origin is not None:
        turn = get_turn(caller=caller_of(request), conversation_id=parse_id(origin), turn_number=before)
        window = TurnWindow([], earlier=None, later=before)
        return window, shared_to_show(conversation=conversation, at_most=TURNS_PER_PAGE, before=turn)
    around = as_turn_number(request.GET.get("turn"))
    window = turns_to_show(conversation=conversation, at_most=TURNS_PER_PAGE, around=around, before=before)
    if window.earlier is not None:
        return window, None
    room = max(1, TURNS_PER_PAGE - len(window.turns))
    return window, shared_to_show(conversation=conversation, at_most=room)


@personal_page
def conversations(request: HttpRequest) -> HttpResponse:
    """All of them, or `?archived=1`; `?q=` those with these words in their title; `?only=` one, by its id.

    Without scripts it is a separate page; the sidebar takes its items from here.
    """
    caller, after = caller_of(request), position_in_address(request.GET.get("after"))
    words, is_archived = request.GET.get("q", ""), "archived" in request.GET
    if only := request.GET.get("only"):
        page = list_one(caller=caller, conversation_id=parse_id(only))
    elif words or is_archived:
        page = list_conversations(caller=caller, after=after, words=words, is_archived=is_archived)
    else:
        page = list_in_order(caller=caller, after=after)
    context = {"page": page, "words": words, "is_archived": is_archived}
    return render(request, "intake/conversations.html", context)


def sidebar_of(request: HttpRequest) -> dict[str, Any]:
    """The data of the sidebar for every page that shows it, also of other apps."""
    caller = caller_of(request)
    return {
        "page": list_in_order(caller=caller),
        "answering": [conversation_id for _, conversation_id in open_answers(caller=caller)],
        "visitor_days": settings.VISITOR_DAYS,
    }


def _shell(request: HttpRequest, conversation: Conversation | None = None) -> dict[str, Any]:
    choices = offered_choices(caller_of(request), conversation)
    return {**sidebar_of(request), "max_message_length": MAX_MESSAGE_LENGTH, "choices": choices}
