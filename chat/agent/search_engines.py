"""Searches the web by the engine that staff have chosen: SearXNG in their own network, or Brave or Tavily by key."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import unescape
from http import HTTPStatus
from typing import Any

import httpx2
from django.utils.html import strip_tags

from core.errors import Unavailable
from core.pinned import pinned_client
from core.resilience import Endpoint, LeftAlone
from core.text import Sentence, cut, pg_text
from core.text import gettext_noop as _
from intake.llm.language_models import opened_key
from intake.models.installation import SEARCH, kept_setting

SEARXNG, BRAVE, TAVILY = "searxng", "brave", "tavily"
ADDRESSES = {BRAVE: "https://api.search.brave.com/res/v1/web/search", TAVILY: "https://api.tavily.com/search"}
MOST_HITS = 8
NO_JSON = _("SearXNG refuses to answer in JSON. Add `json` to `formats` under `search` in its settings.yml.")
NO_KEY = _("The search does not accept this key.")
TOO_MANY = _("The search has too many requests at the moment. Try again later.")
REFUSED = _("The search answered %(status)s.")
NO_ANSWER = _("The search does not answer.")
NO_HITS = _("This is no answer of a search.")
_endpoint = Endpoint("The search of the web")


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One line each: no text of a page can look like a line of ours."""

    title: str
    address: str
    text: str


def chosen_engine() -> dict[str, str] | None:
    """Its `kind`, `address` and `sealed` key; None while staff have chosen none."""
    kept = kept_setting(SEARCH)
    return kept if isinstance(kept, dict) and kept.get("kind") else None


async def search_web(query: str, *, engine: Mapping[str, str]) -> list[SearchHit]:
    """Raises `Unavailable` with a sentence for people: what is wrong, and how to mend it."""
    kind, key = engine["kind"], opened_key(engine.get("sealed", "")) or ""
    address = engine.get("address") or ADDRESSES.get(kind, "")
    request: dict[str, Any] = {"method": "GET", "url": address}
    match kind:
        case "searxng":
            request["url"] = f"{address.rstrip('/').removesuffix('/search')}/search"
            request["params"] = {"q": query, "format": "json"}
        case "brave":
            request |= {"params": {"q": query, "count": MOST_HITS}, "headers": {"X-Subscription-Token": key}}
        case _:
            body = {"query": query, "max_results": MOST_HITS}
            request = {"method": "POST", "url": address, "json": body, "headers": {"Authorization": f"Bearer {key}"}}
    try:
        with _endpoint.call(httpx2.TimeoutException):
            # A redirect would take a key along.
            redirects = 3 if kind == SEARXNG else 0
            async with pinned_client(seconds=10, most=2_000_000, origin=address, redirects=redirects) as client:
                response = await client.request(**request)
    except (httpx2.HTTPError, httpx2.InvalidURL, LeftAlone) as error:
        raise Unavailable(NO_ANSWER) from error
    if response.status_code != HTTPStatus.OK:
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            raise Unavailable(TOO_MANY)
        if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise Unavailable(NO_JSON if kind == SEARXNG else NO_KEY)
        raise Unavailable(Sentence(REFUSED, status=str(response.status_code)))
    try:
        found = response.json()
        rows = found["web"]["results"] if kind == BRAVE and "web" in found else found.get("results", [])
        hits = [_hit(row) for row in rows if str(row["url"]).startswith(("http://", "https://"))]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unavailable(NO_HITS) from error
    return hits[:MOST_HITS]


def _hit(row: Mapping[str, Any]) -> SearchHit:
    def line(*names: str, longest: int) -> str:
        value = next((str(row[name]) for name in names if row.get(name)), "")
        return cut(" ".join(pg_text(unescape(strip_tags(value[:10_000]))).split()), longest)

    address = "".join(pg_text(str(row["url"]))[:2_000].split())
    return SearchHit(line("title", longest=200), address, line("content", "description", longest=400))
