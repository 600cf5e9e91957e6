"""Django's admin, with the pages of `core.isolation.staff` in the place of its own site."""

from django.contrib.admin.apps import AdminConfig


class StaffConfig(AdminConfig):
    default_site = "core.isolation.staff.StaffSite"
