"""In what form a DRF view answers: nearly always there is one, and nearly everybody takes it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer

if TYPE_CHECKING:
    # DRF reads the settings, and so this module, while its views are being loaded.
    from rest_framework.request import Request

WHATEVER = "*/*"


class Negotiation(DefaultContentNegotiation):
    """DRF's, which takes longer to weigh what is wanted against what there is than to render most answers."""

    def select_renderer(
        self, request: "Request", renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> Any:
        """The renderer and the media type it shall name; raises `NotAcceptable`."""
        offered = list(renderers)
        if len(offered) == 1 and not format_suffix:
            (renderer,) = offered
            if request.META.get("HTTP_ACCEPT", WHATEVER) in (WHATEVER, renderer.media_type):
                return renderer, renderer.media_type
        return super().select_renderer(request, offered, format_suffix)
