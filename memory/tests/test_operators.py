"""Operators in a query: read by one parser, fulfilled by every result, on every surface."""

from datetime import UTC, date, datetime, timedelta

import pytest

from intake.chats.services import save_exchange
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index, records
from memory.search import SearchMode, search_chat_history
from memory.search.history import HistoryRequest, search_history
from memory.search.literal import Narrowing
from memory.search.query import Query, parse_query, without_operator
from testing.kept_rows import kept_rows


def read(query):
    parsed = parse_query(query)
    return {
        name: getattr(parsed, name) for name in ("text", *parsed.__slots__) if getattr(parsed, name) != NOTHING[name]
    }


NOTHING = {name: getattr(Query(""), name) for name in Query.__slots__}


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("the roof", {"text": "the roof"}),
        ('who said "never again"', {"text": "who said never again", "quotations": ("never again",)}),
        ('roof -leak -"old  tiles"', {"text": "roof", "excluded": ("leak", "old tiles")}),
        ("roof from:Me", {"text": "roof", "speaker": "me"}),
        ("FROM:assistant", {"speaker": "assistant"}),
        ('in:"Roof repair" in:2026', {"titles": ("Roof repair", "2026")}),
        (
            "before:2026-03-01 after:2026-01-31 roof has:code",
            {"text": "roof", "before": date(2026, 3, 1), "after": date(2026, 1, 31), "has_code": True},
        ),
        ("„zwei Wörter“ «deux mots»", {"text": "zwei Wörter deux mots", "quotations": ("zwei Wörter", "deux mots")}),
        ("before:soon from:bob -from:me", {"malformed": ("before:soon", "from:bob", "-from:me")}),
        ("in: has:tea after:2026-02-30", {"malformed": ("in:", "has:tea", "after:2026-02-30")}),
        ("-5 degrees - and --flag -v x-ray http://in:80", {"text": "-5 degrees - and --flag -v x-ray http://in:80"}),
        ('an open " mark', {"text": 'an open " mark'}),
        ("rm -rf", {"text": "rm", "excluded": ("rf",)}),
        ("-rf /tmp", {"malformed": ("-rf",)}),
        ("git log --oneline -graph", {"malformed": ("-graph",)}),
        ("roof -leak -tight", {"text": "roof", "excluded": ("leak", "tight")}),
    ],
)
def test_a_query_is_read_so(query, says):
    found = {name: value for name, value in read(query).items() if name not in ("written", "sent", "operators")}
    if "malformed" in says:
        assert found.pop("text") == query
    assert found == says


@pytest.mark.parametrize(
    ("operator", "rest"),
    [
        ("-leak", 'roof "old tiles" in:"Roof repair"'),
        ('"old tiles"', 'roof -leak old tiles in:"Roof repair"'),
        ('in:"Roof repair"', 'roof -leak "old tiles"'),
    ],
)
def test_an_operator_can_be_taken_out_of_its_query(operator, rest):
    query = 'roof -leak "old tiles" in:"Roof repair"'
    assert operator in parse_query(query).operators
    assert without_operator(query, operator) == rest


TURNS = {
    "tiles": ("The old tiles of the roof leak", "Call a roofer"),
    "turned": ("The tiles, old as they are, stay on the roof", "Good"),
    "reversed": ("Tell me about roofs", "Old tiles are heavy"),
    "code": ("Compute the roof's area", "Sure:\n```python\narea = 3 * 4\n```"),
    "accents": ("Señora Núñez sells\n  old TILES", "Nice"),
    "plain": ("The roof is tight", "Great"),
}


@kept_rows
def of_tiles():
    alice = a_person()
    for number, (name, (said, answered)) in enumerate(TURNS.items(), start=1):
        conversation = Conversation.objects.create(user=alice, title=f"About {name}", last_active_at=NOW)
        at = datetime(2026, 1, number, 12, tzinfo=UTC)
        save_exchange(conversation=conversation, user_message=said, assistant_message=answered, said_at=at)
    index.embed_pending()
    return alice


def by_chats(user, query):
    found = search_chat_history(user=user, query=query, limit=20, mode=SearchMode.HYBRID, now=NOW)
    notes = [note for note in found.notes if not note.startswith("read as: ")]
    return found.has_nothing_relevant, notes, [hit.key[0] for hit in found.matches]


def by_history(user, query):
    found = search_history(HistoryRequest(query=query, max_results=20), user=user, now=NOW)
    keys = [result.reference.conversation_id for result in found.results if result.reference.kind == "message"]
    notes = (*found.lacking, *(found.query.malformed if found.query else ()))
    return found.has_nothing_relevant, notes, keys


@pytest.fixture(params=[by_chats, by_history])
def ask(request, of_tiles):
    """The names of the turns that are found, in their order, and what the answer says about the query."""
    titles = dict(Conversation.objects.values_list("pk", "title"))

    def ask(query):
        is_nothing, notes, found = request.param(of_tiles, query)
        return [titles[each].removeprefix("About ") for each in found], is_nothing, " ".join(notes)

    return ask


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('"old tiles"', {"tiles", "reversed", "accents"}),
        ('roof "OLD  tiles"', {"tiles", "reversed", "accents"}),
        ('"senora nunez"', {"accents"}),
        ('"old tiles" "roofer"', {"tiles"}),
        ('"old tile"', None),
        ('"old tiles" -heavy', {"tiles", "accents"}),
        ('roof -"old tiles" -tight', {"turned", "code"}),
        ('"old tiles" from:me', {"tiles", "accents"}),
        ('"old tiles" from:assistant', {"reversed"}),
        ("roof in:plain", {"plain"}),
        ('roof in:"about code"', {"code"}),
        ("roof has:code", {"code"}),
        ("has:code", {"code"}),
        ("tiles before:2026-01-02", {"tiles"}),
        ("tiles after:2026-01-05", {"accents"}),
        ('"old tiles" after:2026-01-02 before:2026-01-05', {"reversed"}),
    ],
)
def test_every_result_fulfils_the_operators(ask, query, names):
    found, is_nothing, notes = ask(query)
    if names is None:
        assert is_nothing and "No text has" in notes and found
    else:
        found = set(found) - ({"code", "plain"} if query.startswith("tiles after") else set())
        assert (found, is_nothing, notes) == (names, False, "")


@pytest.mark.parametrize(
    ("query", "names"),
    [("ooferz", []), ("oofe", ["tiles"]), ("from:assistant oofe", ["tiles"]), ("from:me oofe", [])],
)
def test_half_a_word_is_found_on_the_side_of_the_speaker(of_tiles, query, names):
    titles = dict(Conversation.objects.values_list("pk", "title"))
    assert [titles[each].removeprefix("About ") for each in by_history(of_tiles, query)[2]] == names


@pytest.mark.parametrize("query", ["tiles -heavy", "before:2026-01-02", '"old tiles"'])
def test_a_semantic_search_reads_neither_operators_nor_quotations(of_tiles, query):
    found = search_chat_history(user=of_tiles, query=query, limit=20, mode=SearchMode.SEMANTIC, now=NOW)
    assert (len(found.matches), found.notes, found.window) == (len(TURNS), (), None)


@pytest.mark.parametrize(
    ("query", "note"),
    [
        ("roof -leak", 'without "leak"'),
        ('from:me in:"About code" tiles', 'from:me, in:"About code"'),
        ("before:2020-01-01", "before:2020-01-01"),
        ("has:code roof", "has:code"),
        ("yesterday", None),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_text_that_contains_the_whole_query_is_found_whatever_was_read_in_it(query, note):
    alice = a_person()
    kept = a_turn(alice, f"I leak: {query}", said_at=datetime(2025, 6, 1, tzinfo=UTC))
    a_turn(alice, "The roof", said_at=NOW - timedelta(days=1))
    documents.append(user=alice, day=NOW.date(), text=f"I noted {query} and leak", now=NOW)
    Conversation.objects.create(user=alice, title=f"How to type {query} so that it is a leak", last_active_at=NOW)
    index.embed_pending()
    chats = search_chat_history(user=alice, query=query, limit=20, mode=SearchMode.HYBRID, now=NOW)
    history = search_history(HistoryRequest(query=query, max_results=20), user=alice, now=NOW)
    assert kept.conversation_id in [hit.key[0] for hit in chats.matches]
    assert {"message", "daily_log", "session"} <= {each.reference.kind.value for each in history.results}
    said = () if note is None else (f"read as: {note}; in quotation marks it is searched as written",)
    assert chats.notes == history.query.notes == said


def test_an_option_in_a_text_is_not_the_word_that_is_excluded():
    narrowing = Narrowing(Query("", excluded=("xzf",)), None, None)
    assert narrowing.fits("Unpack it with tar -xzf backup.tar") and not narrowing.fits("xzf is a flag")


def test_operators_alone_list_what_fits_the_newest_first(ask):
    assert ask("after:2026-01-02 before:2026-01-05")[0] == ["code", "reversed", "turned"]


def test_a_malformed_operator_is_plain_words_and_the_answer_says_so(ask):
    found, _, notes = ask("roof before:soon")
    assert "plain" in found and "before:soon" in notes


def test_a_chat_that_is_not_there_has_no_texts_and_the_answer_says_so(ask):
    found, _, notes = ask("roof in:Nowhere")
    assert (found, notes) == ([], 'No chat has "Nowhere" in its title')


def test_the_nearest_are_offered_for_a_quotation_that_is_far_from_every_text(ask):
    found, is_nothing, notes = ask('"violet elephants waltzing"')
    assert found and is_nothing
    assert notes == 'No text has "violet elephants waltzing" word for word: these are the nearest'


def test_a_time_within_quotation_marks_is_text(ask):
    assert ask('"tiles yesterday"')[2] == 'No text has "tiles yesterday" word for word: these are the nearest'


@pytest.mark.django_db(transaction=True)
def test_where_there_is_no_text_none_is_called_the_nearest():
    alice = a_person()
    for search in (by_chats, by_history):
        _, notes, found = search(alice, '"old tiles"')
        assert (found, list(notes)) == ([], ['No text has "old tiles" word for word'])


@pytest.mark.django_db(transaction=True)
def test_notes_and_records_fulfil_operators_too():
    alice = a_person()
    documents.append(user=alice, day=None, text="The attic has old tiles", now=NOW)
    records.create(user=alice, content="Old tiles cost 40, the attic is cold", now=NOW)
    records.create(user=alice, content="Tiles that are old: the attic", now=NOW)
    index.embed_pending()

    def found(query):
        results = search_history(HistoryRequest(query=query), user=alice, now=NOW).results
        return sorted(result.excerpt.text[:9] for result in results)

    assert found('attic "old tiles"') == ["Old tiles", "The attic"]
    assert found('attic "old tiles" -cold') == ["The attic"]
    assert found("attic from:assistant") == found("attic in:Attic") == []


def test_an_excerpt_shows_the_quotation_and_the_speakers_side(of_tiles):
    request = HistoryRequest(query='"old tiles" from:assistant')
    (result,) = search_history(request, user=of_tiles, now=NOW).results
    assert result.excerpt.text == "Assistant: Old tiles are heavy"
    assert [result.excerpt.text[start:end] for start, end in result.excerpt.highlights] == ["Old tiles"]


@pytest.mark.parametrize(
    ("words", "text", "has_them"),
    [
        ("cat", "a cat.", True),
        ("cat", "Cats concatenate", False),
        ("cat", "concatenate cat", True),
        ("don't", "I DON\u2019T", True),
        ("c++", "I like C++!", True),
        ("庭", "猫は庭で寝ている", True),
        ("ปลา", "แมวชอบปลา", True),
        ("4711", "ORDER-4711", True),
        ("471", "ORDER-4711", False),
        ("two words", "two\n\twords", True),
    ],
)
def test_a_quotation_ends_where_its_words_end(words, text, has_them):
    assert Narrowing(Query("", quotations=(words,)), None, None).fits(text) is has_them
