"""Where Django learns of the memory: what listens for saved turns is loaded with it."""

from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"

    def ready(self) -> None:
        from memory import receivers  # noqa: F401
