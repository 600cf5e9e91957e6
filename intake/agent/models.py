"""Builds the models behind the names (`intake/language_models.py`), or recall mode if no model is configured."""

import asyncio
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.conf import settings
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from core.endpoints import refuse_in_transaction
from core.errors import Unavailable
from core.isolation.caller import Caller
from intake.agent.recall import recall_model
from intake.language_models import ANTHROPIC, LanguageModel, is_recall_mode, named_models

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
    """The timeout for the first sign of an answer and between its pieces, and one retry before anything has arrived.

    A temperature is left out for a model that accepts none.
    """
    seconds = settings.LLM_TIMEOUT_SECONDS
    asked = ModelSettings(timeout=seconds, first_event_timeout=seconds, max_retries=1)
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
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    if base_url:
        # The templates of many models accept only one system prompt.
        one_system_message = OpenAIModelProfile(openai_chat_supports_multiple_system_messages=False)
        # A local server needs no key, but the client must send one.
        compatible = OpenAICompatibleProvider("llm", base_url=base_url, api_key=api_key or "none")
        return OpenAIChatModel(name, provider=compatible, profile=one_system_message)
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key=api_key))
