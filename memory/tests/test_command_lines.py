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


FLAGS = {
    "--no-cache": ["without a cache nothing is kept", "no-cache is a header", "the cache is cold"],
    "-C": ["the blue-collar shop", "a vitamin-c pill", "C is a language"],
    "--depth=1": ["the depth is 1", "a depth of 12 metres", "depth first, 1 step"],
}


@pytest.mark.django_db
@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("question", ["{}", "what does {} do?", "Why did we use `{}` there"])
def test_a_flag_is_a_word_with_its_dashes_and_found_first(flag, question):
    alice = a_person()
    wanted = a_turn(alice, f"I run it with {flag} on the build server", "Good")
    for number, other in enumerate(FLAGS[flag] * 3):
        a_turn(alice, f"{other}, number {number}: what does it do there?", "Why did we use it, it does that")
    index.embed_pending()
    query = question.format(flag)
    found = search_chat_history(user=alice, query=query, limit=5, mode=SearchMode.HYBRID, now=NOW).matches
    assert found[0].key == (wanted.conversation_id, 1)
    (first, *_) = search_history(HistoryRequest(query=query), user=alice, now=NOW).results
    assert first.reference.conversation_id == wanted.conversation_id
