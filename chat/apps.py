"""Django's configuration of the app in which people talk; it has no models."""

from django.apps import AppConfig


class ChatConfig(AppConfig):
    name = "chat"
