"""What every answer of the product bears, as a check of the matrix of endpoints and of single pages."""

import re
from typing import Any

from config.tests.endpoints.registered import Endpoint

INLINE = re.compile(r"<style|<script(?![^>]*\bsrc=)(?![^>]*type=\"application/json\")|\sstyle=|\son\w+=", re.IGNORECASE)
# Only the address of a page that was read leads elsewhere, without saying from where.
ELSEWHERE = re.compile(r"(?<!rel=\"noopener noreferrer nofollow\" )(src|href|action)=[\"'](https?:)?//")
DIRECTIVES = (
    "default-src 'none'",
    "script-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
FIXED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
# The sandbox of previews, which runs what it is sent: chat/tests/test_browser_previews.py.
SANDBOX = "preview/"


# A person's own file, in a sandbox and without scripts.
FILE, POLICY_OF_FILES = "api/v1/attachments/<str:attachment_id>/thumbnail", ("default-src 'none'", "sandbox")


def loose_at(endpoint: Endpoint, response: Any) -> list[str]:
    if endpoint.route == SANDBOX:
        return []
    policy = response.headers.get("Content-Security-Policy", "").split("; ")
    if endpoint.route == FILE and {*POLICY_OF_FILES} <= {*policy}:
        return [each for each in loose(response) if not each.startswith("the policy")]
    return loose(response)


def loose(response: Any) -> list[str]:
    """What is not locked down: headers that are missing, and what a page must not hold."""
    headers = response.headers
    policy, cache = headers.get("Content-Security-Policy", ""), headers.get("Cache-Control", "")
    wrong = [f"the policy lacks {directive}" for directive in DIRECTIVES if directive not in policy]
    wrong += ["the policy allows what is unsafe"] if "unsafe" in policy else []
    wrong += [f"{name} is {headers.get(name)}" for name, value in FIXED.items() if headers.get(name) != value]
    if "public" not in cache and not ("no-store" in cache and "private" in cache):
        wrong.append(f"Cache-Control is {cache}")
    if headers.get("Content-Type", "").startswith("text/html"):
        if "camera=()" not in headers.get("Permissions-Policy", ""):
            wrong.append("the page may use a camera")
        if not response.streaming:
            page = response.content.decode()
            wrong += [f"the page holds {found}" for found in INLINE.findall(page)]
            wrong += [f"the page leads to {found}" for found in ELSEWHERE.findall(page)]
    return wrong
