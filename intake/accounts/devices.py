"""A browser in words, by what it says of itself: enough for a person to know their own devices again.

The words are kept with the session, in English; a page says them in its language.
"""

from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _

UNKNOWN = _("An unknown device")
SOME_BROWSER = _("A browser")

# The first that a User-Agent contains; browsers name those that they descend from, so the order matters.
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
    """Such as "Firefox on Linux"."""
    browser = _first(BROWSERS, user_agent)
    if system := _first(SYSTEMS, user_agent):
        return f"{browser or SOME_BROWSER} on {system}"
    return browser or UNKNOWN


def in_page_language(words: str) -> str:
    """What `in_words` made."""
    browser, on, system = words.partition(" on ")
    if not on:
        return gettext(words)
    return gettext("%(browser)s on %(system)s") % {"browser": gettext(browser), "system": gettext(system)}


def _first(names: dict[str, str], text: str) -> str | None:
    return next((name for mark, name in names.items() if mark.lower() in text.lower()), None)
