"""Organises chats from the browser: pin, archive, several at once, all without scripts."""

from datetime import datetime
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from core.errors import InvalidInput
from core.ids import parse_id
from intake import arranging
from intake.accounts import activity
from intake.exporting import chats_as_json
from intake.identity import caller_of
from intake.links import conversation_path
from intake.models import Activity, Conversation, User
from intake.views.changing import personal_form

YES = "1"
FILE_NAME = "recollect-chats-{day:%Y-%m-%d}.json"


@require_POST
@personal_form
def pin_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Pins with `on=1`; unpins without it."""
    key = parse_id(conversation_id)
    is_pinned = request.POST.get("on") == YES
    arranging.arrange(caller=caller_of(request), conversation_ids=[key], is_pinned=is_pinned, now=timezone.now())
    return HttpResponseRedirect(conversation_path(key))


@require_POST
@personal_form
def archive_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Archives with `on=1`; restores without it."""
    key = parse_id(conversation_id)
    is_archived = request.POST.get("on") == YES
    arranging.arrange(caller=caller_of(request), conversation_ids=[key], is_archived=is_archived, now=timezone.now())
    return HttpResponseRedirect(conversation_path(key))


@require_POST
@personal_form
def change_conversations(request: HttpRequest) -> HttpResponse:
    """Applies `do` to each `id`: archive, restore, export; or delete, once `sure` confirms it."""
    caller, now = caller_of(request), timezone.now()
    ids = [parse_id(text) for text in request.POST.getlist("id")]
    wanted = request.POST.get("do")
    if not ids:
        messages.error(request, _("Choose some chats first."))
        return HttpResponseRedirect(reverse("intake:conversations"))
    if wanted == "delete" and request.POST.get("sure") != YES:
        chosen = Conversation.objects.for_caller(caller).kept().filter(pk__in=ids).newest_first()
        return render(request, "intake/delete_conversations.html", {"chosen": chosen})
    if wanted == "delete":
        arranging.delete_all(caller=caller, conversation_ids=ids)
    elif wanted in ("archive", "restore"):
        arranging.arrange(caller=caller, conversation_ids=ids, is_archived=wanted == "archive", now=now)
    elif wanted == "export":
        # Changes nothing, but checks that the caller owns them.
        arranging.arrange(caller=caller, conversation_ids=ids, now=now)
        activity.note(cast(User, request.user), Activity.EXPORTED)
        return _file(b"".join(chats_as_json(user=cast(User, request.user), chosen=ids, now=now)), now)
    else:
        raise InvalidInput("There is no such thing to do.")
    messages.success(request, _done(wanted, len(set(ids))))
    return HttpResponseRedirect(reverse("intake:conversations"))


def _file(document: bytes, now: datetime) -> HttpResponse:
    name = f'attachment; filename="{FILE_NAME.format(day=now)}"'
    return HttpResponse(document, content_type="application/json", headers={"Content-Disposition": name})


def _done(wanted: str, count: int) -> str:
    chats = "1 chat" if count == 1 else f"{count} chats"
    done = {"delete": "deleted", "archive": "archived", "restore": "back in the list"}[wanted]
    return f"{chats} {done}."
