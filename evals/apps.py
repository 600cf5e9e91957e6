"""Where Django learns of the evals: they have commands and tests, and no tables."""

from django.apps import AppConfig


class EvalsConfig(AppConfig):
    name = "evals"
