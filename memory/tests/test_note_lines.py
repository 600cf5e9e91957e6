"""Notes by their lines: each has a passage after its headings, is found by it, and is shown with its neighbours."""

import pytest

from core.isolation.acting import acting_as
from intake.tests.factories import NOW, a_person, a_turn
from memory import index as indexing
from memory import records
from memory.backends.embedders import get_embedder
from memory.chunking import LINE_BYTES, MOST_HEADINGS, NOTE_CUTTING_RULES, line_text, note_lines
from memory.index.sources import CHUNK_BYTES, cut, key_of, line_spans, load
from memory.index.vectors import Meaning
from memory.models import Corpus, Embedding
from memory.models.documents import Scope
from memory.search.history import HistoryRequest, search_history
from memory.search.hybrid import embedded, gather
from memory.tests.writing import create, replace

FILLER = "".join(
    f"- The {word} stands in the shed beside the tools for the garden\n" for word in "abcdefghijklmnopqrst"
)


def lines(text, title=""):
    return [line_text(text[start:end], headings) for start, end, headings in note_lines(text, title=title)]


# -- What a line is ----------------------------------------------------------------------------------------------------


def test_items_and_paragraphs_are_lines_below_their_headings():
    text = (
        "# Me\n\nI live in Lisbon,\nby the river.\n\n## Keys ##\n- House: Vera\n* [ ] Van: tin\n\n# Work\n1. Ward 5B\n"
    )
    assert lines(text) == [
        "Me: I live in Lisbon,\nby the river.",
        "Me \u203a Keys: House: Vera",
        "Me \u203a Keys: Van: tin",
        "Work: Ward 5B",
    ]


def test_an_item_is_below_those_that_it_is_indented_under():
    text = "- Keys\n  - House\n    - Vera has one,\n      on the second floor\n  - Van\n- Bins\n"
    assert lines(text) == [
        "Keys: House",
        "Keys \u203a House: Vera has one,\n      on the second floor",
        "Keys: Van",
    ]


def test_a_paragraph_that_ends_in_a_colon_is_above_its_list():
    assert lines("Doctors:\n\n- Abrunhosa\n- Lund\n\nNothing else is here\n\n- free") == [
        "Doctors: Abrunhosa",
        "Doctors: Lund",
        "Nothing else is here",
    ]


def test_a_row_of_a_table_is_below_its_first_row():
    text = "## Phones\n| Who | Number |\n|:--|--:|\n| Vera | 12 34 |\n| Ann | 56 |\n- and the rest\n"
    assert lines(text) == [
        "Phones \u203a Who | Number: Vera | 12 34",
        "Phones \u203a Who | Number: Ann | 56",
        "Phones: and the rest",
    ]


def test_code_rules_and_headings_are_no_lines():
    text = (
        "Title\n=====\n\n```sh\n- rm everything here\n```\n\n---\n* * *\n~~~\nx = 1 + 2\n```\n~~~\nAfter all of that\n"
    )
    assert lines(text) == ["Title: After all of that"]


def test_a_word_or_two_without_a_heading_are_no_line():
    assert lines("Hello there\n\n- milk\n- and three words\n") == ["and three words"]


def test_the_title_of_a_note_is_above_all_headings():
    assert lines("## Hotel\n- Granvia", title="Kyoto") == ["Kyoto \u203a Hotel: Granvia"]


def test_of_many_headings_the_innermost_are_read():
    text = "".join(f"{'#' * level} Level {level}\n" for level in range(1, 7)) + "- deep"
    (line,) = lines(text)
    assert line == "Level 3 \u203a Level 4 \u203a Level 5 \u203a Level 6: deep"
    assert line.count("\u203a") == MOST_HEADINGS - 1


def test_a_long_paragraph_is_cut_into_as_many_sentences_as_fit():
    sentences = [f"This is sentence {number} of a paragraph that goes on and on." for number in range(30)]
    found = lines(" ".join(sentences))
    assert all(len(line.encode()) <= LINE_BYTES for line in found)
    assert " ".join(found) == " ".join(sentences)
    assert 4 < len(found) < 8


def test_a_sentence_that_is_too_long_is_left_to_the_chunk():
    assert lines("Short one first. " + "word " * 200 + "end. Short one last.") == [
        "Short one first.",
        "Short one last.",
    ]


def test_lines_are_where_they_say_whatever_ends_them():
    text = "# A\r\n\r\n- one two\r\n  three\r\n\ttab indented words\r\n| a | b |\r\n"
    assert lines(text) == ["A: one two\r\n  three\r\n\ttab indented words", "A: a | b"]


# -- In the index ------------------------------------------------------------------------------------------------------


def embedded_lines(source_id):
    """By chunk, the texts that are embedded for lines."""
    texts = load(map(key_of, Embedding.objects.filter(source_id=source_id)))
    embedder = get_embedder()
    return {
        text.key.chunk_index: [passage for span, passage in cut(text, embedder) if span in line_spans(text)]
        for text in texts
    }


@pytest.mark.django_db
def test_each_line_of_a_document_has_a_row_in_one_chunk():
    content = "# Shed\n" + "".join(f"- Box {number} holds the {number} screws of Vera\n" for number in range(200))
    memory = create(a_person(), content)
    by_chunk = embedded_lines(memory.id)
    assert len(by_chunk) > 3
    found = [line for chunk in sorted(by_chunk) for line in by_chunk[chunk]]
    assert found == [f"Shed: Box {number} holds the {number} screws of Vera" for number in range(200)]
    chunks = {(row.chunk_index, row.part) for row in Embedding.objects.all()}
    assert len(chunks) == Embedding.objects.count() > len(found)


@pytest.mark.django_db
def test_a_changed_line_is_embedded_alone_beside_its_chunk(monkeypatch):
    alice = a_person()
    content = "# Shed\n" + FILLER
    first = create(alice, content)
    indexing.embed_pending()
    embedder, asked = get_embedder(), []
    real = embedder.embed_documents
    monkeypatch.setattr(embedder, "embed_documents", lambda texts: asked.extend(texts) or real(texts))
    replace(alice, content.replace("The c stands", "The cello stands"), {first.state})
    indexing.embed_pending()
    assert "Shed: The cello stands in the shed beside the tools for the garden" in asked
    assert sum(text.startswith("Shed: ") for text in asked) == 1
    assert len(asked) < 5


@pytest.mark.django_db
def test_a_changed_heading_is_read_with_the_lines_of_later_chunks():
    alice = a_person()
    content = "# Shed\n" + FILLER * 3
    memory = create(alice, content)
    indexing.embed_pending()
    assert len(content) > 2 * CHUNK_BYTES
    replace(alice, content.replace("# Shed", "# Hut!"), {memory.state})
    by_chunk = embedded_lines(memory.id)
    assert all(line.startswith("Hut!: ") for those in by_chunk.values() for line in those)
    last = Embedding.objects.filter(chunk_index=max(by_chunk), vector=None)
    assert last.count() == len(by_chunk[max(by_chunk)])
    indexing.embed_pending()
    assert not Embedding.objects.filter(vector=None).exists()


@pytest.mark.django_db
def test_only_notes_of_older_rules_are_cut_again():
    alice = a_person()
    a_turn(alice, "We have to buy the paint for the shed")
    create(alice, "# Shed\n" + FILLER)
    indexing.embed_pending()
    notes = Embedding.objects.exclude(corpus=Corpus.CHAT)
    notes.filter(part__gt=3).delete()
    notes.update(cutting_rules=NOTE_CUTTING_RULES - 1)
    turns = set(Embedding.objects.filter(corpus=Corpus.CHAT).values_list("pk", "embedded_at"))
    assert indexing.enqueue_missing(now=NOW) == 1
    assert set(notes.values_list("cutting_rules", flat=True)) == {NOTE_CUTTING_RULES}
    assert notes.exclude(vector=None).exists()
    assert set(Embedding.objects.filter(corpus=Corpus.CHAT).values_list("pk", "embedded_at")) == turns


@pytest.mark.django_db
def test_a_line_of_no_words_fits_the_model_with_its_headings(monkeypatch):
    monkeypatch.setattr(get_embedder(), "max_tokens", 40)
    memory = create(a_person(), "# " + "?!" * 30 + "\n- " + ". : " * 60 + "\n- and three words\n")
    embedder = get_embedder()
    lines_of_chunk = embedded_lines(memory.id)[0]
    assert len(lines_of_chunk) == 2
    assert all(len(embedder.token_offsets(line)) <= 40 for line in lines_of_chunk)


@pytest.mark.django_db
def test_a_long_record_has_lines_and_a_short_one_has_none():
    alice = a_person()
    with acting_as(alice):
        short = records.create(user=alice, now=NOW, content="- one two three\n- four five six", type="note")
        long = records.create(user=alice, now=NOW, content="## Plan\n" + FILLER, type="note")
    assert Embedding.objects.filter(source_id=short.id).count() == 1
    (of_record,) = embedded_lines(long.id).values()
    assert len(of_record) == 20 and all(line.startswith("Plan: The ") for line in of_record)


# -- In a search -------------------------------------------------------------------------------------------------------


def found(user, query):
    return search_history(HistoryRequest(query=query, max_results=5), user=user, now=NOW).results


@pytest.mark.django_db
def test_a_line_is_found_by_its_headings_and_shown_with_its_neighbours():
    alice = a_person()
    fact = "- spare: in the old tobacco tin\n"
    create(alice, f"# Me\n\n## Shed\n{FILLER}\n## Van\n" + "- winter tyres are at the garage\n" * 8 + fact + FILLER)
    for number in range(20):
        a_turn(alice, f"The van of neighbour {number} stood in the shed beside the tools")
    indexing.embed_pending()
    best = found(alice, "van spare")[0]
    assert "tobacco tin" in best.excerpt.text
    assert "winter tyres" in best.excerpt.text and "The a stands" in best.excerpt.text
    assert len(best.excerpt.text) <= 500
    assert best.excerpt.text.startswith("Me \u203a Van: …")
    assert best.pieces[0].headings == "Me \u203a Van"
    marked = [best.excerpt.text[start:end] for start, end in best.excerpt.highlights]
    assert "spare" in marked


@pytest.mark.django_db
def test_a_heading_within_the_excerpt_is_not_repeated():
    alice = a_person()
    create(alice, f"# Me\n{FILLER}\n## Van\n- spare: in the old tobacco tin\n{FILLER}")
    indexing.embed_pending()
    best = found(alice, "van spare")[0]
    assert "## Van\n- spare: in the old tobacco tin" in best.excerpt.text
    assert best.excerpt.text.startswith("…")


@pytest.mark.django_db
def test_a_question_that_names_one_fact_is_answered_by_a_note_of_many():
    """By the vector of its whole chunk the note would be behind the turns."""
    alice = a_person()
    create(alice, f"# Me\n{FILLER}- Vera keeps the second ladder key\n{FILLER}")
    for number in range(10):
        a_turn(alice, f"Vera bought ladder number {number} and some paint")
    indexing.embed_pending()
    best = found(alice, "Who keeps the second ladder key?")[0]
    assert "Vera keeps the second ladder key" in best.excerpt.text
    assert best.reference.document == "MEMORY.md"


@pytest.mark.django_db
def test_by_words_alone_a_note_is_as_long_as_it_is(monkeypatch):
    alice = a_person()
    create(alice, f"# Me\n{FILLER}- spare: in the tobacco tin\n")
    indexing.embed_pending()
    embedder = get_embedder()
    scope = Scope(alice, (Corpus.MEMORY,))
    with acting_as(alice):
        by_words = gather(scope, query="spare", meaning=Meaning(embedder, None)).hits
        by_both = gather(scope, query="spare tin", meaning=embedded("spare tin")).hits
    (of_words,), (near, *_) = by_words, by_both
    assert of_words.length > 100
    assert 0 < near.length < 5
    assert near.distance == near.user_distance


@pytest.mark.django_db
def test_a_word_in_a_long_list_counts_as_much_as_in_a_message():
    alice = a_person()
    create(alice, f"# Me\n{FILLER}- The ladder is green\n")
    a_turn(alice, "The ladder stands in the shed and " + "one more garden tool is there now " * 8)
    with acting_as(alice):
        found = gather(Scope(alice, tuple(Corpus)), query="ladder", meaning=Meaning(get_embedder(), None)).hits
    assert [hit.corpus for hit in found] == [Corpus.MEMORY, Corpus.CHAT]
