"""Builds the models behind the names (`intake/language_models.py`), or recall mode if no model is configured.

Also mends streams of servers that are compatible with OpenAI's except for the numbers of tool calls.
"""

import asyncio
import json
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

import httpx2
from django.conf import settings
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from core.endpoints import refuse_in_transaction
from core.errors import Unavailable
from core.isolation.caller import Caller
from intake.agent.recall import recall_model
from intake.language_models import ANTHROPIC, LanguageModel, is_recall_mode, named_models

# An address where no server answers is noticed early; after that the model may take its time.
CONNECT_SECONDS = 10.0
# How much later the client gives up than the deadline for the first word, which covers all of its attempts.
AFTER_THE_DEADLINE = 5.0
# Thinking levels with another value in pydantic-ai; the other levels have the same name there.
THINKING: dict[str, Any] = {"on": True, "off": False}


def chat_model(caller: Caller, chosen: LanguageModel | None, *, is_temporary: bool = False) -> Model:
    """Raises `Unavailable` if a model is configured but none is available."""
    if is_recall_mode():
        return recall_model(caller, is_temporary=is_temporary)
    if chosen is None:
        raise Unavailable("No language model's server can be reached. Try again.")
    return _kept_model(chosen)


async def warm_up() -> None:
    """Load the vendors' packages, and build this event loop's clients for the configured models. Sends nothing."""
    for chosen in named_models():
        built = await asyncio.to_thread(_build, chosen)
        _models.setdefault(get_running_loop(), {}).setdefault(chosen, built)


def model_settings(chosen: LanguageModel | None = None, *, temperature: float | None = None) -> ModelSettings:
    """The timeout for the first sign of an answer and between its pieces, and one retry of a refused request.

    A temperature is left out for a model that accepts none.
    """
    seconds = settings.LLM_TIMEOUT_SECONDS
    between = seconds + AFTER_THE_DEADLINE
    asked = ModelSettings(timeout=between, first_event_timeout=seconds, max_retries=1)
    if chosen is not None and not chosen.id.startswith(ANTHROPIC):
        from openai import Timeout

        asked["timeout"] = Timeout(between, connect=CONNECT_SECONDS)
    if chosen is not None and chosen.thinking:
        asked["thinking"] = THINKING.get(chosen.thinking, chosen.thinking)
    if chosen is not None and temperature is not None and chosen.takes_temperature:
        asked["temperature"] = temperature
    return asked


async def close_connections() -> None:
    """Close this event loop's connections to the vendors, at its end."""
    for model in _models.pop(get_running_loop(), {}).values():
        await model.client.close()


# A connection belongs to the event loop in which it was opened.
_models: WeakKeyDictionary[AbstractEventLoop, dict[LanguageModel, Any]] = WeakKeyDictionary()


def _kept_model(chosen: LanguageModel) -> Model:
    """Kept, with its connections, as long as the event loop runs."""
    models = _models.setdefault(get_running_loop(), {})
    if chosen not in models:
        models[chosen] = _build(chosen)
    return cast(Model, models[chosen])


def _build(chosen: LanguageModel) -> Any:
    """The vendor's model, which refuses to be asked inside a database transaction."""
    from pydantic_ai.models.wrapper import WrapperModel

    class Guarded(WrapperModel):
        async def request(self, *args: Any, **kwargs: Any) -> Any:
            refuse_in_transaction("The language model")
            return await self.wrapped.request(*args, **kwargs)

        @asynccontextmanager
        async def request_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            refuse_in_transaction("The language model")
            async with self.wrapped.request_stream(*args, **kwargs) as response:
                yield response

    return Guarded(_vendors(chosen))


def _vendors(chosen: LanguageModel) -> Any:
    """Vendors' packages are large, so they are loaded only when needed."""
    name, base_url, api_key = chosen.own_name, chosen.base_url, chosen.api_key
    if chosen.id.startswith(ANTHROPIC):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(name, provider=AnthropicProvider(api_key=api_key, base_url=base_url or None))
    from openai import DefaultAsyncHttpxClient
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if base_url:
        # The templates of many models accept only one system prompt.
        one_system_message = OpenAIModelProfile(openai_chat_supports_multiple_system_messages=False)
        # A local server needs no key, but the client must send one.
        # A compressed stream could not be mended.
        http_client = DefaultAsyncHttpxClient(
            event_hooks={"response": [_mend_stream]}, headers={"Accept-Encoding": "identity"}
        )
        compatible = OpenAICompatibleProvider(
            "llm", base_url=base_url, api_key=api_key or "none", http_client=http_client
        )
        return OpenAIChatModel(name, provider=compatible, profile=one_system_message)
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key=api_key))


async def _mend_stream(response: Any) -> None:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _MendedStream(response.stream)


class _MendedStream(httpx2.AsyncByteStream):
    """A stream of server-sent events in which every tool call has a number and an id of its own."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.calls = stream, _Calls()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for piece in self.stream:
            *lines, rest = (rest + piece).split(b"\n")
            if lines:
                yield b"".join(self._mended(line) + b"\n" for line in lines)
        if rest:
            yield self._mended(rest)

    async def aclose(self) -> None:
        await self.stream.aclose()

    def _mended(self, line: bytes) -> bytes:
        if not line.startswith(b"data:") or b'"tool_calls"' not in line:
            return line
        try:
            event = json.loads(line.removeprefix(b"data:"))
            for choice in event["choices"]:
                for delta in choice["delta"].get("tool_calls") or ():
                    self.calls.mend(delta)
        except (ValueError, TypeError, KeyError, AttributeError):
            # The client reports it.
            return line
        return b"data: " + json.dumps(event).encode()


@dataclass
class _Call:
    number: int
    theirs: str | None
    id: str | None
    name: str
    arguments: str = ""

    @property
    def is_complete(self) -> bool:
        try:
            json.loads(self.arguments)
        except ValueError:
            return False
        return True


@dataclass
class _Calls:
    """The calls of one response. Servers have sent two with one index (Ollama), with one id, and names repeatedly."""

    open: dict[Any, _Call] = field(default_factory=dict)
    ids: set[str] = field(default_factory=set)
    count: int = 0

    def mend(self, delta: dict[str, Any]) -> None:
        function = delta.get("function") or {}
        if isinstance(function.get("arguments"), dict):
            function["arguments"] = json.dumps(function["arguments"])
        known = self.open.get(delta.get("index"))
        if known is None or self._begins(known, delta, function):
            known = self.open[delta.get("index")] = self._begin(delta, function)
        elif function.get("name"):
            # A repeated name would be appended to the first.
            function["name"] = None
        delta["index"] = known.number
        if delta.get("id"):
            delta["id"] = known.id
        known.arguments += function.get("arguments") or ""

    def _begins(self, known: _Call, delta: dict[str, Any], function: dict[str, Any]) -> bool:
        """Whether the piece belongs to another call than the last one with its index."""
        if not function.get("name"):
            return False
        has_other_id = bool(delta.get("id") and known.theirs and delta["id"] != known.theirs)
        return has_other_id or (known.is_complete and bool(function.get("arguments")))

    def _begin(self, delta: dict[str, Any], function: dict[str, Any]) -> _Call:
        theirs, number = delta.get("id"), self.count
        own = f"{theirs}-{number + 1}" if theirs in self.ids else theirs
        if own is not None:
            self.ids.add(own)
        self.count += 1
        return _Call(number, theirs, own, function.get("name") or "")
