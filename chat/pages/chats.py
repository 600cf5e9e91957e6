"""The chat's pages: reading, organising, renaming, deleting; and the files of the installable application.

The chat's pages, rendered from the database: a new chat, a conversation, the list of all conversations.
"""

import hashlib
import secrets
from contextlib import suppress
from datetime import date
from functools import wraps
from typing import Any, cast
from urllib.parse import urlencode

from csp.decorators import csp_update
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.cache import patch_cache_control
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST, require_safe
from django.views.i18n import JavaScriptCatalog

from chat.agent.search_engines import chosen_engine
from chat.pages.common import TYPES, P, View, done, page_with_form, personal_form
from chat.pages.forms import RenameForm
from chat.pages.home import home as parts_of_home
from chat.pages.installation import REGISTRATIONS, is_to_choose_who_registers
from chat.pages.staff_models import look_nearby, nearby
from core.errors import AuthenticationRequired, Conflict, InvalidInput, NotFound
from core.ids import parse_id
from core.isolation.acting import acting_as
from core.paging import position_in_address
from core.text import gettext_noop, pg_text, project_label
from intake.accounts import activity
from intake.accounts.identity import caller_of, is_registered, person_of
from intake.attachments.services import attachments_of
from intake.chats import arranging, deleting, outline, temporary
from intake.chats.exporting import chats_as_json
from intake.chats.lists import list_conversations, list_in_order, list_one
from intake.chats.project_groups import list_groups
from intake.chats.reading import (
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
from intake.chats.services import MAX_MESSAGE_LENGTH
from intake.chats.tree import Tree, conversation_path
from intake.failures import log_in_to_see, logged_out
from intake.llm.chat_options import offered_choices
from intake.llm.language_models import ask_servers, is_recall_mode
from intake.middleware import LOGGED_OUT
from intake.models import Activity, Conversation, User
from intake.models.installation import may_visitors_chat
from memory.records import kept_in_chat
from memory.sources_of_answers import sources_of


@personal_form
def rename_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    conversation = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    form = RenameForm(request.POST or None, initial={"title": conversation.title})
    if form.is_valid():
        deleting.rename_conversation(caller=caller_of(request), conversation_id=conversation.pk, **form.cleaned_data)
        return redirect(conversation_path(conversation.pk))
    return render(request, "intake/rename.html", {"conversation": conversation, "form": form})


@personal_form
def delete_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    conversation = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    if request.method == "POST":
        deleting.delete_conversation(caller=caller_of(request), conversation_id=conversation.pk)
        return done(request, _("Chat deleted."), "intake:home")
    return render(request, "intake/delete_conversation.html", {"conversation": conversation})


@personal_form
def delete_turn(request: HttpRequest, conversation_id: str, turn_number: str) -> HttpResponse:
    """Only this turn; or with all that follow it, if their number is the one on the page."""
    number, caller, trouble = as_turn_number(turn_number) or 0, caller_of(request), ""
    turn = get_turn(caller=caller, conversation_id=parse_id(conversation_id), turn_number=number)
    if request.method == "POST":
        expected = as_turn_number(request.POST.get("from_here"))
        where: dict[str, Any] = {"caller": caller, "conversation_id": turn.conversation_id, "turn_number": number}
        try:
            is_left = deleting.delete_from(**where, expected=expected) if expected else deleting.delete_turn(**where)
            many, one = _("%(count)s turns are deleted."), _("The message and its answer are deleted.")
            said = many % {"count": expected} if expected and expected > 1 else one
            return done(request, said, conversation_path(turn.conversation_id) if is_left else "intake:home")
        except Conflict:
            trouble = str(_("New messages were added in the meantime. Check them before you delete."))
    count = len(Tree.of(turn.conversation).below(number))
    return render(request, "intake/delete_turn.html", {"turn": turn, "count": count, "trouble": trouble})


# The header with which a page's script asks for a part of a page.
PART = "X-Recollect-Part"

EXAMPLES = [
    _("Help me plan a dinner for six on Friday. Two are vegetarian."),
    _("What did we say about the dinner?"),
    _("I decided to learn the cello. Suggest a plan for the first month."),
    _("Which decisions have I talked through here, and what did I decide?"),
]
# Without a language model a chat keeps what is written and quotes it.
EXAMPLES_WITHOUT_MODEL = [
    _("The spare key is with our neighbour on the second floor."),
    _("Where is the spare key?"),
    _("I decided to learn the cello, with one lesson a week."),
    _("What did I decide to learn?"),
]


def personal_page(view: View[P]) -> View[P]:
    """Also for visitors, to read, if there are any."""

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not is_registered(request) and not may_visitors_chat():
            return redirect_to_login(request.get_full_path())
        ask_servers()
        look_nearby(request)
        try:
            with acting_as(caller_of(request)):
                return view(request, *args, **kwargs)
        except NotFound:
            # Perhaps a session has ended. The same for every address, and so it tells nothing about any.
            if is_registered(request):
                raise
            return log_in_to_see(request)

    return login_not_required(require_safe(wrapper))


@personal_page
def home(request: HttpRequest) -> HttpResponse:
    shown = {**_shell(request), "is_temporary": "temporary" in request.GET, "nearby": nearby(request)}
    shown["has_no_model"] = is_recall_mode()
    if is_registered(request):
        project = shown["of_project"]
        shown["parts"] = parts_of_home(user=person_of(request), now=timezone.now(), project=project)
        shown["has_chats"] = Conversation.objects.for_user(person_of(request)).exists()
    if is_to_choose_who_registers(request):
        shown["registrations"] = REGISTRATIONS
    shown["examples"] = [] if shown.get("has_chats") else EXAMPLES_WITHOUT_MODEL if shown["has_no_model"] else EXAMPLES
    return _chat_page(request, shown)


@csrf_exempt
@login_not_required
@page_with_form
def share(request: HttpRequest) -> HttpResponse:
    """What another app shares with the installed one, where the service worker (`intake/worker.js`) has not caught it.

    No page of ours was open to put a token into this form. It needs none: the text goes into the message that is being
    written, nothing is saved, and another site's form comes without the session's cookie (SameSite).
    """
    if request.method != "POST":
        return redirect("intake:home")
    if not is_registered(request) and not may_visitors_chat():
        return logged_out(request, AuthenticationRequired(LOGGED_OUT))
    words = [request.POST.get(name, "").strip() for name in ("title", "text", "url")]
    ask_servers()
    shared = {"shared": "\n".join(dict.fromkeys(filter(None, words))), "has_shared_files": bool(request.FILES)}
    with acting_as(caller_of(request)):
        return _chat_page(request, {**_shell(request), **shared})


@personal_page
def conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    also, caller = {"kept": kept_in_chat()}, caller_of(request)
    found = get_conversation(caller=caller, conversation_id=conversation_id, also=also)
    window, above = _turns(request, found)
    around = as_turn_number(request.GET.get("turn"))
    turns = [*window.turns, *(above.turns if above is not None else ())]
    shown: dict[str, Any] = {
        "conversation": found,
        "window": window,
        "above": above,
        "shown_before": request.GET.get("of"),
        "files": attachments_of(turns),
        "cited": sources_of([turn for turn in turns if "[" in turn.assistant_message], caller),
        "deleted_turn": around is not None and around not in {turn.turn_number for turn in window.turns},
        "is_temporary": found.expires_at is not None,
    }
    return _chat_page(request, {**_shell(request, found), **shown})


def _chat_page(request: HttpRequest, shown: dict[str, Any]) -> HttpResponse:
    """With a policy that lets frames show the previews' page and nothing else, wherever a script in one may lead it."""
    page = render(request, "intake/chat.html", {**shown, "record_types": TYPES})
    host = request.get_host()
    # A policy has no form for an address of IPv6.
    place = "'self'" if host.startswith("[") else f"{host}{reverse('intake:preview')}"
    return cast(HttpResponse, csp_update({"frame-src": [place]})(lambda _: page)(request))


def _turns(request: HttpRequest, conversation: Conversation) -> tuple[TurnWindow, SharedTurns | None]:
    """A branch's own turns, then further up the shared ones, whose conversation `of` names."""
    before, origin = as_turn_number(request.GET.get("before")), request.GET.get("of")
    if before is not None and origin is not None:
        turn = get_turn(caller=caller_of(request), conversation_id=parse_id(origin), turn_number=before)
        window = TurnWindow([], earlier=None, later=before)
        return window, shared_to_show(conversation=conversation, at_most=TURNS_PER_PAGE, before=turn)
    around = as_turn_number(request.GET.get("turn"))
    # What is rendered before a chat is first painted: more than a screen holds. The rest follows when one scrolls up.
    at_most = 10 if around is None and before is None else TURNS_PER_PAGE
    window = turns_to_show(conversation=conversation, at_most=at_most, around=around, before=before)
    if window.earlier is not None:
        return window, None
    room = max(1, at_most - len(window.turns))
    return window, shared_to_show(conversation=conversation, at_most=room)


@personal_page
def conversations(request: HttpRequest) -> HttpResponse:
    """All of them, or `?archived=1`; `?q=` those with these words in their title; `?only=` one, by its id; `?project=`
    those of a project, or of none. `?groups=1`: the groups of the side bar.

    Without scripts it is a separate page; the sidebar takes its items from here.
    """
    caller, after = caller_of(request), position_in_address(request.GET.get("after"))
    words, is_archived = request.GET.get("q", ""), "archived" in request.GET
    project = pg_text(request.GET["project"]) if "project" in request.GET else None
    if "groups" in request.GET:
        return render(request, "intake/_projects.html", _groups(request, project or ""))
    if only := request.GET.get("only"):
        page = list_one(caller=caller, conversation_id=parse_id(only))
    elif words or is_archived or project:
        page = list_conversations(
            caller=caller, after=after, words=words, is_archived=is_archived, project=project or None
        )
    else:
        page = list_in_order(caller=caller, after=after, is_of_no_project=project is not None)
    context: dict[str, Any] = {"page": page, "words": words, "is_archived": is_archived, "of_project": project}
    if project is not None:
        context["more_query"] = f"&{urlencode({'project': project})}"
    return render(request, "intake/conversations.html", {**context, "has_projects": is_registered(request)})


# The cookie with the groups of the side bar that are open in this browser, which `projects.js` writes.
OPEN_GROUPS = "projects"


def _groups(request: HttpRequest, current: str) -> dict[str, Any]:
    """The projects of the side bar, which a visitor does not have."""
    if not is_registered(request):
        return {}
    opened = request.COOKIES.get(OPEN_GROUPS, "").split(".")
    groups, count = list_groups(user=person_of(request), open_keys=opened, current=current)
    return {"project_groups": groups, "project_count": count, "has_projects": True}


def sidebar_of(request: HttpRequest, *, project: str = "") -> dict[str, Any]:
    """The data of the sidebar; the tag `side_bar` asks for it, in every page that shows it. `project`: of the page."""
    caller = caller_of(request)
    return {
        **_groups(request, project),
        "has_imported": is_registered(request) and activity.includes(person_of(request), Activity.IMPORT_STARTED),
        "page": list_in_order(caller=caller, is_of_no_project=True),
        "answering": [conversation_id for _, conversation_id in open_answers(caller=caller)],
        "visitor_days": settings.VISITOR_DAYS,
    }


def _shell(request: HttpRequest, conversation: Conversation | None = None) -> dict[str, Any]:
    choices = offered_choices(caller_of(request), conversation)
    if choices is not None:
        choices["has_web"] = is_registered(request) and chosen_engine() is not None
    project = conversation.project if conversation is not None else ""
    if conversation is None and is_registered(request):
        project = project_label(request.GET.get("project", ""))
    return {
        "max_message_length": MAX_MESSAGE_LENGTH,
        "largest_file": settings.ATTACHMENT_BYTES,
        "choices": choices,
        "of_project": project,
        "has_projects": is_registered(request),
        "is_chat": True,
    }


@personal_page
def conversation_outline(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """The questions; `?q=` the turns with these words; `?on=` leads to the first turn of that day in the user's own
    zone.
    """
    conversation = get_conversation(caller=caller_of(request), conversation_id=conversation_id)
    with suppress(ValueError):
        day = date.fromisoformat(request.GET.get("on", ""))
        number = outline.first_turn_of(conversation, day, timezone.get_current_timezone())
        if number is not None:
            return redirect(conversation_path(conversation.pk, turn_number=number))
    words = request.GET.get("q", "").strip()
    entries = outline.find(conversation, words) if words else outline.questions(conversation)
    context = {"conversation": conversation, "entries": entries, "words": words}
    return render(request, "intake/outline.html", context)


YES = "1"


@require_POST
@personal_form
def arrange_conversation(request: HttpRequest, conversation_id: str, what: str) -> HttpResponse:
    """Pins or archives with `on=1`; takes that back without it."""
    key = parse_id(conversation_id)
    change: dict[str, Any] = {what: request.POST.get("on") == YES}
    arranging.arrange(caller=caller_of(request), conversation_ids=[key], **change, now=timezone.now())
    return redirect(conversation_path(key))


@require_POST
@personal_form
def change_conversations(request: HttpRequest) -> HttpResponse:
    """Applies `do` to each `id`: archive, restore, export, move to `project`; or delete, once `sure` confirms it."""
    caller, now = caller_of(request), timezone.now()
    ids = [parse_id(text) for text in request.POST.getlist("id")]
    requested = request.POST.get("do")
    if not ids:
        messages.error(request, _("Choose some chats first."))
        return redirect("intake:conversations")
    if requested == "delete" and request.POST.get("sure") != YES:
        chosen = Conversation.objects.for_caller(caller).kept().filter(pk__in=ids).newest_first()
        return render(request, "intake/delete_conversations.html", {"chosen": chosen})
    if requested == "delete":
        arranging.delete_all(caller=caller, conversation_ids=ids)
    elif requested in ("archive", "restore"):
        arranging.arrange(caller=caller, conversation_ids=ids, is_archived=requested == "archive", now=now)
    elif requested == "move":
        temporary.move(caller=caller, conversation_ids=ids, project=request.POST.get("project", ""))
    elif requested == "export":
        # Changes nothing, but checks that the caller owns them.
        arranging.arrange(caller=caller, conversation_ids=ids, now=now)
        activity.note(cast(User, request.user), Activity.EXPORTED)
        document = b"".join(chats_as_json(user=cast(User, request.user), chosen=ids, now=now))
        headers = {"Content-Disposition": f'attachment; filename="recollect-chats-{now:%Y-%m-%d}.json"'}
        return HttpResponse(document, content_type="application/json", headers=headers)
    else:
        raise InvalidInput(gettext_noop("There is no such thing to do."))
    return done(request, _in_words(requested, len({*ids})), "intake:conversations")


def _in_words(requested: str, count: int) -> str:
    if requested == "move":
        return ngettext("%(count)s chat moved", "%(count)s chats moved", count) % {"count": count}
    chats = "1 chat" if count == 1 else f"{count} chats"
    return f"{chats} {({'delete': 'deleted', 'archive': 'archived'}).get(requested, 'back in the list')}."


@require_POST
@personal_form
def keep_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    key = parse_id(conversation_id)
    temporary.keep(caller=caller_of(request), conversation_id=key)
    return redirect(conversation_path(key))


@require_POST
@personal_form
def leave_conversation(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Sent by a page that is being closed, which reads no response."""
    temporary.leave(caller=caller_of(request), conversation_id=parse_id(conversation_id))
    return HttpResponse(status=204)


@login_not_required
@require_safe
def worker(request: HttpRequest) -> HttpResponse:
    """At the root, because a worker controls only addresses below its own. Its text changes with the files that it
    caches.
    """
    text = render_to_string("intake/worker.js", {"version": ""})
    version = hashlib.blake2b((text + settings.SECRET_KEY).encode(), digest_size=6).hexdigest()
    return HttpResponse(
        render_to_string("intake/worker.js", {"version": version}), content_type="text/javascript; charset=utf-8"
    )


@login_not_required
@require_safe
def offline(request: HttpRequest) -> HttpResponse:
    return render(None, "intake/offline.html")


# No origin (so no cookie, no storage, and no way into the page around it), no address to load from or send to, no
# script but ours, and no frame but ours around it. Styles work as they stand in the code that is shown.
PREVIEW_POLICY = {
    "default-src": "'none'",
    "style-src": "'unsafe-inline'",
    "img-src": "data:",
    "font-src": "data:",
    "media-src": "data:",
    "form-action": "'none'",
    "base-uri": "'none'",
    "frame-ancestors": "'self'",
    "sandbox": "allow-scripts",
}
# A picture of another site, which a person has asked for. No address is read from the request: the chat sends it, so
# that code in a preview that leads its own frame here can load nothing.
PICTURE_POLICY = {**PREVIEW_POLICY, "img-src": "http: https:"}
# A person has asked for the scripts of the page, too. A browser looks up the name of the server to which a script leads
# its frame before it refuses to go there, and no policy stops WebRTC (decision 71).
SCRIPTS_POLICY = {**PREVIEW_POLICY, "script-src": "'unsafe-inline'"}


@login_not_required
@require_safe
def preview(request: HttpRequest) -> HttpResponse:
    """The sandboxed frame in which a chat shows code: the same for all users, and empty until a chat sends it some."""
    kinds = {"pictures": PICTURE_POLICY, "scripts": SCRIPTS_POLICY}
    policy = next((kinds[kind] for kind in kinds if kind in request.GET), PREVIEW_POLICY)
    nonce = secrets.token_urlsafe(16)
    ours = {"script-src": f"'nonce-{nonce}'", **policy}
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in ours.items()),
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "SAMEORIGIN",
        "X-DNS-Prefetch-Control": "off",
    }
    return HttpResponse(render_to_string("intake/preview.html", {"nonce": nonce}), headers=headers)


@login_not_required
@require_safe
def favicon(request: HttpRequest) -> HttpResponse:
    """For clients that ask without having read a page."""
    return redirect(static("intake/icon-192.png"))


@login_not_required
@require_safe
def catalog(request: HttpRequest, language: str) -> HttpResponseBase:
    """The texts of the pages' JavaScript, as a script that defines `django.gettext`; the same for all users."""
    if language not in dict(settings.LANGUAGES):
        raise Http404
    with translation.override(language):
        response = JavaScriptCatalog.as_view(packages=["intake"])(request)
    patch_cache_control(response, public=True, max_age=3600)
    return response
