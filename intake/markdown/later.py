"""Draws the long texts of a page after its rows are read, when the request holds no database connection any more."""

import re
import secrets
from collections.abc import Callable
from contextvars import ContextVar

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString, mark_safe

from intake.markdown.budget import budget


class _Page:
    def __init__(self) -> None:
        # No text of a page can hold a mark that is made by chance for each request.
        self.mark = secrets.token_hex(16)
        self.texts: list[Callable[[], str]] = []


_page: ContextVar[_Page | None] = ContextVar("page", default=None)


def later(draw: Callable[[], str]) -> SafeString:
    """A mark in a page, in whose place `draw` puts its HTML; without a page the HTML itself."""
    page = _page.get()
    if page is None:
        return mark_safe(draw())  # noqa: S308 - HTML, as its name says
    page.texts.append(draw)
    return mark_safe(f"{page.mark}-{len(page.texts) - 1};")  # noqa: S308 - a mark of digits and letters


def drawn_later(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """The innermost middleware: the transaction of the view has ended, and its connection goes back to the pool."""

    def middleware(request: HttpRequest) -> HttpResponse:
        page = _Page()
        token = _page.set(page)
        try:
            response = get_response(request)
        finally:
            _page.reset(token)
        if page.texts:
            # A test in a transaction of its own keeps it.
            if not connection.in_atomic_block:
                connection.close()
            # For all texts of a page. The rest of them is shown as it was written, with a sentence that says so.
            with budget(2.0):
                html = [draw() for draw in page.texts]
            marks = re.compile(rf"{page.mark}-(\d+);")
            response.content = marks.sub(lambda found: html[int(found[1])], response.content.decode())
        return response

    return middleware
