"""`benchmark pages`: how soon each page is there in Chromium, how still it stands, what it fetches, and a chat message.

1. A person with fifty chats, one of them of 500 turns, and a note are saved by the services that the product uses.
2. A real web process serves them, over HTTP/1.1 on this machine, without a delay on the line.
3. Each page is opened in a browser that has nothing of it yet, several times; the median counts.

First and largest contentful paint and layout shift are the browser's own (W3C Paint Timing, Largest Contentful Paint,
Layout Instability); total blocking time is what long tasks take beyond 50 ms each, from the first paint on.

4. A bare ASGI server sends what was recorded of home, chat and search: the same page, as a file, in the same run.
5. A message is sent with a model that answers at once, from the click to the frame after the first letter, in parts;
   then to the bare server, which sends the recorded bytes of an answer to the same page.
6. An answer of 20,000 characters comes at 200 tokens a second, and the longest task of the page counts.
"""

import asyncio
import json
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from core.isolation.acting import acting_as
from evals.benchmarks.base import Benchmark, Figures, TableRows
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import environment, own_broker, web
from evals.scratch import as_worker, scratch_database
from intake.chats import services
from intake.models import Conversation, User
from memory import documents, index
from memory.overview import drawing, reading
from testing.model_server import chunk
from testing.serving import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHATS, LONG_CHAT = 50, 500
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
# After the load event: what a page fetches once it is there counts as well.
SETTLED_MS = 2_500
LOOK_MS = 50
NAMES = ("fcp_ms", "lcp_ms", "tbt_ms", "cls", "bytes", "requests")
ANSWER = (
    "## Plan\n\n1. **Soup**\n2. Risotto with `saffron`\n\n```python\nprint('six')\n```\n\nIt takes $a^2 + b^2$ hours."
)

ANSWER_AT_ONCE = "Mice, mostly."
# 5,000 tokens of four characters: a list, headings, code and a table.
LONG_PIECE = (
    "## Part {0}\n\nA sentence about **mice**, `cats` and [dogs](/).\n\n- one\n- two\n\n```python\nx = {0}\n```\n\n"
)
LONG_CHARACTERS, CHARACTERS_OF_A_TOKEN, TOKENS_A_SECOND = 20_000, 4, 200
LONG_QUESTION = "A long answer, please."
CHAT_ENDPOINT = "/api/v1/intake/chat"
PARTS = ("script", "request", "saving", "task", "model", "stream", "renderer", "paint")

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
            # Those that are compared with themselves as files, in turns: a browser becomes quicker the longer it runs.
            as_files = ("home", f"chat of {LONG_CHAT} turns", "search")
            opened = [pages[name][0] for name in as_files]
            recorded = {path.partition("?")[0]: _text_of(browser, address, path, session) for path in opened}
            with serving(_bare(recorded)) as bare:
                for name, (path, is_person) in pages.items():
                    report(f"{name}: {path}")
                    runs, files = [], []
                    for _ in range(options["runs"]):
                        runs.append(_open(browser, address, path, session if is_person else None))
                        if name in as_files:
                            files.append(_open(browser, bare, path, None)["fcp_ms"])
                    figures[name] = {each: statistics.median(one[each] for one in runs) for each in NAMES}
                    if files:
                        as_file = statistics.median(files)
                        of_file = round(figures[name]["fcp_ms"] / as_file, 2)
                        figures[name] |= {"file_fcp_ms": as_file, "of_file": of_file}
        with serving(_model()) as model:
            at = {"LLM_MODEL": "prompt", "LLM_BASE_URL": f"{model}/v1"}
            with web({**environment(database=database, broker=broker), **at}) as (address, _), _chromium() as browser:
                click = _click(browser, address, session, options, report)
                click["longest_task_ms"] = _longest_task(browser, address, session, report)
    return {"runs": options["runs"], "pages": figures, "click": click}


def table(figures: Figures) -> TableRows:
    heading = ["page", *NAMES, "of a file"]
    rows = [
        [name, *(f"{one[each]:,g}" for each in NAMES), f"{one['of_file']:g}" if "of_file" in one else ""]
        for name, one in figures["pages"].items()
    ]
    return [heading, *rows]


def words(figures: Figures) -> list[str]:
    click = figures["click"]
    parts = ", ".join(f"{name} {click['parts'][name]:g}" for name in PARTS)
    return [
        f"From a click to the first painted letter: {click['ms']:g} ms ({parts}), the most in {click['largest']}.",
        f"The same bytes from a bare server: {click['bare_ms']:g} ms; {click['of_bare']:g} times.",
        f"The longest task of an answer of {LONG_CHARACTERS:,} characters: {click['longest_task_ms']:g} ms.",
    ]


def _pages(chat: Conversation) -> dict[str, tuple[str, bool]]:
    """By name: its address, and whether the person opens it or a visitor."""
    return {
        "home, a visitor": ("/", False),
        "home": ("/", True),
        f"chat of {LONG_CHAT} turns": (f"/c/{chat.pk}/", True),
        "search": ("/search/?q=risotto", True),
        "memory": ("/memory/", True),
        "map": ("/memory/map/", True),
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
        reading.look(person, now=now)
    with as_worker():
        index.embed_pending()
        drawing.draw_due(until=timezone.now() + timedelta(minutes=5))
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


# --- A chat message, from the click to the first painted letter ---

# Moments of a message, in milliseconds since 1970: on one machine the model's clock is the same.
_MOMENTS = """() => {
  window.moments = {};
  window.longest = 0;
  const tasks = (list) => list.getEntries().forEach(({ duration }) => (longest = Math.max(longest, duration)));
  new PerformanceObserver(tasks).observe({ type: "longtask" });
  const now = () => performance.timeOrigin + performance.now();
  const once = (name) => (moments[name] ??= now());
  addEventListener("click", ({ target }) => target.closest?.("[data-send]") && once("click"), true);
  const decoder = new TextDecoder();
  const read = ReadableStreamDefaultReader.prototype.read;
  ReadableStreamDefaultReader.prototype.read = async function (...from) {
    const piece = await read.apply(this, from);
    const text = typeof piece.value === "string" ? piece.value : piece.value ? decoder.decode(piece.value) : "";
    if (text.includes("event: turn")) once("turn");
    if (/event: (delta|blocks|done)/.test(text)) once("text");
    return piece;
  };
  const send = window.fetch;
  window.fetch = (...about) => (String(about[0]).includes("/intake/chat") && once("sent"), send(...about));
  document.addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
    const prose = document.querySelector(".turn:last-child .prose");
    if (!moments.click || moments.letter || !prose?.textContent.trim()) return;
    once("letter");
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => once("painted");
      port2.postMessage(0);
    });
  }).observe(document.body, { childList: true, subtree: true, characterData: true }));
}"""
# What the endpoint takes before it saves: its refusal of an empty message.
_REFUSED = """async (endpoint) => {
  const token = document.cookie.match(/csrftoken=([^;]*)/)[1];
  const began = performance.now();
  const headers = { "Content-Type": "application/json", "X-CSRFToken": token };
  await (await fetch(endpoint, { method: "POST", headers, body: '{"message": ""}' })).text();
  return performance.now() - began;
}"""


def _click(
    browser: "Browser", address: str, session: dict[str, str], options: Mapping[str, int], report: Report
) -> Figures:
    """The median of each part; and the whole from a bare server that sends the bytes of one of these answers."""
    report("a message, in parts")
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800}, service_workers="block")
    context.add_cookies([{**session, "url": address}])  # type: ignore[typeddict-item]
    _message(context)
    recorded = _text_of(browser, address, "/", session)
    runs = [_message(context) for _ in range(options["messages"])]
    page = context.new_page()
    page.goto("/")
    refused = statistics.median(page.evaluate(_REFUSED, CHAT_ENDPOINT) for _ in range(options["messages"]))
    body = _bytes_of_an_answer(context)
    context.close()
    parts = {name: round(statistics.median(one[name] for one in runs), 1) for name in PARTS if name in runs[0]}
    parts["request"] = round(refused, 1)
    parts["saving"] = round(parts.pop("saving", 0) - refused, 1)
    with serving(_bare({"/": recorded}, answer=body)) as bare:
        report("the same bytes from a bare server")
        bare_context = browser.new_context(base_url=bare, viewport={"width": 1280, "height": 800})
        _message(bare_context)
        bare_ms = statistics.median(_message(bare_context)["whole"] for _ in range(options["messages"]))
        bare_context.close()
    whole = statistics.median(one["whole"] for one in runs)
    return {
        "ms": round(whole, 1),
        "parts": parts,
        "largest": max(parts, key=parts.__getitem__),
        "bare_ms": round(bare_ms, 1),
        "of_bare": round(whole / bare_ms, 2),
    }


def _message(context: "BrowserContext") -> dict[str, float]:
    """One message in a new chat; the browser has the page's files."""
    page = context.new_page()
    page.add_init_script(f"({_MOMENTS})()")
    page.goto("/", wait_until="load")
    page.wait_for_timeout(SETTLED_MS / 5)
    _asked.clear()
    _say(page, "What do cats eat?")
    at: dict[str, float] = {}
    # The Content-Security-Policy refuses what would wait in the page.
    while "painted" not in at:
        page.wait_for_timeout(LOOK_MS)
        at = page.evaluate("moments")
    page.wait_for_timeout(SETTLED_MS / 5)
    page.close()
    asked, began = _asked.get("asked", at["turn"]), _asked.get("began", at["turn"])
    return {
        "script": at["sent"] - at["click"],
        "saving": at["turn"] - at["sent"],
        "task": asked - at["turn"],
        "model": began - asked,
        "stream": at["text"] - began,
        "renderer": at["letter"] - at["text"],
        "paint": at["painted"] - at["letter"],
        "whole": at["painted"] - at["click"],
    }


def _say(page: "Page", text: str) -> None:
    page.locator("#message").fill(text)
    page.locator("[data-send]").click()


def _longest_task(browser: "Browser", address: str, session: dict[str, str], report: Report) -> float:
    """In milliseconds; 0 if no task took more than 50, from which on a browser tells them."""
    report(f"an answer of {LONG_CHARACTERS:,} characters")
    context = browser.new_context(base_url=address, viewport={"width": 1280, "height": 800}, service_workers="block")
    context.add_cookies([{**session, "url": address}])  # type: ignore[typeddict-item]
    page = context.new_page()
    page.add_init_script(f"({_MOMENTS})()")
    page.goto("/", wait_until="load")
    page.wait_for_timeout(SETTLED_MS)
    page.evaluate("longest = 0")
    _say(page, LONG_QUESTION)
    page.wait_for_selector('.turn:last-child[data-status="complete"]', timeout=120_000)
    longest: float = page.evaluate("longest")
    context.close()
    return round(longest)


# When the model was asked for the answer and when it began, by the clock that browsers have too.
_asked: dict[str, float] = {}


def _model() -> Starlette:
    """A language model that answers at once; or, if the question says so, long and at an even pace."""

    async def complete(request: Request) -> StreamingResponse:
        # The second question is for the chat's title.
        _asked.setdefault("asked", time.time() * 1000)
        is_long = LONG_QUESTION in json.dumps((await request.json())["messages"][-1])
        return StreamingResponse(_long() if is_long else _at_once(), media_type="text/event-stream")

    async def models(request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "prompt", "object": "model"}]})

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"]), Route("/v1/models", models)])


async def _at_once() -> AsyncIterator[bytes]:
    _asked.setdefault("began", time.time() * 1000)
    yield chunk({"role": "assistant", "content": ANSWER_AT_ONCE})
    yield chunk(finish_reason="stop")
    yield b"data: [DONE]\n\n"


async def _long() -> AsyncIterator[bytes]:
    text = "".join(LONG_PIECE.format(number) for number in range(LONG_CHARACTERS // 100))[:LONG_CHARACTERS]
    began = time.monotonic()
    for number, start in enumerate(range(0, len(text), CHARACTERS_OF_A_TOKEN)):
        yield chunk({"role": "assistant", "content": text[start : start + CHARACTERS_OF_A_TOKEN]})
        # By the clock, so that a busy machine does not slow the pace.
        await asyncio.sleep(max(0.0, began + number / TOKENS_A_SECOND - time.monotonic()))
    yield chunk(finish_reason="stop")
    yield b"data: [DONE]\n\n"


def _text_of(browser: "Browser", address: str, path: str, session: dict[str, str]) -> str:
    context = browser.new_context(base_url=address)
    context.add_cookies([{**session, "url": address}])  # type: ignore[typeddict-item]
    text = context.request.get(path).text()
    context.close()
    return text


def _bytes_of_an_answer(context: "BrowserContext") -> str:
    token = next(each["value"] for each in context.cookies() if each["name"] == settings.CSRF_COOKIE_NAME)
    headers = {"X-CSRFToken": token, "Accept": "text/event-stream", "Prefer": "blocks", "Idempotency-Key": "recorded"}
    return context.request.post(CHAT_ENDPOINT, data={"message": "What do cats eat?"}, headers=headers).text()


def _bare(pages: Mapping[str, str], *, answer: str = "") -> Starlette:
    """Sends texts as they were recorded, the same files, and nothing else."""

    async def page(request: Request) -> Response:
        return Response(pages[request.url.path], media_type="text/html")

    async def say(request: Request) -> StreamingResponse:
        await request.body()
        events = [f"{event}\n\n".encode() for event in answer.split("\n\n") if event]
        return StreamingResponse(_each(events), media_type="text/event-stream")

    files = Mount(settings.STATIC_URL.rstrip("/"), StaticFiles(directory=settings.STATIC_ROOT))
    return Starlette(
        routes=[*(Route(path, page) for path in pages), Route(CHAT_ENDPOINT, say, methods=["POST"]), files]
    )


async def _each(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event


BENCHMARK = Benchmark(
    "pages",
    "paints, blocking, layout shift, bytes and requests of each page in Chromium, and a chat message in parts",
    run,
    {
        "runs": Number(5, "how often each page is opened"),
        "messages": Number(15, "how many chat messages are sent, to the product and to a bare server"),
    },
    table=table,
    words=words,
)
