"""Loads the Celery application with Django, so that every process uses the same one."""

from importlib import import_module

from django.apps import AppConfig


class ConfigApp(AppConfig):
    name = "config"

    def ready(self) -> None:
        import_module("config.celery")
