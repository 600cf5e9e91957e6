"""`/settings/tools/`: the servers whose tools the chat may call, and what was allowed of them."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET

from chat.pages.common import ServiceForm, count_search, page_that_searches, show
from chat.pages.staff import note_action
from core.errors import InvalidInput, NotFound, Unavailable
from core.ids import parse_id
from core.isolation.acting import Caller, acting_as
from core.text import in_page_language, pg_text
from intake.accounts.identity import person_of
from intake.accounts.proofs import require_recent_proof
from intake.chats.consent import SERVERS, servers_of
from intake.llm.language_models import sealed_key
from intake.models import ToolConsent, ToolLogin, ToolServer, User
from intake.models.installation import keep_setting, kept_setting
from intake.models.tools import ADDRESS_LENGTH, CLIENT_ID_LENGTH, NAME_LENGTH

MOST_SERVERS = 20


class ServerForm(ServiceForm):
    name = forms.CharField(max_length=NAME_LENGTH, label=_("Name"), help_text=_("Its tools carry this name."))
    address = forms.CharField(
        max_length=ADDRESS_LENGTH, label=_("Address"), help_text=_("Of an MCP server, such as https://example.org/mcp.")
    )
    key = forms.CharField(
        max_length=2_000,
        required=False,
        label=_("Key"),
        widget=forms.PasswordInput(render_value=True, attrs={"autocomplete": "off"}),
        help_text=_("If it asks for one. It is kept encrypted and not shown again."),
    )
    client_id = forms.CharField(
        max_length=CLIENT_ID_LENGTH,
        required=False,
        label=_("Client ID"),
        help_text=_("If you log in there and had to register an app first. The key is its secret then, if it has one."),
    )
    header = forms.RegexField(
        r"^[A-Za-z0-9-]+$",
        max_length=60,
        required=False,
        label=_("Header of the key"),
        help_text=_("If the server does not take it as “Authorization: Bearer”."),
    )
    for_all = forms.BooleanField(required=False, label=_("For everybody on this server"))

    def listed(self, user: User) -> ToolServer | None:
        """The server with its tools, which it is asked for; None with the error on the form. One that asks for a log-in
        has none yet.
        """
        # Imported here because no other page should wait for the agent loop at start-up.
        from chat.agent.logins import LogInFirst
        from chat.agent.servers import canonical, list_tools

        held = self.cleaned_data
        owner = None if held["for_all"] else user
        try:
            server = ToolServer(user=owner, name=held["name"], address=canonical(held["address"]))
            server.header, server.client_id, server.sealed = held["header"], held["client_id"], sealed_key(held["key"])
            with acting_as(user):
                logins = ToolLogin.objects.for_user(user).filter(address=server.address)
                server.wants_login = server.is_connected = logins.exclude(sealed="").exists()
            server.tools = async_to_sync(list_tools)(server, Caller(user_id=user.pk))
        except LogInFirst:
            server.wants_login = True
        except (InvalidInput, Unavailable) as error:
            self.add_error("address", in_page_language(error.detail))
            return None
        return server


@sensitive_post_parameters("key")
@page_that_searches
def tools(request: HttpRequest) -> HttpResponse:
    """A POST adds a server, or with `remove`, `list`, `connect` or `take_back` changes one, or what was allowed."""
    user, log_in_at = person_of(request), ""
    form = ServerForm(request.POST if "address" in request.POST else None)
    if not user.is_staff:
        del form.fields["for_all"]
    if request.method == "POST":
        count_search(request)
        server = _add(request, form) if form.is_bound else _change(request)
        log_in_at = _begin(request, server) if server is not None else ""
        if not log_in_at and not form.errors:
            return redirect("agent_tools:tools")
        # What was added is not asked for again.
        form.is_bound = not log_in_at
    with acting_as(user):
        servers, consents = servers_of(user), list(ToolConsent.objects.for_user(user).order_by("-created_at"))
        names = {server.address: server.name for server in servers}
        allowed = [(consent, names.get(consent.address, consent.address)) for consent in consents]
        context: dict[str, Any] = {"form": form, "servers": servers, "allowed": allowed}
        # A form may lead to no other site: the person follows a link, and sees where.
        context |= {"log_in_at": log_in_at, "host": urlsplit(log_in_at).netloc.rpartition("@")[2]}
        return show(request, "agent_tools/tools.html", **context)


@require_GET
def return_from_login(request: HttpRequest) -> HttpResponse:
    """Where a server sends its person back to, with a code."""
    from chat.agent.logins import NO_LOGIN, finish, take_pending
    from chat.agent.servers import list_tools

    user, sent = person_of(request), request.GET
    caller = Caller(user_id=user.pk)
    count_search(request)
    if (opened := take_pending(caller, sent.get("state", ""))) is None:
        messages.error(request, _("This log-in is over. Choose “Connect” once more."))
        return redirect("agent_tools:tools")
    address, pending = opened
    try:
        if not (code := sent.get("code")):
            raise Unavailable(NO_LOGIN, reason=pg_text(sent.get("error", ""))[:100] or "no code")
        async_to_sync(finish)(_server_at(user, address), pending, code, sent.get("iss"), caller)
        server = _server_at(user, address)
        server.tools = async_to_sync(list_tools)(server, caller)
    except Unavailable as error:
        messages.error(request, in_page_language(error.detail))
    else:
        with acting_as(user):
            ToolServer.objects.for_user(user).filter(address=address).update(tools=server.tools)
        if server.user_id is None and user.is_staff:
            row = _row(server)
            keep_setting(SERVERS, lambda rows: [row if each["address"] == address else each for each in rows])
        messages.success(request, _("Connected to %(name)s.") % {"name": server.name})
    return redirect("agent_tools:tools")


def _begin(request: HttpRequest, server: ToolServer) -> str:
    from chat.agent.logins import begin

    back = request.build_absolute_uri(reverse("agent_tools:tools_return"))
    try:
        return async_to_sync(begin)(server, back, Caller(user_id=person_of(request).pk))
    except Unavailable as error:
        messages.error(request, in_page_language(error.detail))
        return ""


def _add(request: HttpRequest, form: ServerForm) -> ToolServer | None:
    """The server, where its person has to log in."""
    user = person_of(request)
    if not form.is_valid():
        return None
    if is_for_all := form.cleaned_data.setdefault("for_all", False):
        # As the other settings of staff.
        require_recent_proof(request)
    server = form.listed(user)
    if server is None:
        return None
    row, others = _row(server), _without(kept_setting(SERVERS), server.address)
    with acting_as(user):
        mine = ToolServer.objects.for_user(user)
        if (len(others) if is_for_all else mine.exclude(address=server.address).count()) >= MOST_SERVERS:
            form.add_error("address", _("You have added as many servers as you can."))
            return None
        if not is_for_all:
            about = {name: value for name, value in row.items() if name != "wants_login"}
            mine.update_or_create(user=user, address=server.address, defaults=about)
    if is_for_all:
        keep_setting(SERVERS, lambda rows: [*_without(rows, server.address), row])
        note_action(request, "settings")
    if server.wants_login and not server.tools:
        return server
    said = _("Added, with %(count)s tools. You are asked before each call.")
    messages.success(request, said % {"count": len(server.tools)})
    return None


def _row(server: ToolServer) -> dict[str, Any]:
    fields = ("name", "address", "header", "sealed", "client_id", "tools", "wants_login")
    return {name: getattr(server, name) for name in fields}


def _without(rows: list[dict[str, Any]], address: str) -> list[dict[str, Any]]:
    return [each for each in rows or [] if each["address"] != address]


def _server_at(user: User, address: str) -> ToolServer:
    """With two at one address, that of staff, which may stand in this network."""
    with acting_as(user):
        found = [each for each in servers_of(user) if each.address == address]
    if not found:
        raise NotFound
    return found[-1]


def _change(request: HttpRequest) -> ToolServer | None:
    """The server, where its person wants to log in."""
    user, sent = person_of(request), request.POST
    if "connect" in sent:
        return _server_at(user, sent["connect"])
    if "disconnect" in sent:
        _end_login(request, _server_at(user, sent["disconnect"]), _("Disconnected."), keeps_row=True)
    elif "take_back" in sent:
        with acting_as(user):
            ToolConsent.objects.for_user(user).filter(pk=parse_id(sent["take_back"])).delete()
        messages.success(request, _("Taken back. You are asked again."))
    elif sent.get("for_all") and user.is_staff:
        keep_setting(SERVERS, lambda rows: _without(rows, sent.get("remove", "")))
        note_action(request, "settings")
        messages.success(request, _("Removed."))
    else:
        _change_own(request, parse_id(sent.get("remove") or sent.get("list", "")))
    return None


def _change_own(request: HttpRequest, server_id: UUID | None) -> None:
    user = person_of(request)
    with acting_as(user):
        server = next((each for each in servers_of(user) if each.user_id and each.pk == server_id), None)
        if server is None:
            raise NotFound
        if "remove" in request.POST:
            ToolConsent.objects.for_user(user).filter(address=server.address).delete()
            server.delete()
    if "remove" in request.POST:
        _end_login(request, server, _("Removed."))
        return
    from chat.agent.servers import list_tools

    try:
        tools = async_to_sync(list_tools)(server, Caller(user_id=user.pk))
    except Unavailable as error:
        messages.error(request, in_page_language(error.detail))
        return
    with acting_as(user):
        ToolServer.objects.for_user(user).filter(pk=server.pk).update(tools=tools)
    messages.success(request, _("Its tools are listed anew."))


def _end_login(request: HttpRequest, server: ToolServer, said: Any, *, keeps_row: bool = False) -> None:
    """Here at once, then at the service. Without its row, the page would not offer to connect."""
    from chat.agent.logins import revoke

    user = person_of(request)
    with acting_as(user):
        login = ToolLogin.objects.for_user(user).filter(address=server.address)
        sealed = "".join(login.values_list("sealed", flat=True))
        if keeps_row:
            login.update(sealed="", pending="", state="")
        else:
            login.delete()
    messages.success(request, said)
    if not async_to_sync(revoke)(server, sealed):
        messages.error(request, _("The service could not be told. End the access there, too."))
