"""Django's configuration of the app for accounts, conversations and turns."""

from django.apps import AppConfig


class IntakeConfig(AppConfig):
    name = "intake"

    def ready(self) -> None:
        from intake import checks, receivers  # noqa: F401
        from intake.accounts import registration  # noqa: F401
