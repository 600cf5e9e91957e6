"""The language models to choose from, and the choices of a chat.

Lists the language models to choose from: configured ones, and those that their servers list.

This module loads no vendor's package, so a page can offer the models quickly.
"""

import json
import logging
import re
import threading
import time
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Annotated, Any
from urllib.parse import urlsplit

from django.conf import settings
from pydantic import Field

from core.errors import InvalidInput
from core.isolation.acting import Caller
from core.resilience import refuse_in_transaction
from core.text import gettext_noop as _
from core.validation import Input, checked, text_limit
from intake.chats.services import ChatChoices
from intake.models import ChatPreferences, Conversation
from intake.models.conversations import MODEL_NAME_LENGTH

logger = logging.getLogger(__name__)

# The vendors' models that refuse a temperature. pydantic-ai knows them too, but a page cannot wait for its import.
_FIXED_OPENAI = re.compile(r"o\d|gpt-[5-9]")
_FIXED_ANTHROPIC = re.compile(r"claude-(fable|mythos|opus-4-[7-9]|(opus|sonnet|haiku)-[5-9])")
ANTHROPIC, OPENAI = "anthropic:", "openai:"
# How long a server's list of models is valid, and how long a page or an answer waits for a new one.
LISTED_SECONDS = 60.0
LISTING_SECONDS = 2.0
MOST_LISTED = 500
LONGEST_LIST = 2_000_000


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """`name` is for people. `id` is the server's name for it, after `anthropic:` for Anthropic's."""

    name: str
    id: str
    base_url: str = ""
    api_key: str = ""
    # How much it thinks before it answers: an effort such as `low`, `on`, `off`; empty uses the server's default.
    thinking: str = ""

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
    return not settings.LLM_MODEL and not settings.LLM_MODELS


def offered(caller: Caller) -> list[LanguageModel]:
    """The models that the caller may choose, the installation's default first. A visitor gets only that one."""
    named = [model for entry in _entries() for model in _models_of(entry)]
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
    """The configured entries; one without an `id` stands for all models of its server."""
    found = []
    if settings.LLM_MODEL:
        values = (settings.LLM_MODEL, settings.LLM_BASE_URL, settings.LLM_API_KEY, settings.LLM_THINKING)
        found.append(LanguageModel(_own_name(settings.LLM_MODEL), *values))
    for name, each in settings.LLM_MODELS.items():
        found.append(LanguageModel(name, each["MODEL"], each["BASE_URL"], each["API_KEY"], each["THINKING"]))
    return found


def _models_of(entry: LanguageModel) -> list[LanguageModel]:
    return [entry] if entry.id else [_of_server(entry, own) for own in _listed(entry) or ()]


def _of_server(entry: LanguageModel, own: str) -> LanguageModel:
    return LanguageModel(f"{entry.name}/{own}", own, entry.base_url, entry.api_key, entry.thinking)


# By address and key: the time of the request, and the listed models, None if the server did not answer.
_lists: dict[tuple[str, str], tuple[float, list[str] | None]] = {}
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
    if known is None:
        return _refresh(entry, None)
    if is_due:
        threading.Thread(target=_refresh, args=(entry, known[1]), name="list of models", daemon=True).start()
    return known[1]


def _refresh(entry: LanguageModel, before: list[str] | None) -> list[str] | None:
    """Keeps the earlier list while the server does not answer."""
    try:
        names: list[str] | None = _ask(entry)
    except (OSError, ValueError, HTTPException) as error:
        # Only the kind of error: its text may contain the address with a password.
        logger.warning("The server of %s lists no models (%s)", entry.name, type(error).__name__)
        names = before
    with _lock:
        _lists[(entry.base_url, entry.api_key)] = (time.monotonic(), names)
    return names


def _ask(entry: LanguageModel) -> list[str]:
    """Raises `OSError`, `HTTPException` and `ValueError`."""
    if not entry.base_url.startswith(("http://", "https://")):
        raise ValueError("no address of a server")
    refuse_in_transaction("The list of a language model's server")
    request = urllib.request.Request(f"{entry.base_url.rstrip('/')}/models")  # noqa: S310 - the address is checked above
    if entry.api_key:
        request.add_header("Authorization", f"Bearer {entry.api_key}")
    with urllib.request.urlopen(request, timeout=LISTING_SECONDS) as response:  # noqa: S310 - the address is checked above
        data: Any = json.loads(response.read(LONGEST_LIST))
    rows = data.get("data") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise ValueError("not a list of models")
    names = (row.get("id") for row in rows if isinstance(row, dict))
    return sorted({name for name in names if isinstance(name, str) and name})[:MOST_LISTED]


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
    temporary: Annotated[
        bool | None,
        Field(
            description="A temporary chat is not searched, listed or exported, and goes when it is left or after a "
            "day. Only a new chat can be made so; `false` keeps one."
        ),
    ] = None

    def as_choices(self, caller: Caller) -> ChatChoices:
        """Raises `InvalidInput` for a model that the caller may not choose, and for instructions that are too long."""
        if self.instructions is not None:
            checked(self.instructions, field="instructions", max_length=MAX_INSTRUCTIONS, may_be_blank=True)
        return ChatChoices(
            model=None if self.model is None else checked_name(self.model, caller),
            instructions=self.instructions,
            temperature=self.temperature,
            keeps_default_temperature="temperature" in self.model_fields_set and self.temperature is None,
            uses_memory=self.memory,
            is_temporary=self.temporary,
        )


def refuse_temporary(requested: ChatOptions) -> None:
    """For a chat that exists already."""
    if requested.temporary:
        raise InvalidInput(ONLY_NEW, errors={"temporary": [ONLY_NEW]})


@dataclass(frozen=True, slots=True)
class OfferedChoices:
    """The choices that a page offers for a chat. `default` is the name of the model that answers without a choice."""

    models: list[LanguageModel]
    default: str
    selected: str
    hottest: float = HOTTEST
    longest: int = MAX_INSTRUCTIONS


def offered_choices(caller: Caller, conversation: Conversation | None = None) -> OfferedChoices | None:
    """None in recall mode, which offers no choice. Reads the user's preferences."""
    if is_recall_mode():
        return None
    default = default_for(caller)
    present = default if conversation is None else model_for(conversation, caller)
    models = offered(caller)
    if present is not None and present not in models:
        models.append(present)
    return OfferedChoices(models, default=default.name if default else "", selected=present.name if present else "")
