"""Static files under names that change with their content, so that browsers may keep them for ever."""

import re
from http import HTTPStatus
from typing import Any

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

NAME_OF_CONTENT = re.compile(r"\.[0-9a-f]{12}\.\w+$")


class StaticStorage(ManifestStaticFilesStorage):
    # One JavaScript module imports another by its name, which has to change with the other's content too.
    support_js_module_import_aggregation = True


class ServedStaticFiles(StaticFiles):
    """Each is taken for what it says it is, and kept by browsers if its name will change with it."""

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers["X-Content-Type-Options"] = "nosniff"
        if response.status_code == HTTPStatus.OK and NAME_OF_CONTENT.search(path):
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response
