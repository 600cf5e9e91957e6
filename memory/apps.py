"""Django's configuration of the app: loads its receivers and checks, and registers it with intake."""

from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"

    def ready(self) -> None:
        from intake import ports
        from memory import hooks, receivers  # noqa: F401

        ports.memory.register(lambda: hooks)
