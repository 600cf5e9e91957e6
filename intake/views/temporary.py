"""Keeps a temporary chat by a button, or removes it when the user leaves the page."""

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from core.ids import parse_id
from intake import temporary
from intake.identity import caller_of
from intake.links import conversation_path
from intake.views.changing import personal_form


@require_POST
@personal_form
def keep_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    key = parse_id(conversation_id)
    temporary.keep(caller=caller_of(request), conversation_id=key)
    return HttpResponseRedirect(conversation_path(key))


@require_POST
@personal_form
def leave_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Sent by a page that is being closed, which reads no response."""
    temporary.leave(caller=caller_of(request), conversation_id=parse_id(conversation_id))
    return HttpResponse(status=204)
