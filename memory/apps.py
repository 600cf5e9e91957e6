"""Django's configuration of the app: loads its receivers and checks."""

from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"

    def ready(self) -> None:
        from memory import receivers  # noqa: F401
