"""A browser in words, by what it says of itself: enough for a person to know their own devices again."""

UNKNOWN = "An unknown device"

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
    "python": "A Python program",
}
SYSTEMS = {
    "iPhone": "an iPhone",
    "iPad": "an iPad",
    "Android": "Android",
    "CrOS": "ChromeOS",
    "Windows": "Windows",
    "Macintosh": "a Mac",
    "Linux": "Linux",
}


def in_words(user_agent: str) -> str:
    """Such as "Firefox on Linux"."""
    browser = _first(BROWSERS, user_agent)
    system = _first(SYSTEMS, user_agent)
    if browser and system:
        return f"{browser} on {system}"
    return browser or (f"A browser on {system}" if system else UNKNOWN)


def _first(names: dict[str, str], text: str) -> str | None:
    return next((name for mark, name in names.items() if mark.lower() in text.lower()), None)
