"""Builds the models behind the names (`intake/llm/language_models.py`)."""

import asyncio
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from django.conf import settings

from core.errors import Unavailable
from core.resilience import refuse_in_transaction
from core.text import gettext_noop
from intake.llm.language_models import ANTHROPIC, LanguageModel, named_models
from intake.llm.mending import mend_stream

# Loading it takes a second of a processor, and `manage.py mcp`, for which an agent waits, only counts tokens here.
if TYPE_CHECKING:
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings


# Thinking levels with another value in pydantic-ai; the other levels have the same name there.
THINKING: dict[str, Any] = {"on": True, "off": False}


def language_model(chosen: LanguageModel | None) -> "Model":
    """The model, kept with its connections as long as the event loop runs. Raises `Unavailable` if none is."""
    if chosen is None:
        raise Unavailable(gettext_noop("No language model's server can be reached. Try again."))
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
    # How much later the client gives up than the deadline for the first word, which covers all of its attempts.
    between = seconds + 5.0
    asked: ModelSettings = {"timeout": between, "first_event_timeout": seconds, "max_retries": 1}
    if chosen is not None and not chosen.id.startswith(ANTHROPIC):
        from openai import Timeout

        # An address where no server answers is noticed early; after that the model may take its time.
        asked["timeout"] = Timeout(between, connect=10.0)
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
            event_hooks={"response": [mend_stream]}, headers={"Accept-Encoding": "identity"}
        )
        compatible = OpenAICompatibleProvider(
            "llm", base_url=base_url, api_key=api_key or "none", http_client=http_client
        )
        return OpenAIChatModel(name, provider=compatible, profile=one_system_message)
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key=api_key))
