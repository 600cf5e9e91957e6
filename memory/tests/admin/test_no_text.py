"""No page of the admin shows a word of a chat: every link is followed, and every page looked through."""

import re
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from django.conf import settings

from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from memory import index
from memory.backends.embedders import get_embedder
from memory.models import Embedding
from memory.tests.admin.pages import HEALTH, LIST, embed_again, row_url

pytestmark = pytest.mark.django_db


SECRET = "Rumpelstiltskin"


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def walk(client) -> dict[str, str]:
    """Every page of the admin that can be reached by following links, each filter and search by itself."""
    pages: dict[str, str] = {}
    seen: set[object] = set()
    to_visit = ["/admin/"]
    while to_visit and len(pages) < 400:
        url = to_visit.pop(0)
        parts = urlsplit(url)
        kind = (parts.path, parts.query.split("=")[0])
        is_foreign = not parts.path.startswith("/admin/") or parts.path == "/admin/logout/"
        if kind in seen or is_foreign or "&" in parts.query:
            continue
        seen.add(kind)
        response = client.get(url, follow=True)
        assert response.status_code == 200, url
        pages[url] = unescape(response.text) + str(response.headers)
        if "html" in response.headers["Content-Type"]:
            links = Links()
            links.feed(response.text)
            to_visit += [urljoin(url, link).split("#")[0] for link in links.found]
    return pages


@pytest.fixture
def chat_with_a_secret(alice, monkeypatch):
    """One turn embedded, one that failed and one set aside, the model quoting them in its error."""
    conversation = Conversation.objects.create(user=alice, title=f"About {SECRET}")
    for number in range(3):
        a_turn(alice, f"{number}: my name is {SECRET}", f"Hello {SECRET}", conversation=conversation)
    Turn.objects.update(tool_calls=[{"input": SECRET}], error={"detail": SECRET})
    embedded, failed, quarantined = Embedding.objects.order_by("chunk_index")
    index.fill([embedded], embedder=get_embedder())
    with monkeypatch.context() as broken:
        broken.setattr(get_embedder(), "embed_documents", refuse)
        index.fill([failed], embedder=get_embedder())
        quarantined.attempts = settings.EMBEDDING_MAX_ATTEMPTS
        index.fill([quarantined], embedder=get_embedder())
    return conversation


def refuse(texts):
    raise ValueError(f"cannot embed {texts}")


@pytest.mark.medium
def test_no_page_that_a_superuser_can_reach_shows_a_word_of_a_chat(client, superuser, alice, chat_with_a_secret):
    client.force_login(superuser)
    assert {row.last_error for row in Embedding.objects.all()} == {"", "ValueError"}
    embed_again(client, Embedding.objects.quarantined().get())
    client.post(f"/admin/intake/user/{alice.pk}/change/", {"email": alice.email, "time_zone": "UTC"})

    pages = walk(client)

    paths = {urlsplit(url).path for url in pages}
    expected = {LIST, HEALTH, "/admin/intake/user/", f"/admin/intake/user/{alice.pk}/change/", "/admin/auth/group/"}
    expected |= {row_url(row) for row in Embedding.objects.all()}
    assert expected <= paths
    for url, page in pages.items():
        assert SECRET not in page, url


@pytest.mark.medium
def test_the_admin_needs_no_inline_script_or_style(client, superuser, chat_with_a_secret):
    client.force_login(superuser)
    inline = re.compile(r"<style|\sstyle=|\son[a-z]+=\"|<script(?![^>]*\bsrc=)(?![^>]*application/json)")

    for url, page in walk(client).items():
        if "text/html" in page:
            assert not inline.search(page), (url, inline.search(page))
            assert "script-src 'self'" in page
