"""Where Django learns of people, conversations and turns, and what is checked before they are served."""

from django.apps import AppConfig


class IntakeConfig(AppConfig):
    name = "intake"

    def ready(self) -> None:
        from intake import checks, receivers  # noqa: F401
        from intake.isolation import checks as isolation_checks  # noqa: F401
