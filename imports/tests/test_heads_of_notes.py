"""Heads of notes as people's programs write them: every property is kept, shown with the note and found."""

import pytest

from core.isolation.acting import acting_as
from evals.expectations import read_all
from imports.models import Import
from imports.reading.items import ImportedDocument
from imports.storing.documents import keep_all
from intake.tests.factories import a_person
from memory.models import MemoryDocument


@pytest.fixture
def notes(tmp_path):
    def of(files):
        for name, text in files.items():
            path = tmp_path / "vault" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_all(tmp_path / "vault")

    return of


def only(reading):
    (found,) = reading.documents
    return found


def test_properties_are_kept_beside_title_and_date_which_are_shown_anyway(notes):
    head = "title: Pancake\ncreated: 2026-02-03\naliases: [Groats, Meule-crêpe]\nPhone number: +32 3\nby:\n  name: Odile\nempty:\n"
    found = only(notes({"a.md": f"---\n{head}---\nMix and fry.\n"}))
    assert (found.title, found.at.isoformat(), found.text) == ("Pancake", "2026-02-03", "Mix and fry.")
    assert found.properties == (
        ("aliases", "Groats, Meule-crêpe"),
        ("Phone number", "+32 3"),
        ("by", '{"name": "Odile"}'),
    )


def test_a_note_of_properties_alone_is_not_empty(notes):
    found = only(notes({"People/Odile.md": "---\naliases:\n  - Granny Odile\nphone: +32 3 555 01 99\n---\n"}))
    assert (found.title, found.properties) == ("Odile", (("aliases", "Granny Odile"), ("phone", "+32 3 555 01 99")))


@pytest.mark.parametrize(
    "head", ["date:\t2026-03-01", "\tdate: 2026-03-01", "date: \t2026-03-01", "tags: [a\ndate:\t2026-03-01"]
)
def test_a_tab_in_a_head_does_not_hide_its_date(notes, head):
    assert only(notes({"a.md": f"---\n{head}\n---\nbody\n"})).at.isoformat() == "2026-03-01"


def test_lines_of_a_loose_head_go_on_with_the_value_above(notes):
    found = only(notes({"a.md": "---\ntitle: A: b\nabout: one\n  and two\nlist:\n- x\nabout: again\n---\nbody\n"}))
    assert found.properties == (("about", "one and two"), ("list", "x"), ("about 3", "again"))


def test_the_pages_and_days_of_logseq_are_read(notes):
    files = {
        "journals/2026_03_14.md": "- milled\n",
        "journals/20260315.md": "- ground\n",
        "pages/m.md": "title:: The mill\nalias:: Windmill, Molen\n\n- body\n",
        "pages/c.md": "std::vector is no property\n",
        "logseq/config.edn": "{}",
        "logseq/bak/pages/m.md.bak": "old",
    }
    reading = notes(files)
    found = {each.external_id: each for each in reading.documents}
    assert found["journals/2026_03_14.md"].at.isoformat() == "2026-03-14"
    assert found["journals/20260315.md"].at.isoformat() == "2026-03-15"
    page = found["pages/m.md"]
    assert (page.title, page.properties, page.text) == ("The mill", (("alias", "Windmill, Molen"),), "- body")
    assert found["pages/c.md"].text == "std::vector is no property"
    assert reading.skipped == [] and reading.notices == [
        "Files that hold no messages or notes were left out: 1 bak, 1 edn."
    ]


def test_a_drawing_has_its_texts_and_no_packed_data_and_a_canvas_its_words(notes):
    drawn = (
        "---\nexcalidraw-plugin: parsed\n---\n==⚠  Switch to EXCALIDRAW VIEW ⚠==\n\nMy words\n\n# Excalidraw Data\n\n"
        "## Text Elements\nChain hoist ^Ab12Cd34\n\nSack trap ^Ef56Gh78\n\n%%\n## Drawing\n```compressed-json\nN4KAk\n```\n%%"
    )
    files = {
        "Hoist.excalidraw.md": drawn,
        "Board.canvas": '{"nodes": [{"type": "text", "text": "Order cogs"}, {"type": "file", "file": "Mill.md"}]}',
        "Wheel.excalidraw": '{"elements": [{"type": "text", "text": "Crown wheel"}, {"type": "arrow"}]}',
        "Empty.canvas": '{"nodes": []}',
    }
    found = {each.title: list(filter(None, each.text.splitlines())) for each in notes(files).documents}
    assert found.pop("Hoist") == ["My words", "Chain hoist", "Sack trap"]
    assert found == {"Board": ["Order cogs", "Mill.md"], "Wheel": ["Crown wheel"]}


def test_a_template_has_its_files_name_and_no_day(notes):
    found = only(notes({"Templates/Daily.md": "---\ncreated: <% tp.date.now() %>\n---\n# {{date}}\n"}))
    assert (found.title, found.at) == ("Daily", None)


def test_what_was_thrown_away_is_listed_and_settings_are_counted(notes):
    reading = notes({"a.md": "words", ".trash/b.md": "words", ".obsidian/app.json": "{}", "scan.pdf": "%PDF"})
    assert [each.where for each in reading.skipped] == [".trash/b.md", "scan.pdf"]


def test_notes_within_a_hidden_folder_that_was_chosen_are_read(notes):
    found = only(notes({".vault/mine/a.md": "words", ".vault/mine/.obsidian/app.json": "{}"}))
    assert found.external_id == "mine/a.md"


def bring(user, *items):
    with acting_as(user):
        made = Import.objects.create(user=user, filename="x.zip", bytes=1)
        return keep_all(items, user=user, brought_by=made)[0]


def memory(text, account="", **fields):
    return ImportedDocument(
        product="claude",
        external_id="memory:conversations",
        title="Claude's memory",
        text=text,
        account=account,
        **fields,
    )


def contents():
    return list(MemoryDocument.objects.order_by("created_at").values_list("content", flat=True))


@pytest.mark.django_db
def test_properties_stand_below_the_notes_text_and_come_later_to_a_note_that_lacked_them():
    user = a_person()
    bring(user, memory("Mix."))
    bring(user, memory("Mix.", properties=(("aliases", "Groats"), ("phone", "+32"))))
    assert contents() == ["Mix.\n\n- aliases: Groats\n- phone: +32"]


@pytest.mark.django_db
def test_the_memories_of_two_accounts_stand_beside_each_other():
    user = a_person()
    for text in ("Ada counts otters.", "Ada counts otters and eels."):
        bring(user, memory(text, account="one"))
    bring(user, memory("Bob mills rye.", account="two"))
    assert contents() == ["Ada counts otters and eels.", "Bob mills rye."]


@pytest.mark.django_db
def test_a_memory_that_came_in_without_its_account_is_that_of_the_one_it_is_like():
    user = a_person()
    sentence = "Ada counts the otters of the Nete each evening at dusk."
    bring(user, memory(f"**Work**\n\n{sentence}"))
    bring(user, memory("**Work**\n\nBob mills rye.", account="two"))
    bring(user, memory(f"**Work**\n\n{sentence}\n\nAnd eels.", account="one"))
    assert contents() == [f"**Work**\n\n{sentence}\n\nAnd eels.", "**Work**\n\nBob mills rye."]
