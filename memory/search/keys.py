"""How a text is named while it is searched for: by its source and its place in it."""

from uuid import UUID

Key = tuple[UUID, int]
"""For chat the conversation and the turn number."""

PlainKey = tuple[str, int]
"""The same with the source as text: a search looks hundreds of them up, and a UUID works out its hash every time."""
