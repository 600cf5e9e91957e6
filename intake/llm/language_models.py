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
from typing import Annotated, Any
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django.conf import settings
from pydantic import Field

from core.errors import InvalidInput
from core.isolation.acting import Caller
from core.text import Sentence
from core.text import gettext_noop as _
from core.validation import Input, checked, text_limit
from intake.llm.model_servers import ASSUMED, FAILURES, Window, ask_window, list_models
from intake.models import ChatPreferences, Conversation
from intake.models.conversations import MODEL_NAME_LENGTH
from intake.models.users import MODELS, cipher_for, kept_setting

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
# The same for what may change with the next answer: Ollama loads a model when it is first asked.
UNCERTAIN_SECONDS = 5.0
# Below this many tokens a chat forgets within a few messages, so that somebody should know.
SMALL_TOKENS = 8_000
ENOUGH_TOKENS = 16_384
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
    for entry in _entries():
        if not entry.id:
            _listed(entry)


def is_recall_mode() -> bool:
    return not settings.LLM_MODEL and not settings.LLM_MODELS and not kept_models()


def offered(caller: Caller) -> list[LanguageModel]:
    """The models that the caller may choose, the installation's default first. A visitor gets only that one."""
    named = [model for entry in _entries() for model in models_of(entry)]
    return named if caller.is_registered else named[:1]


def find(name: str, caller: Caller) -> LanguageModel | None:
    """The model of this name, if the caller may choose it.

    If its server does not list its models, the name is accepted; the answer will fail if the model does not exist.
    """
    if not caller.is_registered:
        return next((model for model in offered(caller) if model.name == name), None)
    for entry in _entries():
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
    return [entry for entry in _entries() if entry.id]


def _entries() -> list[LanguageModel]:
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


# --- The models that staff keep in the browser (`chat/pages/staff_models.py`): rows of a setting, their keys sealed ---


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


# --- The window of a model: how many tokens it reads at once, the answer included ---

# By address, key and the model's own name: until when it is valid, and the window, None if the server does not say.
_windows: dict[tuple[str, str, str], tuple[float, Window | None]] = {}
MOST_WINDOWS = 1_000
MOST_EXAMINED = 5
_asking: set[tuple[str, str, str]] = set()
# The small windows that the log has named.
_named: set[tuple[str, str, int]] = set()

SMALL_OF_OLLAMA = _(
    "%(model)s reads only %(count)s tokens at once, so a chat soon outgrows it. Start Ollama with "
    "OLLAMA_CONTEXT_LENGTH=%(enough)s."
)
SMALL = _(
    "%(model)s reads only %(count)s tokens at once, so a chat soon outgrows it. Load it with a longer context of at "
    "least %(enough)s tokens."
)


# Of models that their vendors serve. Others are loaded with any length.
FAMILIES: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"gpt-4\.1"), 1_047_576),
    (re.compile(r"gpt-[5-9]"), 272_000),
    (re.compile(r"gpt-4o|gpt-4\.5|gpt-4-(?:turbo|\d{4}-preview)|chatgpt-4o|o1-mini|o1-preview"), 128_000),
    (re.compile(r"gpt-4-32k"), 32_768),
    (re.compile(r"gpt-4"), 8_192),
    (re.compile(r"gpt-3\.5"), 16_385),
    (re.compile(r"o\d"), 200_000),
    (re.compile(r"claude-(?:2\.0|instant)"), 100_000),
    (re.compile(r"claude"), 200_000),
    (re.compile(r"gemini-(?:1\.5|[2-9])"), 1_048_576),
    (re.compile(r"grok-[3-9]"), 131_072),
    (re.compile(r"deepseek-(?:chat|reasoner)"), 64_000),
    (re.compile(r"mistral-(?:large|medium)-(?:latest|\d{4})|codestral-latest"), 128_000),
)


def _of_family(name: str, *, is_vendors: bool) -> Window | None:
    """By the model's own name. `is_vendors`: it is asked of its vendor itself and not of a server between."""
    own = name.rpartition("/")[2].lower()
    tokens = next((tokens for pattern, tokens in FAMILIES if pattern.match(own)), None)
    return None if tokens is None else Window(tokens, is_certain=is_vendors)


def window_of(model: LanguageModel, *, asks: bool = True) -> Window:
    """What is known now, without waiting: a server is asked in the background, at most once a minute."""
    if model.context_tokens:
        return Window(model.context_tokens)
    asked = _asked_window(model, asks=asks) if _has_server(model) else None
    is_vendors = not model.base_url or model.id.startswith(ANTHROPIC)
    return asked or _of_family(model.own_name, is_vendors=is_vendors) or ASSUMED


def is_window_asked(model: LanguageModel) -> bool:
    """Whether `window_of` knows all that can be known, so that no answer needs to wait for `learn_window`."""
    return bool(model.context_tokens) or not _has_server(model) or _key_of(model) in _windows


def learn_window(model: LanguageModel) -> None:
    """Ask the model's server, for a few seconds at most; keeps what was known while it does not answer.

    Call it outside a transaction.
    """
    key = _key_of(model)
    before = _windows.get(key, (0.0, None))[1]
    try:
        window = ask_window(model.base_url, model.api_key, model.own_name)
    except FAILURES as error:
        logger.info("The server of %s does not say how much it reads (%s)", model.own_name, type(error).__name__)
        window = before
    is_passing = window is not None and not window.is_certain and window.is_ollama
    with _lock:
        _asking.discard(key)
        if len(_windows) >= MOST_WINDOWS:
            _windows.clear()
        _windows[key] = (time.monotonic() + (UNCERTAIN_SECONDS if is_passing else LISTED_SECONDS), window)
    if window is not None:
        _log_if_small(model, window)


def small_windows(name: str) -> list[Sentence]:
    """The sentences about models whose windows are too small, each called `name`; of a server that lists many, of the
    first few. Asks the servers now, outside a transaction.
    """
    models = [model for entry in _entries() for model in models_of(entry)[:MOST_EXAMINED]]
    for model in models:
        if _has_server(model) and not model.context_tokens:
            learn_window(model)
    notes = (note_on_window(model, name=name) for model in models)
    return list(dict.fromkeys(note for note in notes if note is not None))


def note_on_window(model: LanguageModel, *, name: str = "") -> Sentence | None:
    """The sentence about a window that is too small for a chat, with what mends it; None for any other."""
    # A server may list hundreds of models, of which somebody chooses one.
    window = window_of(model, asks=model in named_models() or _key_of(model) in _windows)
    if window.is_assumed or window.tokens >= SMALL_TOKENS:
        return None
    sentence = SMALL_OF_OLLAMA if window.is_ollama else SMALL
    # The line that mends it is copied, so its number has no separators.
    return Sentence(sentence, model=name or model.name, count=window.tokens, enough=str(ENOUGH_TOKENS))


def _log_if_small(model: LanguageModel, window: Window) -> None:
    key = (model.base_url, model.own_name, window.tokens)
    if window.tokens < SMALL_TOKENS and key not in _named:
        _named.add(key)
        logger.warning("%s", note_on_window(model))


def _has_server(model: LanguageModel) -> bool:
    """Whether it is asked at an address that may say more than its vendor's own, which says nothing."""
    return model.base_url.startswith(("http://", "https://")) and not model.id.startswith(ANTHROPIC)


def _asked_window(model: LanguageModel, *, asks: bool) -> Window | None:
    key = _key_of(model)
    with _lock:
        until, window = _windows.get(key, (0.0, None))
        # Only one thread asks.
        is_due = asks and time.monotonic() >= until and key not in _asking
        if is_due:
            _asking.add(key)
        models = _lists.get(key[:2], (0.0, None))[1] or {}
    if is_due:
        threading.Thread(target=learn_window, args=(model,), name="window of a model", daemon=True).start()
    return window or models.get(model.own_name)


def _key_of(model: LanguageModel) -> tuple[str, str, str]:
    return (model.base_url, model.api_key, model.own_name)


# --- Validates how a chat is answered (model, instructions, memory), for the API and for pages ---

MAX_INSTRUCTIONS = 4_000
HOTTEST = 2.0
ONLY_NEW = _("Only a new chat can be temporary.")


class ChatOptions(Input):
    """Omitted fields stay unchanged; the schema's defaults have no effect."""

    model: Annotated[
        str | None,
        Field(
            max_length=MODEL_NAME_LENGTH,
            description="The name of a model of `GET /api/v1/models/`; empty for the person's default.",
        ),
    ] = None
    instructions: Annotated[
        str | None,
        Field(
            description=f"What the person asks of the model in this chat, at most {MAX_INSTRUCTIONS:,} characters.",
            json_schema_extra=text_limit(MAX_INSTRUCTIONS),
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Field(ge=0, le=HOTTEST, description="Left out for a model that takes none. `null`: the model's own default."),
    ] = None
    memory: Annotated[
        bool | None, Field(description="Whether the chat is answered with what the person said and kept elsewhere.")
    ] = None
    proposes: Annotated[
        bool | None,
        Field(
            description="Whether the chat is read once it has ended, for things to remember that are then proposed. "
            "It takes effect for a person who agreed to that in their account; never for a temporary chat."
        ),
    ] = None
    temporary: Annotated[
        bool | None,
        Field(
            description="A temporary chat is not searched, listed or exported, and goes when it is left or after a "
            "day. Only a new chat can be made so; `false` keeps one."
        ),
    ] = None

    def check(self, caller: Caller, *, is_new: bool = False) -> None:
        """Raises `InvalidInput` for a model that the caller may not choose, for instructions that are too long, and for
        a present chat that is to become temporary.
        """
        if self.temporary and not is_new:
            raise InvalidInput(ONLY_NEW, errors={"temporary": [ONLY_NEW]})
        if self.instructions is not None:
            checked(self.instructions, field="instructions", max_length=MAX_INSTRUCTIONS, may_be_blank=True)
        if self.model is not None:
            checked_name(self.model, caller)

    @property
    def resets_temperature(self) -> bool:
        return self.temperature is None and "temperature" in self.model_fields_set

    def apply_to(self, conversation: Conversation) -> list[str]:
        """Set them on a conversation whose row is locked, or new; returns the changed fields."""
        requested = {
            "model": self.model,
            "instructions": None if self.instructions is None else self.instructions.replace("\x00", "").strip(),
            "temperature": self.temperature,
            "uses_memory": self.memory,
            "proposes": self.proposes,
        }
        changed = [name for name, value in requested.items() if value is not None]
        changed += ["temperature"] if self.resets_temperature else []
        for name in changed:
            setattr(conversation, name, requested[name])
        return changed


def offered_choices(caller: Caller, conversation: Conversation | None = None) -> dict[str, Any] | None:
    """What a page offers for a chat: the `models`, the selected `model`, and the limits of the other fields.

    None in recall mode, which offers no choice. Reads the user's preferences.
    """
    if is_recall_mode():
        return None
    present = default_for(caller) if conversation is None else model_for(conversation, caller)
    models = offered(caller)
    if present is not None and present not in models:
        models.append(present)
    limits = {"hottest": HOTTEST, "longest": MAX_INSTRUCTIONS}
    return {"models": models, "model": present, "selected": present.name if present else "", **limits}
