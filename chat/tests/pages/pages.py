"""Where the pages of one's notes are, how they are read and sent, and what is on them."""

import re
from datetime import date
from html import unescape

from django.test import Client
from django.urls import reverse

from memory import documents

MEMORY = reverse("memory:memory")
EDIT_MEMORY = reverse("memory:edit_memory")
LOGS = reverse("memory:logs")
RECORDS = reverse("memory:records")
DAY = date(2026, 3, 1)
LOG = reverse("memory:log", args=["2026-03-01"])
EDIT = reverse("memory:edit_log", args=["2026-03-01"])
DELETE = reverse("memory:delete_log", args=["2026-03-01"])
HOSTILE = "<script>alert(1)</script></textarea><img src=x onerror=alert(1)>"


def page_of(client: Client, path: str, *, status: int = 200, **query) -> str:
    response = client.get(path, query)
    assert response.status_code == status
    return response.content.decode()


def send(client: Client, path: str, *, status: int = 302, **form) -> str:
    response = client.post(path, form)
    assert response.status_code == status
    return response["Location"] if status == 302 else response.content.decode()


def state_on(page: str) -> str:
    return re.search(r'name="state" value="([^"]*)"', page).group(1)


def text_on(page: str, name: str = "content") -> str:
    return unescape(re.search(rf'<textarea id="id_{name}"[^>]*>\n(.*?)</textarea>', page, re.DOTALL).group(1))


def content_of(user, day=None) -> str:
    return documents.read(user=user, day=day).content
