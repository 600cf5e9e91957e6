"""Which language model answers: the one the environment names, or recall mode where it names none."""

from functools import lru_cache
from typing import Any, cast

from django.conf import settings
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from intake.agent.recall import recall_model
from intake.models.conversations import Caller


def is_recall_mode() -> bool:
    return not settings.LLM_MODEL


def chat_model(caller: Caller) -> Model:
    if is_recall_mode():
        return recall_model(caller)
    return _vendor_model(settings.LLM_MODEL, settings.LLM_BASE_URL, settings.LLM_API_KEY)


def model_settings() -> ModelSettings:
    """Seconds to wait for the first sign of an answer and between its pieces; one retry, before anything came."""
    seconds = settings.LLM_TIMEOUT_SECONDS
    return ModelSettings(timeout=seconds, first_event_timeout=seconds, max_retries=1)


async def close_connections() -> None:
    """Let go of the vendors' connections: at the end of the event loop that they belong to."""
    while _clients:
        await _clients.pop().close()
    _vendor_model.cache_clear()


_clients: list[Any] = []


@lru_cache(maxsize=4)
def _vendor_model(name: str, base_url: str, api_key: str) -> Model:
    """Kept as long as the event loop runs, and its connections with it."""
    model = _build(name, base_url, api_key)
    _clients.append(model.client)
    return cast(Model, model)


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
