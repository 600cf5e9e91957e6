"""The REST API of documents and records under `/api/v1/memory/`."""

from memory.rest.urls import memory_urls

__all__ = ["memory_urls"]
