"""The DRF edge of what people keep: their documents and records under `/api/v1/memory/`."""

from memory.rest.urls import memory_urls

__all__ = ["memory_urls"]
