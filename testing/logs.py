"""Captures log records, so that tests can search them for text that must not be there."""

import logging


class Everything(logging.Handler):
    """Keeps each log record as a file would: message, arguments and traceback."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def about(self, word: str) -> list[str]:
        return [line for line in self.lines if word in line]
