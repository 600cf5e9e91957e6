"""Django's admin, with `core.isolation.staff` as its site."""

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.apps import AdminConfig


class StaffConfig(AdminConfig):
    default_site = "core.isolation.staff.StaffSite"

    def ready(self) -> None:
        """Without django-allauth's admin pages: staff may not read users' log-in methods."""
        super().ready()
        for app in apps.get_app_configs():
            if app.name.startswith("allauth."):
                admin.site.unregister([model for model in app.get_models() if admin.site.is_registered(model)])
