"""The language models to choose from, configured or listed by their servers, their windows, and the choices of a chat.

How many tokens each reads is a setting, or what its server says (`intake/llm/model_servers.py`), or known of its
family, or assumed. This module loads no vendor's package, so a page can offer the models quickly.
"""

import logging
import re
import threading
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django.conf import settings

from core.errors import InvalidInput
from core.isolation.acting import Caller
from core.text import gettext_noop as _
from intake.llm.model_servers import FAILURES, Window, list_models
from intake.models import ChatPreferences, Conversation
from intake.models.conversations import MODEL_NAME_LENGTH
from intake.models.installation import MODELS, cipher_for, kept_setting

logger = logging.getLogger(__name__)

# The vendors' models that refuse a temperature. pydantic-ai knows them too, but a page cannot wait for its import.
_FIXED_OPENAI = re.compile(r"o\d|gpt-[5-9]")
_FIXED_ANTHROPIC = re.compile(r"claude-(fable|mythos|opus-4-[7-9]|(opus|sonnet|haiku)-[5-9])")
# Families whose models all see pictures, and the names that others give those of theirs that do.
_SEES_PICTURES = re.compile(
    r"claude|gpt-(4o|4\.1|4-turbo|[5-9])|chatgpt-4o|o[134](-|$)|gemini|.*(vision|llava|pixtral|-vl)"
)
# What the keys of models are sealed for.
OF_KEYS = "keys of language models"
ANTHROPIC, OPENAI = "anthropic:", "openai:"
# How long a server's list of models is valid, and what it says of a window.
LISTED_SECONDS = 60.0
# Below this many tokens a chat forgets within a few messages, so that somebody should know.
SMALL_TOKENS = 8_000
LONGEST_NUMBER = 9


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """`name` is for people. `id` is the server's name for it, after `anthropic:` for Anthropic's."""

    name: str
    id: str
    base_url: str = ""
    # In no log: it is left out of what is written of the model.
    api_key: str = field(default="", repr=False)
    # How much it thinks before it answers: an effort such as `low`, `on`, `off`; empty uses the server's default.
    thinking: str = ""
    # The length of its context by the settings; 0: what its server says, or its family.
    context_tokens: int = 0
    # Whether it sees pictures, by the settings: `on`, `off`; empty goes by its name.
    vision: str = ""
    # Of a server with many: the model that answers new chats, and those that nobody is offered.
    first: str = ""
    hidden: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name as people read it: "gpt-oss 20B" for `ollama/gpt-oss:20b`. One that staff wrote stays."""
        if self.name == self.own_name or not self.name.endswith(f"/{self.id}"):
            return self.name
        own = self.id.rpartition("/")[2].removesuffix(".gguf").removesuffix(":latest")
        return re.sub(r"(?<=[ -])\d+(?:\.\d+)?[bm](?![a-z])", lambda size: size[0].upper(), own.replace(":", " "))

    @property
    def sees_pictures(self) -> bool:
        """A model of an unknown family gets no picture: some servers refuse the whole request."""
        if self.vision:
            return self.vision == "on"
        return bool(self.id.startswith(ANTHROPIC) or _SEES_PICTURES.match(self.own_name.rpartition("/")[2].lower()))

    @property
    def own_name(self) -> str:
        """The model's own name, without its vendor's."""
        return _own_name(self.id)

    @property
    def host(self) -> str:
        """The server's host and port, for the log: an address may contain a password, and a path may contain a key."""
        vendor = "api.anthropic.com" if self.id.startswith(ANTHROPIC) else "api.openai.com"
        return urlsplit(self.base_url).netloc.rpartition("@")[2] or (self.base_url and "?") or vendor

    @property
    def takes_temperature(self) -> bool:
        """A model at a custom address is assumed to accept a temperature."""
        if self.id.startswith(ANTHROPIC):
            return not _FIXED_ANTHROPIC.match(self.own_name) and self.thinking in ("", "off")
        return bool(self.base_url) or not _FIXED_OPENAI.match(self.own_name)


def ask_servers() -> None:
    """Asks each server for its models that has not been asked yet. Call it before a transaction that needs the models:
    within one no server is asked.
    """
    for entry in entries():
        if not entry.id:
            _listed(entry)


def is_recall_mode() -> bool:
    return not settings.LLM_MODEL and not settings.LLM_MODELS and not kept_models()


def offered(caller: Caller) -> list[LanguageModel]:
    """The models that the caller may choose, the installation's default first. A visitor gets only that one."""
    named = [model for entry in entries() for model in models_of(entry)]
    return named if caller.is_registered else named[:1]


def find(name: str, caller: Caller) -> LanguageModel | None:
    """The model of this name, if the caller may choose it.

    If its server does not list its models, the name is accepted; the answer will fail if the model does not exist.
    """
    if not caller.is_registered:
        return next((model for model in offered(caller) if model.name == name), None)
    for entry in entries():
        if entry.id:
            if entry.name == name:
                return entry
            continue
        prefix, own = f"{entry.name}/", name.removeprefix(f"{entry.name}/")
        listed = _listed(entry) if name.startswith(prefix) and own else []
        if listed is None or own in listed:
            return _of_server(entry, own)
    return None


def checked_name(name: str, caller: Caller) -> str:
    """The name as it is stored with a chat; empty for the default. Raises `InvalidInput`."""
    if name and (len(name) > MODEL_NAME_LENGTH or find(name, caller) is None):
        names = ", ".join(model.name for model in offered(caller)[:10])
        known = f"These are: {names}." if names else "No language model is configured."
        raise InvalidInput(_("There is no such model."), errors={"model": [known]})
    return name


def default_for(caller: Caller) -> LanguageModel | None:
    """The user's own default, or the installation's; None in recall mode. Reads the user's preferences."""
    preferred = ""
    if caller.is_registered and not is_recall_mode():
        mine = ChatPreferences.objects.for_caller(caller).values_list("model", flat=True)
        preferred = mine.first() or ""
    return (find(preferred, caller) if preferred else None) or next(iter(offered(caller)), None)


def model_for(conversation: Conversation, caller: Caller) -> LanguageModel | None:
    """The model that answers a chat: the chosen one while it exists, or else the default."""
    return (find(conversation.model, caller) if conversation.model else None) or default_for(caller)


def _own_name(id_: str) -> str:
    return id_.removeprefix(ANTHROPIC).removeprefix(OPENAI)


def named_models() -> list[LanguageModel]:
    """The configured models, without asking any server."""
    return [entry for entry in entries() if entry.id]


def entries() -> list[LanguageModel]:
    """The entries of the environment, then those that staff keep; one without an `id` stands for all models of its
    server. Of two with one name the environment's counts.
    """
    fixed = models_of_environment()
    names = {entry.name for entry in fixed}
    return [*fixed, *(as_model(each) for each in kept_models() if each["name"] not in names)]


def models_of_environment() -> list[LanguageModel]:
    found = []
    if settings.LLM_MODEL:
        values = (settings.LLM_MODEL, settings.LLM_BASE_URL, settings.LLM_API_KEY, settings.LLM_THINKING)
        found.append(
            LanguageModel(_own_name(settings.LLM_MODEL), *values, settings.LLM_CONTEXT_TOKENS, settings.LLM_VISION)
        )
    for name, each in settings.LLM_MODELS.items():
        values = (each["MODEL"], each["BASE_URL"], each["API_KEY"], each["THINKING"])
        tokens = as_tokens(each.get("CONTEXT_TOKENS", "")) or 0
        found.append(LanguageModel(name, *values, tokens, each.get("VISION", "")))
    return found


def kept_models() -> list[dict[str, Any]]:
    """In their order. Each has the fields of a `LanguageModel`, a `key` by which pages name it, and `sealed`."""
    return kept_setting(MODELS) or []


def as_model(kept: dict[str, Any]) -> LanguageModel:
    """Without its key if SECRET_KEY does not open it: the server refuses it then, and the page of models says why."""
    fields = {name: kept[name] for name in ("name", "id", "base_url", "thinking", "context_tokens", "vision")}
    chosen = {"first": kept.get("first", ""), "hidden": tuple(kept.get("hidden", ()))}
    return LanguageModel(**fields, **chosen, api_key=opened_key(kept["sealed"]) or "")


def sealed_key(api_key: str) -> str:
    return cipher_for(OF_KEYS).encrypt(api_key.encode()).decode() if api_key else ""


def opened_key(sealed: str) -> str | None:
    """None if neither SECRET_KEY nor a fallback opens it."""
    return _opened(sealed, settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS) if sealed else ""


@lru_cache(maxsize=100)
def _opened(sealed: str, *_secrets: str) -> str | None:
    try:
        return cipher_for(OF_KEYS).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def as_tokens(text: str) -> int | None:
    """A setting's number of tokens, 0 for an empty one; None if it is no such number."""
    digits = text.replace("_", "").strip() or "0"
    return int(digits) if digits.isdecimal() and len(digits) <= LONGEST_NUMBER else None


def models_of(entry: LanguageModel, *, with_hidden: bool = False) -> list[LanguageModel]:
    """The model, or those of a server, its default first."""
    if entry.id:
        return [entry]
    names = [own for own in _listed(entry) or () if with_hidden or own not in entry.hidden]
    return [_of_server(entry, own) for own in sorted(names, key=lambda own: own != entry.first)]


def _of_server(entry: LanguageModel, own: str) -> LanguageModel:
    return replace(entry, name=f"{entry.name}/{own}", id=own)


# By address and key: the time of the request, and the listed models with their windows, None if the server did not
# answer.
_lists: dict[tuple[str, str], tuple[float, dict[str, Window | None] | None]] = {}
_lock = threading.Lock()


def _listed(entry: LanguageModel) -> list[str] | None:
    """The models listed at `/models`; None while the server does not answer.

    Only the first caller waits; later the list is refreshed in the background, at most once a minute.
    """
    key = (entry.base_url, entry.api_key)
    with _lock:
        known = _lists.get(key)
        is_due = known is not None and time.monotonic() - known[0] >= LISTED_SECONDS
        if known is not None and is_due:
            # Only one thread asks.
            _lists[key] = (time.monotonic(), known[1])
    models = known[1] if known is not None else _refresh(entry, None)
    if known is not None and is_due:
        threading.Thread(target=_refresh, args=(entry, models), name="list of models", daemon=True).start()
    return None if models is None else list(models)


def listed_window(model: LanguageModel) -> Window | None:
    """What the list of its server says of it, without asking."""
    with _lock:
        models = _lists.get((model.base_url, model.api_key), (0.0, None))[1] or {}
    return models.get(model.own_name)


def _refresh(entry: LanguageModel, before: dict[str, Window | None] | None) -> dict[str, Window | None] | None:
    """Keeps the earlier list while the server does not answer."""
    try:
        models: dict[str, Window | None] | None = list_models(entry.base_url, entry.api_key)
    except FAILURES as error:
        # Only the kind of error: its text may contain the address with a password.
        logger.warning("The server of %s lists no models (%s)", entry.name, type(error).__name__)
        models = before
    with _lock:
        _lists[(entry.base_url, entry.api_key)] = (time.monotonic(), models)
    return models
