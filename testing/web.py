"""A small web on this machine for tests: pages by host and path, and a search of SearXNG's kind."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from core import pinned


@dataclass
class Web:
    """`pages`: status, headers and body by `host/path`. `hits`: what each search finds. `asked`: each host and path."""

    port: int = 0
    pages: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    hits: list[dict[str, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    speaks_json: bool = True
    # In place of what a search finds.
    found: bytes | None = None
    # The key that the search accepts; empty for one without.
    key: str = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def engine(self) -> dict[str, str]:
        return {"kind": "searxng", "address": self.address, "sealed": ""}

    def add(self, address: str, body: str | bytes, **headers: str) -> str:
        """A page that searches find too."""
        data = body if isinstance(body, bytes) else body.encode()
        headers = {"Content-Type": "text/html; charset=utf-8", **{k.replace("_", "-"): v for k, v in headers.items()}}
        self.pages[address] = (200, headers, data)
        self.hits.append({"title": f"About {address}", "url": f"http://{address}", "content": "An excerpt."})
        return f"http://{address}"

    def answer(self, host: str, path: str, headers: Any) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(f"{host}{path}")
        if not host.startswith("127."):
            return self.pages.get(f"{host}{path}", (404, {}, b""))
        self.searched.append(parse_qs(urlsplit(path).query).get("q", [""])[0])
        if self.key not in (headers["X-Subscription-Token"] or headers["Authorization"] or ""):
            return 401, {}, b""
        body = json.dumps({"results": self.hits, "web": {"results": self.hits}}).encode()
        body = body if self.found is None else self.found
        return (200, {"Content-Type": "application/json"}, body) if self.speaks_json else (403, {}, b"")


@contextmanager
def served(web: Web, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """Names that end in `.test` lead to it; every other address is judged as always."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = web.answer(self.headers["Host"], self.path, self.headers)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - as the class names it

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.port = server.server_port
    judged = pinned.judged_addresses

    async def addresses(url: Any, origin: Any) -> list[tuple[str, int]]:
        return [("127.0.0.1", web.port)] if url.host.endswith(".test") else await judged(url, origin)

    monkeypatch.setattr(pinned, "judged_addresses", addresses)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
