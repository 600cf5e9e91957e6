"""Django's admin, with the pages of `core.isolation.staff` in the place of its own site."""

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.apps import AdminConfig


class StaffConfig(AdminConfig):
    default_site = "core.isolation.staff.StaffSite"

    def ready(self) -> None:
        """Without django-allauth's pages: how people prove who they are is nothing that staff may read."""
        super().ready()
        for app in apps.get_app_configs():
            if app.name.startswith("allauth."):
                admin.site.unregister([model for model in app.get_models() if admin.site.is_registered(model)])
