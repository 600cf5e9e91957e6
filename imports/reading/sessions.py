"""The logs of agents' sessions: which files are some, by their first lines, and the work of subagents, folded.

A log is recognised by its content: in a product's folder, in a part of it, in a zip, or alone under any name.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from core.text import gettext_noop as _
from imports.reading.exported import LONGEST_SUMMARY
from imports.reading.files import Files
from imports.reading.items import ImportedConversation, ImportedMessage, Item, Items, Skipped
from imports.reading.json_lines import first_lines
from imports.reading.json_streams import LOOKED_AT
from imports.reading.values import Fields, base_name

# Also packed, reset or deleted ones, whose time follows the name.
_LOG = re.compile(r"\.jsonl(?:\.[^/]*)?\Z", re.IGNORECASE)


def logs(
    files: Files, is_of: Callable[[Fields], bool], named: re.Pattern[str], at_most: int | None = None
) -> Iterator[str]:
    """The names of the logs of which a first line is of the product, and those that have its names for them."""
    names = files.names()
    for name in [name for name in names if _LOG.search(name) or len(names) == 1 or named.match(name)][:at_most]:
        if named.match(name) or any(map(is_of, first_lines(files, name))):
            yield name


def has_logs(files: Files, is_of: Callable[[Fields], bool], named: re.Pattern[str]) -> bool:
    return any(map(named.match, files.names())) or any(logs(files, is_of, named, LOOKED_AT))


def stem(name: str) -> str:
    """A file's name without its folder and endings: usually the session's id."""
    return re.split(r"\.jsonl?\b", base_name(name), maxsplit=1, flags=re.IGNORECASE)[0]


class Children:
    """The work of subagents and reviews: the program's words, kept folded below their parents and never searched."""

    def __init__(self) -> None:
        # By the session for which they worked, and by their own place: their name and messages.
        self._of: dict[str, dict[str, tuple[str, list[ImportedMessage]]]] = {}

    def add(self, parent: str, where: str, messages: Sequence[ImportedMessage], *, name: str = "subagent") -> None:
        self._of.setdefault(parent, {}).setdefault(where, (name, []))[1].extend(messages)

    def folded(self, messages: tuple[ImportedMessage, ...], *sessions: str) -> tuple[ImportedMessage, ...]:
        """Each child among the calls of the first answer after its end, or else of the last message."""
        found = list(messages)
        children = [child for session in sessions for child in self._of.pop(session, {}).values()]
        for name, said in children if found else ():
            answers = [place for place, message in enumerate(found) if message.role == "assistant"]
            end = max((message.at for message in said if message.at), default=None)
            after = (place for place in answers if end and (at := found[place].at) and at >= end)
            place = next(after, answers[-1] if answers else len(found) - 1)
            text = "\n\n".join(f"> {each.text}" if each.role == "user" else each.text for each in said)
            if len(text) > LONGEST_SUMMARY:
                # It ends with its report.
                text = f"{text[: LONGEST_SUMMARY // 4]}\n\n…\n\n{text[10 - LONGEST_SUMMARY * 3 // 4 :]}"
            call = {"name": name, "summary": text}
            found[place] = replace(found[place], tool_calls=(*found[place].tool_calls, call))
        return tuple(found)

    def placed(self, item: Item, where: str, parent: str | None) -> Items:
        """A session with what worked for it; the work for another session, its `parent`, waits for that one."""
        if not isinstance(item, ImportedConversation):
            yield item
        elif parent is None:
            yield replace(item, messages=self.folded(item.messages, item.external_id, *item.also_ids))
        else:
            self.add(parent, where, item.messages)

    def without_parent(self) -> Iterator[Skipped]:
        """The work of subagents, whose sessions are not in the export."""
        reason = _("the work of a subagent, whose session is not in this export")
        for session, children in self._of.items():
            yield from (Skipped(where=where, reason=reason, external_id=session) for where in children)
