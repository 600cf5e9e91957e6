"""The models behind the names (`intake/language_models.py`), or recall mode where the settings name none."""

import asyncio
from asyncio import AbstractEventLoop, get_running_loop
from typing import Any, cast
from weakref import WeakKeyDictionary

from django.conf import settings
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from core.errors import Unavailable
from core.isolation.caller import Caller
from intake.agent.recall import recall_model
from intake.language_models import ANTHROPIC, LanguageModel, is_recall_mode, named_models

# How much a model is asked to think; anything else is an effort that pydantic-ai knows by the same word.
THINKING: dict[str, Any] = {"on": True, "off": False}


def chat_model(caller: Caller, chosen: LanguageModel | None, *, is_temporary: bool = False) -> Model:
    """Raises `Unavailable` where there is no model although there should be one."""
    if is_recall_mode():
        return recall_model(caller, is_temporary=is_temporary)
    if chosen is None:
        raise Unavailable("No language model's server can be reached. Try again.")
    return _kept_model(chosen)


async def warm_up() -> None:
    """Load the vendors' packages, and build the clients of this event loop for the models that the settings name.

    Nothing is sent.
    """
    for chosen in named_models():
        built = await asyncio.to_thread(_build, chosen)
        _models.setdefault(get_running_loop(), {}).setdefault(chosen, built)


def model_settings(chosen: LanguageModel | None = None, *, temperature: float | None = None) -> ModelSettings:
    """Seconds to wait for the first sign of an answer and between its pieces; one retry, before anything came.

    A temperature is left out for a model that takes none.
    """
    seconds = settings.LLM_TIMEOUT_SECONDS
    asked = ModelSettings(timeout=seconds, first_event_timeout=seconds, max_retries=1)
    if chosen is not None and chosen.thinking:
        asked["thinking"] = THINKING.get(chosen.thinking, chosen.thinking)
    if chosen is not None and temperature is not None and chosen.takes_temperature:
        asked["temperature"] = temperature
    return asked


async def close_connections() -> None:
    """Let go of the vendors' connections that belong to this event loop: at its end."""
    for model in _models.pop(get_running_loop(), {}).values():
        await model.client.close()


# A connection belongs to the event loop that it was made in, and goes with it.
_models: WeakKeyDictionary[AbstractEventLoop, dict[LanguageModel, Any]] = WeakKeyDictionary()


def _kept_model(chosen: LanguageModel) -> Model:
    """Kept as long as the event loop runs, and its connections with it."""
    models = _models.setdefault(get_running_loop(), {})
    if chosen not in models:
        models[chosen] = _build(chosen)
    return cast(Model, models[chosen])


def _build(chosen: LanguageModel) -> Any:
    """Vendors' packages are large, and loaded only where they are needed."""
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
        # Many models' templates know of no second one.
        one_system_message = OpenAIModelProfile(openai_chat_supports_multiple_system_messages=False)
        # A local server asks for no key, yet the client wants one to send.
        compatible = OpenAICompatibleProvider("llm", base_url=base_url, api_key=api_key or "none")
        return OpenAIChatModel(name, provider=compatible, profile=one_system_message)
    return OpenAIChatModel(name, provider=OpenAIProvider(api_key=api_key))
