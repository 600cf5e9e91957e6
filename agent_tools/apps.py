"""Django's configuration of the app: registers the checks of the tool registry, and the chat's tools with intake."""

from typing import TYPE_CHECKING

from django.apps import AppConfig
from django.core.checks import register

if TYPE_CHECKING:
    from intake.ports import ChatTools


class AgentToolsConfig(AppConfig):
    name = "agent_tools"

    def ready(self) -> None:
        from agent_tools import receivers  # noqa: F401
        from agent_tools.checks import check_tools
        from intake import ports

        register(check_tools)
        ports.chat_tools.register(_chat_tools)


def _chat_tools() -> "ChatTools":
    """Imported at first use: the model's library takes two seconds, and few processes answer chats."""
    from agent_tools import chat

    return chat
