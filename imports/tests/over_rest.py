"""A program that imports over REST, as the page and the command line do; the worker's work is done in between."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections
from django.test import Client

from imports.storing.worker import work

URL = "/api/v1/imports/"


class Importer:
    """`client`: logged in, or with a token."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def post(self, path: str, body: Any = None) -> Any:
        return self.client.post(f"{URL}{path}", json.dumps(body or {}), content_type="application/json")

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"{URL}{path}", query)

    def begin(self, data: bytes, filename: str = "export.zip", **fields: Any) -> str:
        response = self.post("", {"filename": filename, "bytes": len(data), **fields})
        assert response.status_code == 201, response.content
        return response.json()["id"]

    def put(self, id_: str, data: bytes, *, first: int, total: int) -> Any:
        return self.client.put(
            f"{URL}{id_}/content/",
            data,
            content_type="application/octet-stream",
            headers={"content-range": f"bytes {first}-{first + len(data) - 1}/{total}"},
        )

    def upload(self, data: bytes, **fields: Any) -> str:
        """Uploaded and read."""
        id_ = self.begin(data, **fields)
        assert self.put(id_, data, first=0, total=len(data)).status_code == 200
        while work():
            pass
        return id_

    def bring(self, data: bytes, **choice: Any) -> dict[str, Any]:
        """From the upload to its end."""
        id_ = self.upload(data)
        response = self.post(f"{id_}/start/", choice)
        assert response.status_code == 202, response.content
        while work():
            pass
        return self.get(f"{id_}/").json()

    def undo(self, id_: str, **fields: Any) -> Any:
        response = self.post(f"{id_}/undo/", fields)
        while work():
            pass
        return response


@contextmanager
def a_worker() -> Iterator[None]:
    """Takes one job after the other in a thread, which logs in as the web role, as the importing worker does."""
    ended = threading.Event()

    def work_on() -> None:
        try:
            while not ended.wait(0.02):
                work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=work_on, name="importing worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
