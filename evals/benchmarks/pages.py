"""`benchmark pages`: how soon each page is there in Chromium, how still it stands, and what it fetches.

1. A person with fifty chats, one of them of 500 turns, and a note are saved by the services that the product uses.
2. A real web process serves them, over HTTP/1.1 on this machine, without a delay on the line.
3. Each page is opened in a browser that has nothing of it yet, several times; the median counts.

First and largest contentful paint and layout shift are the browser's own (W3C Paint Timing, Largest Contentful Paint,
Layout Instability); total blocking time is what long tasks take beyond 50 ms each, from the first paint on.
"""

import os
import shutil
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from core.isolation.acting import acting_as
from evals.benchmarks.base import Benchmark, Figures, TableRows
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import environment, own_broker, web
from evals.scratch import as_worker, scratch_database
from intake.chats import services
from intake.models import Conversation, User
from memory import documents, index

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHATS, LONG_CHAT = 50, 500
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
# After the load event: what a page fetches once it is there counts as well.
SETTLED_MS = 2_500
NAMES = ("fcp_ms", "lcp_ms", "tbt_ms", "cls", "bytes", "requests")
ANSWER = (
    "## Plan\n\n1. **Soup**\n2. Risotto with `saffron`\n\n```python\nprint('six')\n```\n\nIt takes $a^2 + b^2$ hours."
)

_WATCH = """() => {
  window.paints = { fcp: 0, lcp: 0, cls: 0, tasks: [] };
  const on = (type, take) =>
    new PerformanceObserver((list) => list.getEntries().forEach(take)).observe({ type, buffered: true });
  on("paint", (entry) => entry.name === "first-contentful-paint" && (paints.fcp = entry.startTime));
  on("largest-contentful-paint", (entry) => (paints.lcp = entry.startTime));
  on("layout-shift", (entry) => entry.hadRecentInput || (paints.cls += entry.value));
  on("longtask", (entry) => paints.tasks.push([entry.startTime, entry.duration]));
}"""


def run(options: Mapping[str, int], report: Report) -> Figures:
    call_command("collectstatic", interactive=False, verbosity=0)
    with scratch_database() as database, own_broker() as broker:
        person, chat = _fill()
        pages = _pages(chat)
        client = Client()
        client.force_login(person)
        session = {
            "name": settings.SESSION_COOKIE_NAME,
            "value": client.cookies[settings.SESSION_COOKIE_NAME].value,
        }
        with web(environment(database=database, broker=broker)) as (address, _), _chromium() as browser:
            figures: dict[str, dict[str, float]] = {}
            for name, (path, is_person) in pages.items():
                report(f"{name}: {path}")
                runs = [_open(browser, address, path, session if is_person else None) for _ in range(options["runs"])]
                figures[name] = {each: statistics.median(one[each] for one in runs) for each in NAMES}
    return {"runs": options["runs"], "pages": figures}


def table(figures: Figures) -> TableRows:
    heading = ["page", *NAMES]
    return [heading, *([name, *(f"{one[each]:,g}" for each in NAMES)] for name, one in figures["pages"].items())]


def _pages(chat: Conversation) -> dict[str, tuple[str, bool]]:
    """By name: its address, and whether the person opens it or a visitor."""
    return {
        "home, a visitor": ("/", False),
        "home": ("/", True),
        f"chat of {LONG_CHAT} turns": (f"/c/{chat.pk}/", True),
        "search": ("/search/?q=risotto", True),
        "memory": ("/memory/", True),
        "daily logs": ("/memory/logs/", True),
        "records": ("/memory/records/", True),
        "all chats": ("/conversations/", True),
        "account": ("/settings/account/", True),
        "log in": ("/login/", False),
    }


def _fill() -> tuple[User, Conversation]:
    now = timezone.now()
    person = User.objects.create_user("pages@example.com", "benchmark of pages")
    with acting_as(person):
        for number in range(CHATS):
            said_at = now - timedelta(days=number)
            chat = Conversation.objects.create(user=person, title=f"Dinner number {number}", last_active_at=said_at)
            for turn in range(LONG_CHAT if number == 0 else 1):
                services.save_exchange(
                    conversation=chat,
                    user_message=f"What do we eat on day {turn}?",
                    assistant_message=ANSWER,
                    said_at=said_at - timedelta(minutes=LONG_CHAT - turn),
                )
        documents.append(user=person, day=None, text="Likes risotto, dislikes aubergines", now=now)
        longest = Conversation.objects.for_user(person).newest_first()[0]
    with as_worker():
        index.embed_pending()
    return person, longest


@contextmanager
def _chromium() -> Iterator["Browser"]:
    # A dependency of development, which no other benchmark needs.
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise CommandError("No Chromium: install one, or name it in CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


def _open(browser: "Browser", address: str, path: str, cookie: dict[str, str] | None) -> dict[str, float]:
    """One page in a browser of its own, which has kept nothing."""
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800}, service_workers="block")
    if cookie is not None:
        context.add_cookies([{**cookie, "url": address}])  # type: ignore[typeddict-item]
    page = context.new_page()
    page.add_init_script(f"({_WATCH})()")
    sizes: list[float] = []
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(path, wait_until="load")
    page.wait_for_timeout(SETTLED_MS)
    paints: dict[str, Any] = page.evaluate("paints")
    context.close()
    blocked = sum(max(0, length - 50) for start, length in paints["tasks"] if start + length > paints["fcp"])
    return {
        "fcp_ms": round(paints["fcp"]),
        "lcp_ms": round(paints["lcp"]),
        "tbt_ms": round(blocked),
        "cls": round(paints["cls"], 4),
        "bytes": sum(sizes),
        "requests": sum(not url.startswith("data:") for url in requests),
    }


BENCHMARK = Benchmark(
    "pages",
    "first and largest paint, blocking time, layout shift, bytes and requests of each page in Chromium",
    run,
    {"runs": Number(5, "how often each page is opened")},
    table=table,
)
