"""Django's configuration of the app: registers the checks of the tool registry."""

from django.apps import AppConfig
from django.core.checks import register


class AgentToolsConfig(AppConfig):
    name = "agent_tools"

    def ready(self) -> None:
        from agent_tools import receivers  # noqa: F401
        from agent_tools.checks import check_tools

        register(check_tools)
