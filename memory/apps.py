"""Where Django learns of the memory: what listens for saved turns, and its checks, are loaded with it."""

from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"

    def ready(self) -> None:
        from memory import checks, receivers  # noqa: F401
