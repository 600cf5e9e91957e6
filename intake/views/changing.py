"""Renames and deletes chats from the browser, each on its own page, without scripts."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from core.errors import Conflict
from core.ids import parse_id
from core.isolation.acting import acting_as, read_as
from intake import deleting
from intake.forms import RenameForm
from intake.identity import caller_of
from intake.links import conversation_path
from intake.models import Turn
from intake.paths import Tree
from intake.reading import as_turn_number, get_conversation, get_turn

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def personal_form(view: View[P]) -> View[P]:
    """Also for visitors. Never cached."""

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if request.method == "POST":
            with acting_as(caller_of(request)):
                return view(request, *args, **kwargs)
        return read_as(caller_of(request), lambda: view(request, *args, **kwargs))

    return login_not_required(never_cache(require_http_methods(["GET", "HEAD", "POST"])(wrapper)))


@personal_form
def rename_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    conversation = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    form = RenameForm(request.POST or None, initial={"title": conversation.title})
    if request.method == "POST" and form.is_valid():
        title = form.cleaned_data["title"]
        deleting.rename_conversation(caller=caller_of(request), conversation_id=conversation.pk, title=title)
        return HttpResponseRedirect(conversation_path(conversation.pk))
    return render(request, "intake/rename.html", {"conversation": conversation, "form": form})


@personal_form
def delete_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    conversation = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    if request.method == "POST":
        deleting.delete_conversation(caller=caller_of(request), conversation_id=conversation.pk)
        messages.success(request, _("The chat is deleted."))
        return HttpResponseRedirect(reverse("intake:home"))
    return render(request, "intake/delete_conversation.html", {"conversation": conversation})


@personal_form
def delete_turn(request: HttpRequest, conversation_id: str, turn_number: str) -> HttpResponse:
    number = as_turn_number(turn_number) or 0
    turn = get_turn(caller=caller_of(request), conversation_id=parse_id(conversation_id), turn_number=number)
    trouble = ""
    if request.method == "POST":
        try:
            return _delete_turn(request, turn)
        except Conflict:
            trouble = _("More was said after it in the meantime. Look again before you delete.")
    count = len(Tree.of(turn.conversation).below(number))
    return render(request, "intake/delete_turn.html", {"turn": turn, "count": count, "trouble": trouble})


def _delete_turn(request: HttpRequest, turn: Turn) -> HttpResponse:
    """Only this turn; or with all that follow it, if their number is the one on the page."""
    expected = as_turn_number(request.POST.get("from_here"))
    where: dict[str, Any] = {"conversation_id": turn.conversation_id, "turn_number": turn.turn_number}
    if expected is None:
        is_left = deleting.delete_turn(caller=caller_of(request), **where)
    else:
        is_left = deleting.delete_from(caller=caller_of(request), **where, expected=expected)
    if expected and expected > 1:
        messages.success(request, _("%(count)s turns are deleted.") % {"count": expected})
    else:
        messages.success(request, _("The message and its answer are deleted."))
    return HttpResponseRedirect(conversation_path(turn.conversation_id) if is_left else reverse("intake:home"))
