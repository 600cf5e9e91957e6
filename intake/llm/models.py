"""Builds the models behind the names (`intake/llm/language_models.py`).

Also counts the tokens of a text without its model's tokenizer, and mends streams of servers that are compatible with
OpenAI's except for the numbers of tool calls.
"""

import asyncio
import json
import re
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import httpx2
from django.conf import settings

from core.errors import Unavailable
from core.resilience import refuse_in_transaction
from core.text import cut_point
from intake.llm.language_models import ANTHROPIC, LanguageModel, named_models

# Loading it takes a second of a processor, and `manage.py mcp`, for which an agent waits, only counts tokens here.
if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings

# An address where no server answers is noticed early; after that the model may take its time.
CONNECT_SECONDS = 10.0
# How much later the client gives up than the deadline for the first word, which covers all of its attempts.
AFTER_THE_DEADLINE = 5.0
# Thinking levels with another value in pydantic-ai; the other levels have the same name there.
THINKING: dict[str, Any] = {"on": True, "off": False}


def language_model(chosen: LanguageModel | None) -> "Model":
    """The model, kept with its connections as long as the event loop runs. Raises `Unavailable` if none is."""
    if chosen is None:
        raise Unavailable("No language model's server can be reached. Try again.")
    models = _models.setdefault(get_running_loop(), {})
    if chosen not in models:
        models[chosen] = _build(chosen)
    return cast("Model", models[chosen])


async def warm_up() -> None:
    """Load the vendors' packages, and build this event loop's clients for the configured models. Sends nothing."""
    for chosen in named_models():
        built = await asyncio.to_thread(_build, chosen)
        _models.setdefault(get_running_loop(), {}).setdefault(chosen, built)


# The question of `say_hello`. A tool that is called shows that the model can use those of the chat.
HELLO = "Call the tool `weekday` once. Then say hello in one short sentence that names the day."


async def say_hello(chosen: LanguageModel) -> tuple[str, bool]:
    """What the model answers, and whether it called the tool. Raises `AgentRunError`."""
    from pydantic_ai.exceptions import ModelRequestRejectedError

    model = _build(chosen)
    try:
        return await _greet(model, chosen, has_tool=True)
    except ModelRequestRejectedError as error:
        # Some servers refuse every request with tools. A wrong key or name is refused otherwise.
        if getattr(error, "status_code", None) not in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY):
            raise
        return await _greet(model, chosen, has_tool=False)
    finally:
        await model.client.close()


async def _greet(model: Any, chosen: LanguageModel, *, has_tool: bool) -> tuple[str, bool]:
    from pydantic_ai import Agent

    called: list[str] = []

    def weekday() -> str:
        """The day of the week."""
        called.append("weekday")
        return "Monday"

    agent = Agent(model, tools=[weekday] if has_tool else [], model_settings=model_settings(chosen))
    async with agent.run_stream(HELLO) as result:
        return str(await result.get_output()), bool(called)


def model_settings(chosen: LanguageModel | None = None, *, temperature: float | None = None) -> "ModelSettings":
    """The timeout for the first sign of an answer and between its pieces, and one retry of a refused request.

    A temperature is left out for a model that accepts none.
    """
    seconds = settings.LLM_TIMEOUT_SECONDS
    between = seconds + AFTER_THE_DEADLINE
    asked: ModelSettings = {"timeout": between, "first_event_timeout": seconds, "max_retries": 1}
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


# --- Counts the tokens of a text without its model's tokenizer ---
# Each kind of character weighs at least what six tokenizers make of it (docs/decisions/0050): GPT-4o's, GPT-4's, those
# of two generations of Llama, Mistral's and the built-in embedding model's. English comes out a third above the newest.
# Once a server has counted, its figures correct this (`chat.agent.prompt.ratio_of`).

_UPPER = bytes(range(65, 91))
_LETTERS = _UPPER + bytes(range(97, 123))
_DIGITS = bytes(range(48, 58))
_SIGNS = bytes(each for each in range(33, 127) if each not in _LETTERS + _DIGITS)
_CONTROLS = bytes(each for each in range(32) if each not in b"\t\n\r") + b"\x7f"
_CONSONANTS = bytes(each for each in _LETTERS if each not in b"aeiouyAEIOUY")
_AS_WORDS = bytes(97 if each in _LETTERS else 32 for each in range(256))
_AS_CONSONANTS = bytes(99 if each in _CONSONANTS else 32 for each in range(256))
_BETWEEN_CONSONANTS = re.compile(rb"c(?=cc)")
_GAPS = re.compile(rb" {2,}|[\t\r]+")
_ASCII = re.compile(r"[\x00-\x7f]+")
# Latin letters with marks and Western punctuation, Cyrillic, scripts of which a letter is about a token, Chinese,
# Japanese and Korean, and what is beyond 16 bits; anything else is in between.
_SCRIPTS = (
    (re.compile("[\u0080-\u036f\u1e00-\u1eff\u2010-\u2027\u20ac]+"), 3.0),
    (re.compile("[\u0400-\u052f]+"), 0.6),
    (re.compile("[\u0370-\u03ff\u0530-\u06ff\u0900-\u0eff\u3040-\u30ff]+"), 1.5),
    (re.compile("[\u1100-\u11ff\u3000-\u303f\u31f0-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+"), 1.6),
    (re.compile("[\U00010000-\U0010ffff]+"), 4.0),
)
OTHER_SCRIPTS = 2.2
CUT_MARK = "\n[… {count:,} characters are left out here …]\n"
# What a template adds around each message, and around each tool.
TOKENS_OF_A_MESSAGE = 8


def tokens_of(text: str) -> int:
    """More than its model will count, as a rule. It takes a tenth of a second for a million characters."""
    ascii_ = text.encode("ascii", "ignore")
    total = (
        0.3 * len(ascii_.translate(_AS_WORDS).split())
        + 0.19 * _count(ascii_, _LETTERS)
        + 0.2 * _count(ascii_, _UPPER)
        + 1.5 * len(_BETWEEN_CONSONANTS.findall(ascii_.translate(_AS_CONSONANTS)))
        + 1.35 * _count(ascii_, _DIGITS)
        + 1.0 * _count(ascii_, _SIGNS)
        + 1.9 * len(_GAPS.findall(ascii_))
        + 1.15 * ascii_.count(b"\n")
        + 1.0 * _count(ascii_, _CONTROLS)
    )
    if len(ascii_) < len(text):
        others = _ASCII.sub("", text)
        for script, weight in _SCRIPTS:
            left = script.sub("", others)
            total += weight * (len(others) - len(left))
            others = left
        total += OTHER_SCRIPTS * len(others)
    return ceil(total)


def _count(text: bytes, characters: bytes) -> int:
    return len(text) - len(text.translate(None, characters))


def cut_middle(text: str, tokens: int) -> str:
    """The text, or its beginning and its end in at most so many tokens, with a mark that says what is missing."""
    counted = tokens_of(text)
    if counted <= tokens:
        return text
    kept = len(text) * tokens // max(1, counted)
    while kept > 0:
        first = cut_point(text, kept * 3 // 5)
        last = len(text) - (kept - kept * 3 // 5)
        pieces = f"{text[:first]}{CUT_MARK.format(count=last - first)}{text[last:]}"
        if tokens_of(pieces) <= tokens:
            return pieces
        kept = kept * 9 // 10 - 1
    return ""


# --- Mends the streams of servers that are compatible with OpenAI's except for details ---


async def _mend_stream(response: Any) -> None:
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        response.stream = _MendedStream(response.stream)
    elif kind.startswith("application/json") and response.status_code == HTTPStatus.OK:
        response.stream = _MendedStream(response.stream, is_whole=True)


class _MendedStream(httpx2.AsyncByteStream):
    """A stream of server-sent events in which every tool call has a number and an id of its own, errors have one form,
    and tokens are counted once. `is_whole`: the body is one JSON object, of a server that does not stream.
    """

    def __init__(self, stream: Any, *, is_whole: bool = False) -> None:
        self.stream, self.calls, self.is_whole = stream, _Calls(), is_whole
        self.is_error = False
        # Some servers count with every piece, and the client would add it up.
        self.counted: dict[str, Any] | None = None
        # The lines of the event that has begun: it passes once it is complete and has data.
        self.event: list[bytes] = []

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.is_whole:
            whole = b"".join([piece async for piece in self.stream])
            yield self._mended(b"data: " + whole.replace(b"\r", b" ").replace(b"\n", b" ")) + b"\n\n"
        else:
            rest = b""
            async for piece in self.stream:
                *lines, rest = (rest + piece).split(b"\n")
                yield b"".join(self._passed(line.rstrip(b"\r")) for line in lines)
            yield self._passed(rest) + self._passed(b"")
        yield self._counted()

    async def aclose(self) -> None:
        await self.stream.aclose()

    def _passed(self, line: bytes) -> bytes:
        """The event that a blank line completes. One without data only keeps the connection open: the client would
        take it for an answer that it cannot read.
        """
        if line:
            name, _, value = line.partition(b":")
            if name == b"event" or (name == b"data" and value.strip()):
                self.event.append(self._mended(line))
            return b""
        lines, self.event = self.event, []
        has_data = any(not each.startswith(b"event:") for each in lines)
        return b"\n".join([*lines, b"", b""]) if has_data else b""

    def _mended(self, line: bytes) -> bytes:
        if line.startswith(b"event:"):
            self.is_error = line.removeprefix(b"event:").strip() == b"error"
            return line
        if line.removeprefix(b"data:").strip() == b"[DONE]":
            return self._counted() + line
        if not (self.is_whole or self.is_error or any(name in line for name in _TO_MEND)):
            return line
        try:
            event = self._mended_event(json.loads(line.removeprefix(b"data:")))
        except (ValueError, TypeError, KeyError, AttributeError):
            # The client reports it.
            return line
        return b"data: " + json.dumps(event).encode()

    def _mended_event(self, event: dict[str, Any]) -> dict[str, Any]:
        """Raises several errors for what is no event."""
        if self.is_error or event.get("object") == "error":
            self.is_error = False
            return event if event.get("error") else {"error": event}
        if not event.get("choices"):
            # Null would be refused, and usage in a piece of its own is the last word on it.
            self.counted = None if event.get("usage") else self.counted
            return event if event.get("error") else {**event, "choices": []}
        for choice in event["choices"]:
            if choice.get("delta") is None:
                choice["delta"] = choice.pop("message", None) or {}
            for delta in choice["delta"].get("tool_calls") or ():
                self.calls.mend(delta)
        if event.get("usage"):
            self.counted = {**event, "choices": []}
            event = {**event, "usage": None}
        return event

    def _counted(self) -> bytes:
        counted, self.counted = self.counted, None
        return b"" if counted is None else b"\n\ndata: " + json.dumps(counted).encode() + b"\n\n"


# The events that are looked at: others pass as they are.
_TO_MEND = (
    b'"tool_calls"',
    b'"error"',
    b'"usage"',
    b'"choices":null',
    b'"choices": null',
    b'"delta":null',
    b'"delta": null',
)


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
        if isinstance(delta.get("id"), int):
            delta["id"] = str(delta["id"])
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
