"""Conversations and their turns: every write, reading, versions, deletion, export, usage."""
