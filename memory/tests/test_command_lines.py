"""Command lines, flags, paths, negative numbers and ranges: stored once, and found by every search as they stand."""

import pytest

from intake.tests.factories import NOW, a_person, a_turn
from memory import index, records
from memory.search import MemorySearchQuery, SearchMode, search_chat_history, search_memory
from memory.search.history import HistoryRequest, search_history
from testing.kept_rows import kept_rows

LINES = [
    "rm -rf",
    "tar -xzf backup.tar",
    "git commit -am",
    "git log --oneline -graph",
    "java -verbose -jar app.jar",
    "docker run -it --rm ubuntu",
    "find . -name core -delete",
    "-xzf",
    "-verbose",
    "--depth=1",
    "-5 °C",
    "from -12 to -7",
    "10-20",
    "2019-2021",
    "C:\\x -r",
    "/usr/local/-cache",
    "a -b",
    "ls -la ~/in:box",
    "before:2020-01-01",
    "x=-1, y=-22",
]


@kept_rows
def of_lines():
    alice = a_person()
    for line in LINES:
        a_turn(alice, f"I type {line} here", "Good")
        records.create(user=alice, content=f"On the shed stands {line} in white", now=NOW)
        for number in range(2):
            a_turn(alice, f"I type {line.split()[0].strip('-')} {number} there", "Good")
    index.embed_pending()
    return alice


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_found_first_as_it_stands(of_lines, line):
    wanted, noted = f"I type {line} here", f"On the shed stands {line} in white"
    hybrid = search_chat_history(user=of_lines, query=line, limit=5, mode=SearchMode.HYBRID, now=NOW)
    semantic = search_chat_history(user=of_lines, query=line, limit=5, now=NOW)
    memory = search_memory(MemorySearchQuery(text=line, top_k=5), user=of_lines)
    history = search_history(HistoryRequest(query=line, max_results=20), user=of_lines, now=NOW).results
    assert wanted in hybrid.matches[0].snippet
    assert wanted in [hit.snippet for hit in semantic.matches]
    assert noted in [each.record.content for each in memory]
    kinds = {each.reference.kind.value for each in history if wanted in each.excerpt.text or noted in each.excerpt.text}
    assert {"memory", "message"} <= kinds
