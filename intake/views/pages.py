"""The browser's pages, rendered from the database: a new chat, a conversation, the list of all of them."""

from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from core.errors import NotFound
from core.isolation.acting import acting_as
from core.pagination import position_in_address
from intake.identity import caller_of, is_registered
from intake.reading import (
    TURNS_PER_PAGE,
    as_turn_number,
    get_conversation,
    list_conversations,
    open_answers,
    turns_to_show,
)
from intake.services import MAX_MESSAGE_LENGTH
from intake.views.changing import P, View
from intake.views.failures import not_found

EXAMPLES = [
    "Help me plan a dinner for six on Friday. Two are vegetarian.",
    "What did we say about the dinner?",
    "I decided to learn the cello. Suggest a plan for the first month.",
    "Which decisions have I talked through here, and what did I decide?",
]


def personal_page(view: View[P]) -> View[P]:
    """For visitors too, to read, where there are any (`settings.VISITORS`). Kept by no cache, and one same answer to
    whatever is not there for this caller."""

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not settings.VISITORS and not is_registered(request):
            return redirect_to_login(request.get_full_path())
        try:
            with acting_as(caller_of(request)):
                return view(request, *args, **kwargs)
        except NotFound:
            return not_found(request)

    return login_not_required(never_cache(require_safe(wrapper)))


@personal_page
def home(request: HttpRequest) -> HttpResponse:
    return render(request, "intake/chat.html", {**_shell(request), "examples": EXAMPLES})


@personal_page
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    found = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    window = turns_to_show(
        conversation=found,
        at_most=TURNS_PER_PAGE,
        around=as_turn_number(request.GET.get("turn")),
        before=as_turn_number(request.GET.get("before")),
    )
    return render(request, "intake/chat.html", {**_shell(request), "conversation": found, "window": window})


@personal_page
def conversations(request: HttpRequest) -> HttpResponse:
    page = list_conversations(caller=caller_of(request), after=position_in_address(request.GET.get("after")))
    return render(request, "intake/conversations.html", {"page": page})


def sidebar_of(request: HttpRequest) -> dict[str, Any]:
    """What every page beside the list of chats shows of it; another app's pages as well."""
    caller = caller_of(request)
    return {
        "page": list_conversations(caller=caller),
        "answering": [conversation_id for _, conversation_id in open_answers(caller=caller)],
        "visitor_days": settings.VISITOR_DAYS,
    }


def _shell(request: HttpRequest) -> dict[str, Any]:
    return {**sidebar_of(request), "max_message_length": MAX_MESSAGE_LENGTH}
