from django.apps import AppConfig


class IntakeConfig(AppConfig):
    name = "intake"

    def ready(self) -> None:
        from intake import receivers  # noqa: F401
        from intake.isolation import checks  # noqa: F401
