"""Describes a browser by its User-Agent, so that users can recognise their own devices.

The description is kept with the session and the log, in English; a page translates it.
"""

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

UNKNOWN = _("An unknown device")

# The first one that a User-Agent contains wins. Browsers name their ancestors, so the order matters.
BROWSERS = {
    "Edg": "Edge",
    "OPR/": "Opera",
    "SamsungBrowser": "Samsung Internet",
    "Firefox": "Firefox",
    "FxiOS": "Firefox",
    "CriOS": "Chrome",
    "HeadlessChrome": "Chrome",
    "Chrome": "Chrome",
    "Safari": "Safari",
    "curl": "curl",
    "python": _("A Python program"),
}
SYSTEMS = {
    "iPhone": _("an iPhone"),
    "iPad": _("an iPad"),
    "Android": "Android",
    "CrOS": "ChromeOS",
    "Windows": "Windows",
    "Macintosh": _("a Mac"),
    "Linux": "Linux",
}


def in_words(user_agent: str) -> str:
    """For example "Firefox on Linux"."""
    browser = _first(BROWSERS, user_agent)
    if system := _first(SYSTEMS, user_agent):
        browser = browser or _("A browser")
        return f"{browser} on {system}"
    return browser or UNKNOWN


def in_page_language(words: str) -> str:
    """Translates the result of `in_words`."""
    browser, on, system = words.partition(" on ")
    if not on:
        return gettext(words)
    return gettext("%(browser)s on %(system)s") % {"browser": gettext(browser), "system": gettext(system)}


def _first(names: dict[str, str], text: str) -> str | None:
    return next((name for mark, name in names.items() if mark.lower() in text.lower()), None)
