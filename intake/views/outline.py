"""The outline of one chat: a page without scripts, which also serves the chat page's map and search."""

from datetime import date

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone

from intake import outline
from intake.identity import caller_of
from intake.links import conversation_path
from intake.reading import get_conversation
from intake.views.pages import personal_page


@personal_page
def conversation_outline(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The questions; `?q=` the turns with these words; `?on=` leads to the first turn of that day in the user's own
    zone.
    """
    conversation = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    day = _day(request.GET.get("on", ""))
    if day is not None:
        number = outline.first_turn_of(conversation, day, timezone.get_current_timezone())
        if number is not None:
            return HttpResponseRedirect(conversation_path(conversation.pk, turn_number=number))
    words = request.GET.get("q", "").strip()
    entries = outline.find(conversation, words) if words else outline.questions(conversation)
    context = {"conversation": conversation, "entries": entries, "words": words}
    return render(request, "intake/outline.html", context)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
