"""The browser's fixtures, for this folder."""

from intake.testing.browser import browser, open_page

__all__ = ["browser", "open_page"]
