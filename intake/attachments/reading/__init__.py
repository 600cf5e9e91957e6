"""Reads the text of a file: `read_safely` in a process of its own, `read_file` within it. Knows no database."""

from intake.attachments.reading.parts import Part, Reading, Unreadable

__all__ = ["Part", "Reading", "Unreadable"]
