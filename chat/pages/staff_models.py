"""The language models that staff keep: `/staff/models/` and the page that adds or changes one.

They are kept in the database (`intake.models.installation.keep_setting`) and apply in every process within seconds.
What the environment sets is shown, and cannot be changed here.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django.views.decorators.debug import sensitive_post_parameters

from chat.pages.common import done
from chat.pages.staff import KEY_IS_KEPT, LONGEST_KEY, key_field, note_action, server_address, staff_form
from core.errors import NotFound
from core.text import in_page_language
from intake import passwords
from intake.llm.language_models import (
    ANTHROPIC,
    LONGEST_NUMBER,
    LanguageModel,
    as_model,
    ask_servers,
    is_recall_mode,
    kept_models,
    models_of,
    models_of_environment,
    opened_key,
    sealed_key,
)
from intake.llm.model_servers import FAILURES, FoundServer, best_model, find_servers, list_models
from intake.llm.windows import learn_window, note_on_window, window_of
from intake.models import User
from intake.models.conversations import MODEL_NAME_LENGTH
from intake.models.installation import MODELS, keep_setting

MOST_MODELS = 50
# Of a server that was found; and of one that offers all of its models without a choice.
MOST_NAMED, MOST_OFFERED = 3, 20
NEW = "new"
# Within the time of a request, the window's four seconds included.
HELLO_SECONDS = 20.0
AS_SERVER = ("", gettext_lazy("As its server does"))
THINKING = (AS_SERVER, *((level, level) for level in ("on", "off", "low", "medium", "high")))
VISION = (("", gettext_lazy("By its name")), ("on", gettext_lazy("Yes")), ("off", gettext_lazy("No")))
# The cards of the page that adds a model: each with its title, a line, and the address to begin with.
SOURCES = {
    "ollama": ("Ollama", gettext_lazy("On this machine or in your network"), "http://127.0.0.1:11434/v1"),
    "openai": ("OpenAI", gettext_lazy("With a key"), ""),
    "anthropic": ("Anthropic", gettext_lazy("With a key"), ""),
    "openrouter": ("OpenRouter", gettext_lazy("With a key"), "https://openrouter.ai/api/v1"),
    "other": (gettext_lazy("Another server"), gettext_lazy("LM Studio, llama.cpp, vLLM …"), ""),
}
# Where these vendors list their models; their own clients know where to ask them.
VENDORS = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com/v1"}


class ModelForm(forms.Form):
    """A model, or all those of a server. Its key is never sent to the browser as it is; an empty field keeps it."""

    base_url = forms.CharField(
        required=False,
        max_length=300,
        label=gettext_lazy("Address"),
        help_text=gettext_lazy("Of a server with OpenAI's protocol. It often ends in /v1."),
    )
    api_key = key_field()
    # The key of the step before, encrypted, while a model is chosen.
    sealed = forms.CharField(required=False, max_length=4 * LONGEST_KEY, widget=forms.HiddenInput)
    id = forms.CharField(
        required=False,
        max_length=MODEL_NAME_LENGTH,
        label=gettext_lazy("Model"),
        help_text=gettext_lazy("Empty: all that the server lists."),
    )
    name = forms.RegexField(
        r"\A[\w.:-]+\Z",
        required=False,
        max_length=MODEL_NAME_LENGTH // 2,
        label=gettext_lazy("Name"),
        help_text=gettext_lazy("As people choose it."),
        error_messages={"invalid": gettext_lazy("Letters, digits and . : - _ without spaces.")},
    )
    context_tokens = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=10**LONGEST_NUMBER - 1,
        label=gettext_lazy("Context window (tokens)"),
        help_text=gettext_lazy("Empty: what its server says."),
    )
    thinking = forms.ChoiceField(required=False, choices=THINKING, label=gettext_lazy("Thinking"))
    vision = forms.ChoiceField(required=False, choices=VISION, label=gettext_lazy("Sees pictures"))

    def __init__(self, *args: Any, before: dict[str, Any] | None, source: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before, self.source = before, source
        if source in VENDORS:
            del self.fields["base_url"]
        if before is not None and before["sealed"]:
            self.fields["api_key"].help_text = KEY_IS_KEPT

    def clean_name(self) -> str:
        """Of a new one without a name, the model's own or its server's: that of its card, or its host."""
        server = urlsplit(self.cleaned_data.get("base_url", "")).hostname if self.source == "other" else self.source
        own = self.cleaned_data.get("id", "").rpartition("/")[2].removeprefix(ANTHROPIC)
        name: str = self.cleaned_data["name"] or re.sub(r"[^\w.:-]+", "-", own or server or self.source)
        taken = _names(but=self.before["key"] if self.before else "")
        if name in taken and self.cleaned_data["name"]:
            raise forms.ValidationError(_("There is a model of this name already."), code="taken")
        return _free(name, taken)

    def clean_base_url(self) -> str:
        return server_address(self.cleaned_data["base_url"])

    def clean(self) -> dict[str, Any]:
        """A kept key goes to no other server than the one that it was entered for."""
        data = super().clean() or {}
        address, model = data.get("base_url", ""), data.get("id", "")
        if self.source == "anthropic" and model and not model.startswith(ANTHROPIC):
            data["id"] = ANTHROPIC + model
        if self.source not in VENDORS and "base_url" in data and not address and not model.removeprefix(ANTHROPIC):
            self.add_error("id", _("Without an address it needs the name of a model."))
        is_elsewhere = self.before is not None and _server_of(address) != _server_of(self.before["base_url"])
        if is_elsewhere and self.before and self.before["sealed"] and not data.get("api_key"):
            self.add_error("api_key", _("The address is another one: enter the key for it."))
        return data

    @property
    def key(self) -> str:
        kept = self.before["sealed"] if self.before else ""
        return self.cleaned_data["api_key"] or opened_key(self.cleaned_data["sealed"] or kept) or ""

    def is_tried(self) -> bool:
        """Ask the server for its models, and say beside the field what is wrong; the last word has a second press.

        Add `/v1` to an address that needs it. A vendor, or a server of many models, has one chosen.
        """
        data = self.cleaned_data
        address = data.get("base_url") or VENDORS.get(self.source, "")
        if (
            "anyway" in self.data
            or not address
            or (self.before is not None and not {"base_url", "api_key"} & {*self.changed_data})
        ):
            return True
        self.fields["sealed"].initial = sealed_key(self.key)
        self.data = {**{name: self.data[name] for name in self.data}, "sealed": sealed_key(self.key)}
        passwords.give_connections_back()
        try:
            try:
                names = list(list_models(address, self.key))
            except HTTPError as error:
                if error.code != 404 or address.endswith("/v1"):
                    raise
                names = list(list_models(f"{address}/v1", self.key))
                data["base_url"] = f"{address}/v1"
        except HTTPError as error:
            is_key = error.code in (401, 403)
            field, sentence = ("api_key", _("The server does not accept this key.")) if is_key else ("base_url", "")
            sentence = sentence or _("The server answered %(code)d. Does the address end in /v1?") % {
                "code": error.code
            }
            self.add_error(field if field in self.fields else "api_key", sentence)
        except FAILURES as error:
            sentence = _("No server answers at this address (%(kind)s).") % {"kind": type(error).__name__}
            self.add_error("base_url" if "base_url" in self.fields else "api_key", sentence)
        else:
            if data["id"]:
                return True
            if self.source in VENDORS or len(names) > MOST_OFFERED:
                every = [] if self.source in VENDORS else [("", _("All of them"))]
                self.fields["id"].widget = forms.Select(choices=[*every, *((name, name) for name in names)])
                self.fields["id"].help_text = ""
                return False
            data["first"] = best_model(data["base_url"], self.key, names)
            return True
        return False

    def as_row(self) -> dict[str, Any]:
        data, before = self.cleaned_data, self.before or {}
        return {
            **{name: before.get(name, default) for name, default in (("first", ""), ("hidden", []))},
            **{name: data.get(name, "") for name in ("name", "base_url", "id", "thinking", "vision")},
            **({"first": data["first"]} if "first" in data else {}),
            "key": before.get("key") or secrets.token_hex(4),
            "sealed": sealed_key(self.key) or before.get("sealed", ""),
            "context_tokens": data["context_tokens"] or 0,
        }


def _names(*, but: str = "") -> set[str]:
    kept = {each["name"] for each in kept_models() if each["key"] != but}
    return kept | {model.name for model in models_of_environment()}


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "-"
    return name


def _server_of(address: str) -> tuple[str, str]:
    parts = urlsplit(address)
    return parts.scheme, parts.netloc


@staff_form
def show_models(request: HttpRequest) -> HttpResponse:
    """The models and what was found on this machine. A form changes one, or asks it something."""
    if request.method != "POST":
        return _models_page(request)
    action, key = request.POST.get("do", ""), request.POST.get("key", "")
    if action == "adopt":
        return _adopt(request, request.POST.get("address", ""))
    row, model = _row(key), request.POST.get("model", "")
    if action == "test":
        return _models_page(request, tested=key, report=_test(as_model(row)))
    if action == "remove":
        keep_setting(MODELS, lambda rows: [each for each in rows or [] if each["key"] != key])
        note_action(request, "models")
        messages.success(request, _("%(name)s is removed.") % {"name": row["name"]})
    elif action in ("up", "down"):
        keep_setting(MODELS, lambda rows: _moved(rows or [], key, -1 if action == "up" else 1))
    elif action in ("default", "hide", "show"):
        hidden = {*row.get("hidden", ())} - {model} | ({model} if action == "hide" else set())
        chosen = {"first": model} if action == "default" else {}
        keep_setting(MODELS, lambda rows: _with(rows or [], {**row, **chosen, "hidden": sorted(hidden)}))
    return redirect("intake:staff_models")


@sensitive_post_parameters("api_key", "sealed")
@staff_form
def edit_model(request: HttpRequest, key: str) -> HttpResponse:
    """A new one begins with its card; it is tried before it is kept."""
    before = None if key == NEW else _row(key)
    source = request.GET.get("of", "")
    context: dict[str, Any] = {"before": before, "tab": "models", "sources": SOURCES.items()}
    if before is None and source not in SOURCES and request.method != "POST":
        return render(request, "intake/staff/model.html", context)
    initial = {} if before is None else {name: before[name] for name in before if name not in ("key", "sealed")}
    initial = {"base_url": SOURCES[source][2]} if source in SOURCES else initial
    initial["context_tokens"] = initial.get("context_tokens") or None
    form = ModelForm(request.POST or None, before=before, source=source or "other", initial=initial)
    if form.is_valid() and form.is_tried():
        row = form.as_row()
        keep_setting(MODELS, lambda rows: _with(rows or [], row))
        note_action(request, "models")
        return done(request, _("Saved. It applies everywhere within seconds."), "intake:staff_models")
    title = before["name"] if before else SOURCES.get(source, SOURCES["other"])[0]
    return render(request, "intake/staff/model.html", {**context, "form": form, "title": title})


def _row(key: str) -> dict[str, Any]:
    """Raises `NotFound`: it may have been removed a moment ago."""
    row = next((each for each in kept_models() if each["key"] == key), None)
    if row is None:
        raise NotFound
    return row


def _with(rows: list[dict[str, Any]], row: dict[str, Any]) -> list[dict[str, Any]]:
    """The row in place of the one with its key, or at the end."""
    if any(each["key"] == row["key"] for each in rows):
        return [row if each["key"] == row["key"] else each for each in rows]
    return [*rows, row][:MOST_MODELS]


def _moved(rows: list[dict[str, Any]], key: str, by: int) -> list[dict[str, Any]]:
    keys = [each["key"] for each in rows]
    if key not in keys:
        return rows
    here = keys.index(key)
    rows.insert(max(0, here + by), rows.pop(here))
    return rows


def _adopt(request: HttpRequest, address: str) -> HttpResponse:
    """All models of a server that was found on this machine; it is looked for again, so nothing else is added."""
    found = {base_url: (title, names) for title, base_url, names in _found(request)}
    if address not in found:
        messages.error(request, _("No server answers there any more."))
        return redirect("intake:staff_models")
    title, names = found[address]
    row = {
        "name": _free(re.sub(r"[^a-z.]+", "-", title.lower()), _names()),
        "base_url": address,
        "id": "",
        "thinking": "",
        "vision": "",
        "context_tokens": 0,
    }
    row |= {"key": secrets.token_hex(4), "sealed": "", "first": best_model(address, "", names), "hidden": []}
    keep_setting(MODELS, lambda rows: _with(rows or [], row))
    note_action(request, "models")
    to = "intake:home" if "from_home" in request.POST else "intake:staff_models"
    return done(request, _("Added. Everybody can choose its models now."), to)


def _found(request: HttpRequest) -> list[FoundServer]:
    passwords.give_connections_back()
    return find_servers(own_port=int(request.META.get("SERVER_PORT") or 0))


# When this process looked for servers last, and what it found: for the start page, which is opened more often.
_nearby: list[tuple[float, list[FoundServer]]] = [(-1.0e9, [])]


def look_nearby(request: HttpRequest) -> None:
    """Look for servers on this machine, for staff of an installation without a model; call it before a transaction."""
    if _wants_model(request) and time.monotonic() - _nearby[0][0] >= 60.0:
        _nearby[0] = (time.monotonic(), _found(request))


def nearby(request: HttpRequest) -> list[FoundServer]:
    return _nearby[0][1] if _wants_model(request) else []


def _wants_model(request: HttpRequest) -> bool:
    return isinstance(request.user, User) and request.user.is_staff and is_recall_mode()


def _models_page(request: HttpRequest, **of_test: Any) -> HttpResponse:
    passwords.give_connections_back()
    ask_servers()
    rows = kept_models()
    used = {row["base_url"] for row in rows} | {model.base_url for model in models_of_environment()}
    # The same server by its other name.
    used |= {address.replace("://localhost:", "://127.0.0.1:") for address in used}
    found = [(title, address, names) for title, address, names in _found(request) if address not in used]
    context = {
        "fixed": [(model, _where(model)) for model in models_of_environment()],
        "kept": [
            (
                row,
                _where(model),
                opened_key(row["sealed"]) is None,
                # Those of a server, each with whether it is hidden.
                [(each, each.id in model.hidden) for each in models_of(model, with_hidden=True) if not model.id],
            )
            for row, model in ((row, as_model(row)) for row in rows)
        ],
        "found": [(title, address, _in_words(names)) for title, address, names in found],
        "may_add": len(rows) < MOST_MODELS,
        "tab": "models",
        **of_test,
    }
    return render(request, "intake/staff/models.html", context)


def _where(model: LanguageModel) -> str:
    """What a row says below its name: the model and its server, without a password that an address may contain."""
    return f"{model.own_name} · {model.host}" if model.id else model.host


def _in_words(names: list[str]) -> str:
    count = ngettext("%(count)d model", "%(count)d models", len(names)) % {"count": len(names)}
    shown = ", ".join(names[:MOST_NAMED]) + (" …" if len(names) > MOST_NAMED else "")
    return f"{count}: {shown}" if names else count


def _test(model: LanguageModel) -> list[str]:
    """Says hello to it, or to the first model of a server: a sentence for each thing that is known then."""
    # The vendors' packages are large, and no other page waits for them.
    from pydantic_ai.exceptions import AgentRunError

    from chat.agent.loop import explained
    from intake.llm.models import say_hello

    passwords.give_connections_back()
    try:
        if not model.id:
            names = list(list_models(model.base_url, model.api_key))
            model = replace(model, id=model.first if model.first in names else next(iter(names), ""))
        if not model.id:
            return [_("Its server lists no models.")]
        answer, uses_tools = async_to_sync(asyncio.wait_for)(say_hello(model), HELLO_SECONDS)
    except TimeoutError:
        said = _("It did not answer in %(count)d seconds. It may still be loading: try again.")
        return [said % {"count": HELLO_SECONDS}]
    except AgentRunError as error:
        return [explained(error, model)]
    except FAILURES as error:
        return [_("Its server cannot be reached (%(kind)s).") % {"kind": type(error).__name__}]
    learn_window(model)
    return [_("It answers: “%(answer)s”") % {"answer": answer[:200]}, *_abilities(model, uses_tools=uses_tools)]


def _abilities(model: LanguageModel, *, uses_tools: bool) -> Iterator[str]:
    window = window_of(model, asks=False)
    count = {"count": f"{window.tokens:,}"}
    assumed = _("Its server does not say how much it reads at once; %(count)s tokens are assumed.")
    yield (assumed if window.is_assumed else _("It reads %(count)s tokens at once.")) % count
    if (note := note_on_window(model)) is not None:
        yield in_page_language(note)
    yield (
        _("It uses tools.") if uses_tools else _("It did not call a tool when asked, so it may not search the memory.")
    )
    yield _("It is sent pictures.") if model.sees_pictures else _("It is sent no pictures.")
