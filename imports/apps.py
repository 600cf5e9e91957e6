"""Django's configuration of the app for imports from other products."""

from django.apps import AppConfig


class ImportsConfig(AppConfig):
    name = "imports"
