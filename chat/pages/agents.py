"""The pages `/settings/agents/`, `…/apps/`, `…/tokens/` and `/memory/context/`, and the lines that set up clients."""

import json
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_POST, require_safe

from agent_tools.authentication import (
    LONGEST_DAYS,
    LONGEST_NAME,
    TokenMade,
    TokenShown,
    create_token,
    got_since,
    list_tokens,
    revoke_token,
)
from agent_tools.models import DEFAULT_SCOPES, MEANINGS, Keeps, TokenScope
from agent_tools.oauth.addresses import MCP_PATH, origin_of
from agent_tools.oauth.connections import ConnectionInfo, end_connection, list_connections
from agent_tools.tools.context import (
    LONGEST_QUERY,
    MOST_TOKENS,
    USUAL_TOKENS,
    ContextLine,
    prompt_context,
    session_context,
    text_of,
)
from chat.pages.common import ServiceForm, count_search, done, page_that_searches, page_with_form, show
from core.ids import parse_id
from core.isolation.acting import acting_as
from core.text import in_page_language
from imports.services import sent_since
from intake.accounts.identity import caller_of, person_of
from intake.accounts.proofs import requires_recent_proof
from intake.llm.tokens import tokens_of
from intake.models import User
from memory.chunking import ASSISTANT_LABEL
from memory.left_out import bring_back, leave_out
from memory.models.documents import MAX_PROJECT_LENGTH

PLACEHOLDER = "YOUR_TOKEN"
# In Python: the address, the token and the vendor's name.
_CALLING = """import json
import urllib.error
import urllib.request

ADDRESS, TOKEN = "%s", "%s"


def ask(path, body=None):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(ADDRESS + path, body and body.encode(), headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()


tools = json.loads(ask("/api/v1/tools/?format=%s"))["tools"]
"""
_OPENAI = """from openai import OpenAI

%s
client = OpenAI()
messages = [{"role": "user", "content": "What did I decide about the kitchen?"}]
while True:
    answer = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=tools).choices[0].message
    messages.append(answer)
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        result = ask(f"/api/v1/tools/{call.function.name}/", call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(answer.content)
"""
_ANTHROPIC = """import anthropic

%s
client = anthropic.Anthropic()
messages = [{"role": "user", "content": "What did I decide about the kitchen?"}]
while True:
    answer = client.messages.create(model="claude-sonnet-4-5", max_tokens=1024, messages=messages, tools=tools)
    messages.append({"role": "assistant", "content": answer.content})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    results = [(call.id, ask(f"/api/v1/tools/{call.name}/", json.dumps(call.input))) for call in calls]
    blocks = [{"type": "tool_result", "tool_use_id": id_, "content": result} for id_, result in results]
    messages.append({"role": "user", "content": blocks})
print(answer.content[0].text)
"""


def snippets(*, address: str, secret: str = PLACEHOLDER) -> list[tuple[str, str, str]]:
    """The name of each client, where its text goes, and the text.

    `address`: the server's, such as `https://recollect.example`, without a slash at its end.
    """
    bearer = f"Bearer {secret}"
    in_terminal, add_by_claude = gettext_noop("Run in a terminal."), "claude mcp add --scope user --transport http"
    # The variable contains the space after the colon: on some systems an argument with a space is split.
    desktop = {
        "command": "npx",
        "args": ["-y", "mcp-remote", f"{address}/mcp", "--header", "Authorization:${RECOLLECT_AUTHORIZATION}"],
        "env": {"RECOLLECT_AUTHORIZATION": bearer},
    }
    cursor = {"url": f"{address}/mcp", "headers": {"Authorization": bearer}}
    to_desktop, to_cursor = (
        json.dumps({"mcpServers": {"recollect": server}}, indent=2) for server in (desktop, cursor)
    )
    code = f'{add_by_claude} recollect {address}/mcp \\\n  --header "Authorization: {bearer}"'
    by_curl = (
        f"curl {address}/api/v1/tools/search_chat_history/ \\\n"
        f'  -H "Authorization: {bearer}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        '  -d \'{"query": "the restaurant for the anniversary", "mode": "hybrid"}\''
    )
    return [
        ("Claude Code", in_terminal, code),
        ("Claude Desktop", gettext_noop("Add to claude_desktop_config.json; needs Node."), to_desktop),
        ("Cursor", gettext_noop("Add to ~/.cursor/mcp.json."), to_cursor),
        ("curl", in_terminal, by_curl),
        (
            "OpenAI function calling",
            gettext_noop("Python; pip install openai."),
            _OPENAI % (_CALLING % (address, secret, "openai")),
        ),
        (
            "Anthropic tool use",
            gettext_noop("Python; pip install anthropic."),
            _ANTHROPIC % (_CALLING % (address, secret, "anthropic")),
        ),
    ]


SCOPES = [(scope.value, _(meaning)) for scope, meaning in MEANINGS.items()]
OFFERED = {
    7: _("7 days"),
    30: _("30 days"),
    90: _("90 days"),
    365: _("a year"),
}
LIFETIMES = [
    (days, OFFERED.get(days, format_lazy(_("{days} days"), days=days)))
    for days in sorted({LONGEST_DAYS, *(days for days in OFFERED if days <= LONGEST_DAYS)})
]


class TokenForm(ServiceForm):
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
    days = forms.TypedChoiceField(choices=LIFETIMES, coerce=int, initial=LONGEST_DAYS, label=_("Valid for"))
    project = forms.CharField(
        max_length=MAX_PROJECT_LENGTH,
        required=False,
        label=_("Project"),
        help_text=_("Default project for what this agent saves."),
    )
    bound = forms.BooleanField(
        required=False,
        label=_("Only this project"),
        help_text=_("It sees nothing else and stores nothing elsewhere. It cannot delete or import."),
    )


@page_with_form
@requires_recent_proof(methods=("POST",))
def tokens(request: HttpRequest) -> HttpResponse:
    form, made = TokenForm(request.POST or None), None
    if form.is_valid():
        scopes = [TokenScope(scope) for scope in form.cleaned_data["scopes"]]
        made = _made(request, form, scopes=scopes, days=form.cleaned_data["days"])
    # The secret is only in this response, so there is no redirect; reloading creates another token.
    secret = made.secret if made else PLACEHOLDER
    context = {
        "form": TokenForm() if made else form,
        "made": made,
        "tokens": list_tokens(user=person_of(request)),
        "snippets": snippets(address=origin_of(request), secret=secret),
    }
    return render(request, "agent_tools/tokens.html", context)


@require_POST
def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    revoke_token(user=person_of(request), token_id=token_id)
    return done(request, _("Revoked. Its users are cut off within seconds."), _page_before(request))


@require_POST
def disconnect(request: HttpRequest, connection_id: str) -> HttpResponse:
    end_connection(user=person_of(request), connection_id=connection_id)
    return done(request, _("Ended. The agent is out within seconds."), _page_before(request))


def _page_before(request: HttpRequest) -> str:
    page = request.POST.get("page")
    return f"agent_tools:{page if page in ('agents', 'apps') else 'tokens'}"


def _made(request: HttpRequest, form: ServiceForm, **about: Any) -> TokenMade | None:
    """None if the valid form has an error now."""
    about |= {name: form.cleaned_data[name] for name in ("name", "project")}
    with form.complaining():
        return create_token(user=person_of(request), is_bound=form.cleaned_data["bound"], **about)
    return None


TOOLS = _("All tools.")
TOOLS_AND_HOOKS = _("The seven tools of daily work, context at each session and prompt, and its sessions are kept.")
# By the argument of `recollect install`.
CLIENTS = [
    ("claude-code", "Claude Code", TOOLS_AND_HOOKS),
    ("codex", "Codex", TOOLS_AND_HOOKS),
    ("gemini", "Gemini CLI", TOOLS_AND_HOOKS),
    ("opencode", "opencode", TOOLS_AND_HOOKS),
    ("cursor", "Cursor", _("The seven tools of daily work, and context at the beginning of a session.")),
    ("claude-desktop", "Claude Desktop", TOOLS),
    ("vscode", "VS Code", TOOLS),
]
DAYS_OF_SENT = 30


@require_safe
def agents(request: HttpRequest) -> HttpResponse:
    user, now = person_of(request), timezone.now()
    address = request.build_absolute_uri("/").rstrip("/")
    context = {
        "agents": _connected(user, now),
        "sent": sent_since(user=user, since=now - timedelta(days=DAYS_OF_SENT)),
        "days": DAYS_OF_SENT,
        "login": f"recollect login {address}",
        "clients": [(name, f"recollect install {client}", what) for client, name, what in CLIENTS],
        "mcp_address": f"{address}{MCP_PATH}",
    }
    return render(request, "agent_tools/agents.html", context)


def _connected(user: User, now: datetime) -> list[tuple[TokenShown | ConnectionInfo, str, list[int] | None]]:
    """Those that still have access, the last used first, each with the address that ends it and what it got."""
    got = got_since(user=user, since=now - timedelta(days=DAYS_OF_SENT))
    tokens = [each for each in list_tokens(user=user) if each.expires_at is None or each.expires_at > now]
    found: list[tuple[TokenShown | ConnectionInfo, str, list[int] | None]] = [
        *((each, reverse("agent_tools:revoke_token", args=[each.id]), got.get(each.id)) for each in tokens),
        *(
            (each, reverse("agent_tools:end_connection", args=[each.id]), None)
            for each in list_connections(user=user, now=now)
        ),
    ]
    return sorted(found, key=lambda pair: pair[0].last_used_at or pair[0].created_at, reverse=True)


# For other programs at `/settings/apps/`: the address, a key, and the names of their own fields.

KEEPS = [
    (Keeps.CHATS.value, _("Chats, without coding agents")),
    (Keeps.EVERYTHING.value, _("Everything")),
    (Keeps.NOTHING.value, _("Nothing")),
]


class AppForm(ServiceForm):
    name = forms.CharField(max_length=LONGEST_NAME, label=_("Name"), help_text=_("Of the app, such as My phone."))
    keeps = forms.ChoiceField(choices=KEEPS, initial=Keeps.CHATS.value, label=_("What is kept here"))
    project = forms.CharField(max_length=MAX_PROJECT_LENGTH, required=False, label=_("Project"))
    bound = forms.BooleanField(
        required=False, label=_("Only this project"), help_text=_("It sees nothing else and stores nothing elsewhere.")
    )


@page_with_form
@requires_recent_proof(methods=("POST",))
def apps(request: HttpRequest) -> HttpResponse:
    form, made = AppForm(request.POST or None), None
    if form.is_valid():
        made = _made(request, form, scopes=[TokenScope.CHAT], keeps=Keeps(form.cleaned_data["keeps"]))
    tokens = [token for token in list_tokens(user=person_of(request)) if TokenScope.CHAT in token.scopes]
    kept = dict(KEEPS)
    address = origin_of(request)
    context = {
        "form": AppForm() if made else form,
        "made": made,
        "tokens": [(token, kept[token.keeps]) for token in tokens],
        "addresses": [f"{address}/v1", address],
        "snippets": in_other_apps(address=address, secret=made.secret if made else PLACEHOLDER),
    }
    return render(request, "agent_tools/apps.html", context)


def in_other_apps(*, address: str, secret: str) -> list[tuple[str, str, str]]:
    """The name of each app, where its fields are, and what goes into them."""
    base = f"{address}/v1"
    fields = f"URL: {base}\nKey: {secret}\nModel: recollect"
    variables = f"OPENAI_API_BASE={base}\nOPENAI_API_KEY={secret}"
    yaml = f"apiBase: {base}\n    apiKey: {secret}"
    codex = f'base_url = "{base}"\nenv_key = "RECOLLECT_KEY"\nwire_api = "responses"'
    claude = f"ANTHROPIC_BASE_URL={address}\nANTHROPIC_AUTH_TOKEN={secret}"
    return [
        ("Open WebUI", "Admin Settings → Connections → OpenAI API", f"{fields}\nTask Model: recollect-private"),
        (
            "LibreChat",
            "librechat.yaml",
            f"endpoints:\n  custom:\n  - name: Recollect\n    baseURL: {base}\n    apiKey: {secret}\n    models:\n"
            "      default: [recollect]\n      fetch: true\n    titleModel: recollect-private",
        ),
        ("Obsidian Copilot", "Settings → Copilot → Add Model → 3rd party (openai-format)", fields),
        ("Home Assistant", "Extended OpenAI Conversation", f"API Key: {secret}\nBase Url: {base}\nModel: recollect"),
        ("Conduit", "Settings → Direct Connections", fields),
        ("Cherry Studio", "Settings → Model Provider → Add → OpenAI", fields.replace("URL", "API Host")),
        (
            "Continue",
            "~/.continue/config.yaml",
            f"models:\n  - name: Recollect\n    provider: openai\n    model: recollect\n    {yaml}",
        ),
        ("Zed", "Agent → LLM Providers → OpenAI API Compatible", fields),
        ("aider", ".env", f"{variables}\nAIDER_MODEL=openai/recollect\nAIDER_WEAK_MODEL=openai/recollect-private"),
        (
            "llm",
            "extra-openai-models.yaml",
            f"- model_id: recollect\n  model_name: recollect\n  api_base: {base}\n  api_key_name: recollect",
        ),
        (
            "Claude Code",
            gettext_noop("Run in a terminal."),
            f"{claude}\nANTHROPIC_DEFAULT_HAIKU_MODEL=recollect-private",
        ),
        ("Codex", "~/.codex/config.toml", f'[model_providers.recollect]\nname = "Recollect"\n{codex}'),
    ]


class ContextForm(forms.Form):
    query = forms.CharField(required=False, max_length=LONGEST_QUERY, label=_("Prompt"))
    project = forms.CharField(required=False, max_length=MAX_PROJECT_LENGTH, label=_("Project"))
    tokens = forms.ChoiceField(
        required=False,
        choices=[(number, f"{number:,}") for number in sorted((USUAL_TOKENS, 300, 2_000, MOST_TOKENS))],
        initial=USUAL_TOKENS,
        label=_("Tokens"),
    )


@page_that_searches
def context(request: HttpRequest) -> HttpResponse:
    """Without a prompt the beginning of a session. Looking at it counts as given to no session."""
    form = ContextForm(request.GET or None)
    lines: list[ContextLine] = []
    if not form.errors:
        asked = form.cleaned_data if form.is_bound else {}
        about: dict[str, Any] = {"user": person_of(request), "session": None, "now": timezone.now()}
        about |= {"project": asked.get("project") or None, "max_tokens": int(asked.get("tokens") or USUAL_TOKENS)}
        query = asked.get("query", "").strip()
        count_search(request)
        lines = prompt_context(query=query, **about) if query else session_context(**about)
    values: dict[str, Any] = {"form": form, "lines": [*map(_shown, lines)], "tokens": tokens_of(text_of(lines))}
    with acting_as(caller_of(request)):
        return show(request, "agent_tools/context.html", address=request.get_full_path(), tab="context", **values)


def _shown(line: ContextLine) -> tuple[str, str, str, str]:
    """A second line of a text, such as its answer, goes with the first."""
    is_alone = bool(line.id) or not line.text.startswith(ASSISTANT_LABEL)
    return line.text, line.path, in_page_language(line.why) if line.why else "", line.digest if is_alone else ""


@require_POST
def change_context(request: HttpRequest) -> HttpResponse:
    """Leave the line with the digest in `leave` out for good, or bring that in `bring` back; all, if it is empty.

    `of`: the chat of which alone it is left out, or to which it is brought back.
    """
    user, leave, bring = person_of(request), request.POST.get("leave", ""), request.POST.get("bring")
    chat = parse_id(request.POST["of"]) if request.POST.get("of") else None
    if bring is None:
        leave_out(user=user, digest=leave, conversation_id=chat)
        said = _("Left out of this chat.") if chat else _("Left out. No agent and no chat gets it any more.")
    else:
        bring_back(user=user, digest=bring, conversation_id=chat)
        said = _("Brought back.")
    before = request.POST.get("next", "")
    is_ours = before.startswith("/") and ".." not in before and url_has_allowed_host_and_scheme(before, None)
    return done(request, said, before if is_ours else "context")
