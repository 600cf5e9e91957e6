"""Django's configuration of this project: the Celery application, and the admin without other apps' pages."""

from importlib import import_module

from django.apps import AppConfig, apps
from django.contrib import admin
from django.contrib.admin import apps as admin_apps


class ConfigApp(AppConfig):
    """Loads the Celery application with Django, so that every process uses the same one."""

    name = "config"

    def ready(self) -> None:
        import_module("config.celery")


class StaffConfig(admin_apps.AdminConfig):
    """Django's admin, with `core.isolation.staff` as its site."""

    default_site = "core.isolation.staff.StaffSite"

    def ready(self) -> None:
        """Without django-allauth's admin pages: staff may not read users' log-in methods."""
        super().ready()
        for app in apps.get_app_configs():
            if app.name.startswith("allauth."):
                admin.site.unregister([model for model in app.get_models() if admin.site.is_registered(model)])
