"""Where Django learns of the tools: the registry is checked at every start."""

from django.apps import AppConfig
from django.core.checks import register


class AgentToolsConfig(AppConfig):
    name = "agent_tools"

    def ready(self) -> None:
        from agent_tools import receivers  # noqa: F401
        from agent_tools.checks import check_tools

        register(check_tools)
