"""Where Django learns of imports: people's history from other products, and the jobs that bring it in."""

from django.apps import AppConfig


class ImportsConfig(AppConfig):
    name = "imports"
