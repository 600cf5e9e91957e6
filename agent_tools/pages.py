"""`/settings/tokens/`: creates and revokes tokens, and shows how to connect an agent."""

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from agent_tools.oauth.addresses import MCP_PATH
from agent_tools.oauth.connections import end_connection, list_connections
from agent_tools.scopes import DEFAULT_SCOPES, MEANINGS, TokenScope
from agent_tools.snippets import PLACEHOLDER, snippets
from agent_tools.tokens import (
    DEFAULT_DAYS,
    LONGEST_DAYS,
    LONGEST_NAME,
    NewToken,
    create_token,
    list_tokens,
    revoke_token,
)
from core.errors import InvalidInput
from intake.accounts.proof import requires_recent_proof
from intake.identity import person_of
from intake.sentences import in_page_language

SCOPES = [(scope.value, _(meaning)) for scope, meaning in MEANINGS.items()]
OFFERED = {
    7: _("7 days"),
    30: _("30 days"),
    90: _("90 days"),
    365: _("a year"),
}
LIFETIMES = [
    (days, OFFERED.get(days, format_lazy(_("{days} days"), days=days)))
    for days in sorted({DEFAULT_DAYS, *(days for days in OFFERED if days <= LONGEST_DAYS)})
]


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=LONGEST_NAME,
        required=False,
        label=_("Name"),
        help_text=_("What it is for, so that you know it again."),
    )
    scopes = forms.MultipleChoiceField(
        choices=SCOPES,
        initial=sorted(DEFAULT_SCOPES),
        widget=forms.CheckboxSelectMultiple,
        label=_("It may"),
        error_messages={"required": _("Choose what the token may do.")},
    )
    days = forms.TypedChoiceField(choices=LIFETIMES, coerce=int, initial=DEFAULT_DAYS, label=_("Valid for"))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@requires_recent_proof(methods=("POST",))
def tokens(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request, TokenForm())
    form = TokenForm(request.POST)
    made = _make(request, form) if form.is_valid() else None
    # The secret is only in this response, so there is no redirect; reloading creates another token.
    return _page(request, TokenForm() if made else form, made=made)


@never_cache
@require_POST
def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    revoke_token(user=person_of(request), token_id=token_id)
    messages.success(request, _("Revoked. Its users are cut off within seconds."))
    return HttpResponseRedirect(reverse("agent_tools:tokens"))


@never_cache
@require_POST
def disconnect(request: HttpRequest, connection_id: str) -> HttpResponse:
    end_connection(user=person_of(request), connection_id=connection_id)
    messages.success(request, _("Ended. The agent is out within seconds."))
    return HttpResponseRedirect(reverse("agent_tools:tokens"))


def _make(request: HttpRequest, form: TokenForm) -> NewToken | None:
    wanted = form.cleaned_data
    try:
        return create_token(
            user=person_of(request),
            name=wanted["name"],
            scopes=[TokenScope(scope) for scope in wanted["scopes"]],
            days=wanted["days"],
        )
    except InvalidInput as error:
        form.add_error(None, in_page_language(error.detail))
        return None


def _page(request: HttpRequest, form: TokenForm, *, made: NewToken | None = None) -> HttpResponse:
    address = request.build_absolute_uri("/").rstrip("/")
    context = {
        "form": form,
        "made": made,
        "tokens": list_tokens(user=person_of(request)),
        "connections": list_connections(user=person_of(request), now=timezone.now()),
        "mcp_address": f"{address}{MCP_PATH}",
        "snippets": snippets(address=address, secret=made.secret if made else PLACEHOLDER),
    }
    return render(request, "agent_tools/tokens.html", context)
