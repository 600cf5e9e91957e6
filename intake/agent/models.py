"""Which language model answers: the one the environment names, or recall mode where it names none."""

import asyncio
from asyncio import AbstractEventLoop, get_running_loop
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.conf import settings
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from core.isolation.caller import Caller
from intake.agent.recall import recall_model


def is_recall_mode() -> bool:
    return not settings.LLM_MODEL


def model_name() -> str:
    """The model's own name, without its vendor's."""
    name: str = settings.LLM_MODEL
    return name.removeprefix("anthropic:").removeprefix("openai:")


def chat_model(caller: Caller) -> Model:
    if is_recall_mode():
        return recall_model(caller)
    return _kept_model(settings.LLM_MODEL, settings.LLM_BASE_URL, settings.LLM_API_KEY)


async def warm_up() -> None:
    """Load the vendor's package, and build the client of this event loop; nothing is sent."""
    if is_recall_mode():
        return
    key = (settings.LLM_MODEL, settings.LLM_BASE_URL, settings.LLM_API_KEY)
    built = await asyncio.to_thread(_build, *key)
    _models.setdefault(get_running_loop(), {}).setdefault(key, built)


def model_settings() -> ModelSettings:
    """Seconds to wait for the first sign of an answer and between its pieces; one retry, before anything came."""
    seconds = settings.LLM_TIMEOUT_SECONDS
    return ModelSettings(timeout=seconds, first_event_timeout=seconds, max_retries=1)


async def close_connections() -> None:
    """Let go of the vendors' connections that belong to this event loop: at its end."""
    for model in _models.pop(get_running_loop(), {}).values():
        await model.client.close()


# A connection belongs to the event loop that it was made in, and goes with it.
_models: WeakKeyDictionary[AbstractEventLoop, dict[tuple[str, ...], Any]] = WeakKeyDictionary()


def _kept_model(*name_and_address: str) -> Model:
    """Kept as long as the event loop runs, and its connections with it."""
    models = _models.setdefault(get_running_loop(), {})
    if name_and_address not in models:
        models[name_and_address] = _build(*name_and_address)
    return cast(Model, models[name_and_address])


def _build(name: str, base_url: str, api_key: str) -> Any:
    """Vendors' packages are large, and loaded only by whoever needs them."""
    if name.startswith("anthropic:"):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(
            name.removeprefix("anthropic:"), provider=AnthropicProvider(api_key=api_key, base_url=base_url or None)
        )
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    name = name.removeprefix("openai:")
    if base_url:
        # Many models' templates know of no second one.
        one_system_message = OpenAIModelProfile(openai_chat_supports_multiple_system_messages=False)
        # A local server asks for no key, yet the client wants one to send.
        compatible = OpenAICompatibleProvider("llm", base_url=base_url, api_key=api_key or "none")
        return OpenAIChatModel(name, provider=compatible, profile=one_system_message)
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key=api_key))
