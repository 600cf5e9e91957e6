"""Static files under names that change with their content, so that browsers may keep them for ever."""

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage


class StaticStorage(ManifestStaticFilesStorage):
    # One JavaScript module imports another by its name, which has to change with the other's content too.
    support_js_module_import_aggregation = True
