"""The lowest app: registers the checks that run before a process serves."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "core"

    def ready(self) -> None:
        from core import checks, logs, rate_limits  # noqa: F401
        from core.citus import distribute as distribution_checks  # noqa: F401
        from core.isolation import checks as isolation_checks  # noqa: F401
