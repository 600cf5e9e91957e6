"""Perplexity: a thread of questions and answers, in the forms of two exporters, with the sources as links."""

import json
from typing import Any

from core.text import gettext_noop as _
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.files import Files
from imports.reading.items import ImportedMessage, Items, Skipped
from imports.reading.json_streams import names_with, of_shapes
from imports.reading.products import ExportReader
from imports.reading.values import (
    Fields,
    first_of,
    first_time,
    joined,
    line_of,
    list_of,
    object_of,
    objects_of,
    parse_time,
    text_of,
    value_at,
)

_TIMES = ("timestamp", "entry_created_datetime", "created_at", "entry_updated_datetime", "updated_datetime")
_SHAPES = ({"conversations.query"}, {"entries.query_str"}, {"query_str"})


def _read(files: Files) -> Items:
    return items_of(files, names_with(files, *_SHAPES), _conversation)


def _conversation(where: str, value: Any, _not_shown: NotShown) -> Items:
    record = object_of(value)
    about = object_of(record, "metadata") or object_of(record, "thread_metadata")
    entries = objects_of(record.get("conversations") or record.get("entries")) or ([record] * ("query_str" in record))
    if not entries:
        yield Skipped(where=where, reason=NO_MESSAGES)
        return
    first = entries[0]
    draft = ConversationDraft(
        product="perplexity",
        where=where,
        external_id=first_of(about, "thread_id", "context_uuid", "uuid")
        or first_of(first, "context_uuid", "thread_uuid", "uuid", "backend_uuid"),
        title=first_of(about, "thread_title", "title") or first_of(first, "thread_title"),
        created_at=parse_time(about, "thread_created_at") or first_time(first, *_TIMES),
    )
    before = None
    for place, entry in enumerate(entries):
        node = first_of(entry, "uuid", "backend_uuid") or f"entry-{place}"
        asked = text_of(entry, "query") or text_of(entry, "query_str")
        answered = joined([_answer(entry), _sources(entry)])
        model, at = first_of(entry, "display_model", "model"), first_time(entry, *_TIMES)
        draft.say(node, before, at, "user", asked.strip())
        before = f"{node}-answer"
        answer = ImportedMessage(id=before, role="assistant", text=answered, at=at, at_inferred=True, model=model)
        draft.add(before, node, at, answer)
    yield draft.finished()


def _answer(entry: Fields) -> str:
    """In a field of its own, in the blocks for the question, or formerly in a text that is JSON itself."""
    blocks = [object_of(each, "markdown_block") for each in objects_of(entry, "blocks")]
    texts = [text_of(each, "answer") or "".join(map(text_of, list_of(each, "chunks"))) for each in blocks]
    # The same answer stands in a block for each use.
    if found := text_of(entry, "answer") or joined(dict.fromkeys(texts)):
        return found
    try:
        steps = json.loads(text_of(entry, "text"))
        last = object_of(list_of(steps)[-1] if isinstance(steps, list) and steps else steps)
        answer = value_at(last, "content", "answer") or last.get("answer")
        inner = json.loads(answer) if isinstance(answer, str) and answer.startswith("{") else answer
        return text_of(inner) or text_of(inner, "answer")
    except (ValueError, RecursionError):
        return text_of(entry, "text")


def _sources(entry: Fields) -> str:
    """The pages that the answer names by `[1]`, as a list of links."""
    found = objects_of(entry, "sources") or objects_of(entry, "web_results")
    for block in objects_of(entry, "blocks"):
        results = object_of(block, "web_result_block") or object_of(block, "sources_mode_block")
        found = found or objects_of(results, "web_results")
    links = [(first_of(each, "title", "name"), line_of(each, "url")) for each in found]
    return "\n".join(f"{number}. [{name or url}]({url})" for number, (name, url) in enumerate(links, 1) if url)


READER = ExportReader(
    product="perplexity",
    label="Perplexity",
    recognises=of_shapes(*_SHAPES),
    read=_read,
    looks_for=_("JSON of a thread, with conversations or entries that have a query"),
)
