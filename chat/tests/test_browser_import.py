"""Bringing a history along in a real browser: from the file that is dropped to the undoing."""

import base64
import json
import re
import zipfile

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from playwright.sync_api import expect

from core.isolation.acting import acting_as
from imports import services
from imports.models import Import
from imports.tests.exports import chatgpt
from imports.tests.factories import an_import
from imports.tests.over_rest import a_worker
from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from testing.accessibility import bring_axe, look_at

pytestmark = [pytest.mark.extended, pytest.mark.medium]

DROP = """
([name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name));
  for (const type of ["dragenter", "dragover", "drop"])
    document.querySelector("h1").dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: transfer }));
}
"""


@pytest.fixture(autouse=True)
def imports_dir(settings, tmp_path):
    settings.IMPORTS_DIR = tmp_path / "imports"


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "chatgpt-export.zip"
    conversations = chatgpt(conversations=60, turns=2)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([*conversations, {"id": "broken"}]))
    return path


def drop(page, path):
    page.evaluate(DROP, [path.name, base64.b64encode(path.read_bytes()).decode()])


def assert_accessible(page):
    """For a step that the walk on a phone and in both lights does not look at."""
    found = Axe().run(page, options={"resultTypes": ["violations"]})
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found.response["violations"]] == []


def heading(page):
    return page.get_by_role("heading", level=1)


def choose_ten(page):
    """The first ten of those whose title begins with Sourdough 1, after a look at what there is."""
    view = page.locator("[data-view=preview]")
    items, start = view.locator(".item"), view.locator("[data-action=start]")
    expect(items).to_have_count(50)
    expect(items.first).to_contain_text("Sourdough 59")
    view.get_by_role("button", name="Show more").click()
    expect(items).to_have_count(60)
    expect(start).to_have_text("Import 60 items")
    view.get_by_role("button", name="Select none").click()
    expect(start).to_be_disabled()
    view.get_by_label("Search titles").fill("Sourdough 1")
    expect(items).to_have_count(11)
    view.get_by_role("button", name="Select all").click()
    expect(start).to_have_text("Import 11 items")
    items.last.get_by_role("checkbox").uncheck()
    expect(start).to_have_text("Import 10 items")


def test_a_zip_is_dropped_looked_at_chosen_from_brought_in_found_and_undone(open_page, person, export):
    page = open_page("/import/", user=person)
    expect(heading(page)).to_have_text("Import your history")
    drop(page, export)
    expect(heading(page)).to_have_text("Reading your export")
    expect(page).to_have_url(re.compile(r"/import/[0-9a-f-]{36}/$"))
    # No worker runs at the moment. The page can be left and opened again.
    address = page.url
    with a_worker():
        expect(heading(page)).to_have_text("What your export holds")
    assert Turn.objects.count() == 0, "nothing is stored before it is started"
    view = page.locator("[data-view=preview]")
    expect(view.locator(".facts")).to_contain_text("conversations60")
    expect(view.locator(".facts")).to_contain_text("turns120")
    expect(view.locator("[data-part=news]")).to_have_text("")
    expect(view.locator("[data-part=skipped] summary")).to_have_text("1 item cannot be imported")
    choose_ten(page)

    page.locator("[data-action=start]").click()
    expect(heading(page)).to_have_text("Waiting for its turn")
    assert_accessible(page)
    page.goto("/")
    page.goto(address)
    expect(heading(page)).to_have_text("Waiting for its turn")
    with a_worker():
        expect(heading(page)).to_have_text("Your history is here")
    report = page.locator("[data-view=report]")
    expect(report.locator(".facts")).to_contain_text("conversations10")
    expect(report.locator(".item")).to_have_count(10)
    assert Conversation.objects.for_user(person).count() == 10

    said = Turn.objects.for_user(person).order_by("said_at").first()
    assert said.said_at.year == 2023
    page.goto(f"/search/?q={said.user_message.split('.')[0]}")
    page.locator(".result a").first.click()
    expect(page).to_have_url(re.compile(r"/c/[0-9a-f-]{36}/\?turn=\d+#turn-\d+$"))
    page.goto(address)
    report.get_by_role("button", name="Undo this import").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It takes back 10 conversations")
    dialog.get_by_role("button", name="Undo", exact=True).click()
    with a_worker():
        expect(heading(page)).to_have_text("Undone")
    assert Conversation.objects.count() == Turn.objects.count() == 0


def test_only_the_last_few_passages_are_searched_by_meaning_in_a_moment(open_page, person):
    line = "Search by words is ready. Search by meaning "
    a_turn(person, "My cat is called Tom")
    page = open_page(f"/import/{an_import(person)}/", user=person)
    expect(page.get_by_text(line)).to_have_text(f"{line}follows in a moment (1 passage left).")
    for _ in range(19):
        a_turn(person, "My cat is called Tom")
    page.reload()
    expect(page.get_by_text(line)).to_have_text(f"{line}follows (20 passages left).")


def test_an_undo_asks_again_when_something_was_continued(open_page, person, export):
    page = open_page("/import/", user=person)
    with a_worker():
        page.locator("[data-file]").set_input_files(export)
        page.get_by_role("button", name="Import 60 items").click()
        expect(heading(page)).to_have_text("Your history is here")
        with acting_as(person):
            conversation = Conversation.objects.for_user(person).order_by("pk")[0]
        a_turn(person, "And one more thing", conversation=conversation)
        page.get_by_role("button", name="Undo this import").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Undo", exact=True).click()
        expect(dialog).to_contain_text("You went on with 1 conversation")
        dialog.get_by_role("button", name="Cancel").click()
        expect(heading(page)).to_have_text("Your history is here")
        page.get_by_role("button", name="Undo this import").click()
        dialog.get_by_role("button", name="Undo", exact=True).click()
        expect(dialog).to_contain_text("You went on with 1 conversation")
        dialog.get_by_role("button", name="Undo the rest").click()
        expect(heading(page)).to_have_text("Undone")
    assert "And one more thing" in Turn.objects.for_user(person).values_list("user_message", flat=True)


def test_an_upload_goes_on_after_the_connection_broke_off_and_after_a_reload(open_page, person, export, monkeypatch):
    size = export.stat().st_size
    monkeypatch.setattr("imports.shapes.CHUNK", size // 4)
    page = open_page("/import/", user=person)
    asked = []

    def sometimes(route):
        asked.append(route.request.headers["content-range"])
        route.abort() if len(asked) in (2, 4, 5, 6) else route.continue_()

    page.route("**/content/", sometimes)
    page.locator("[data-file]").set_input_files(export)
    expect(page.get_by_role("alert")).to_contain_text("It is tried again in a moment")
    for _ in range(200):
        if len(asked) >= 5:
            break
        page.wait_for_timeout(50)
    first, page = page, page.context.new_page()
    page.goto(first.url)
    first.close()
    expect(heading(page)).to_have_text("Resume the upload")
    expect(page.locator("[data-dropzone]")).to_contain_text("Choose chatgpt-export.zip again")
    assert 0 < Import.objects.get().bytes_received < size
    other = export.with_name("other.zip")
    other.write_bytes(b"x")
    page.locator("[data-file]").set_input_files(other)
    expect(page.get_by_role("alert")).to_contain_text("This is another file")
    with a_worker():
        page.locator("[data-file]").set_input_files(export)
        expect(heading(page)).to_have_text("What your export holds")
    assert Import.objects.count() == 1


def test_what_cannot_be_read_gets_its_sentence_and_the_list_names_every_import(open_page, person, tmp_path):
    broken = tmp_path / "holiday-pictures.zip"
    broken.write_bytes(b"PK\x03\x04 and no more")
    page = open_page("/import/", user=person)
    with a_worker():
        page.locator("[data-file]").set_input_files(broken)
        expect(heading(page)).to_have_text("This did not work")
    expect(page.locator("[data-part=outcome]").last).to_contain_text("damaged or incomplete")
    page.goto("/import/")
    expect(page.get_by_role("link", name="holiday-pictures.zip")).to_be_visible()
    expect(page.locator(".earlier")).to_contain_text("Failed")
    assert_accessible(page)


def test_an_import_is_cancelled_and_a_limit_is_said(open_page, person, export, monkeypatch):
    monkeypatch.setattr("imports.services.MOST_OPEN", 1)
    page = open_page("/import/", user=person)
    with a_worker():
        page.locator("[data-file]").set_input_files(export)
        expect(heading(page)).to_have_text("What your export holds")
        other = page.context.new_page()
        other.goto("/import/")
        other.locator("[data-file]").set_input_files(export)
        expect(other.get_by_role("alert")).not_to_be_empty()
        page.get_by_role("button", name="Cancel").last.click()
        expect(page).to_have_url(re.compile(r"/import/$"))
    expect(page.locator(".earlier")).to_contain_text("Cancelled")
    assert services.list_imports(user=person, after=None).rows[0].state == "cancelled"


def chooser_by_keyboard(page):
    """Chromium drops a key that comes before its first frame."""
    page.wait_for_load_state("networkidle")
    for _ in range(5):
        page.locator("[data-file]").focus()
        try:
            with page.expect_file_chooser(timeout=3_000) as chosen:
                page.keyboard.press("Enter")
            return chosen.value
        except PlaywrightTimeout:
            continue
    raise AssertionError("the file's input opens no chooser")


def test_the_keyboard_alone_is_enough(open_page, person, export):
    page = open_page("/import/", user=person)
    chooser = chooser_by_keyboard(page)
    with a_worker():
        chooser.set_files(export)
        expect(heading(page)).to_be_focused()
        page.locator("[data-view=preview] .item input").first.focus()
        page.keyboard.press("Space")
        expect(page.locator("[data-action=start]")).to_have_text("Import 59 items")
        page.locator("[data-action=start]").focus()
        page.keyboard.press("Enter")
        expect(heading(page)).to_have_text("Your history is here")


def test_every_step_fits_a_phone_and_both_lights(open_page, person, export):
    long = export.with_name("a-very-long-name-" + "of-an-export-" * 12 + ".zip")
    export.rename(long)
    page = open_page(user=person)
    bring_axe(page)
    wrong = {}
    page.goto("/import/")
    page.locator(".how summary").first.click()
    wrong["empty"] = look_at(page)
    page.locator("[data-file]").set_input_files(long)
    expect(heading(page)).to_have_text("Reading your export")
    wrong["reading"] = look_at(page)
    with a_worker():
        expect(page.locator("[data-view=preview] .item").first).to_be_visible()
        wrong["preview"] = look_at(page)
        page.locator("[data-action=start]").click()
        expect(page.locator("[data-view=report] .item").first).to_be_visible()
    wrong["report"] = look_at(page)
    page.get_by_role("button", name="Undo this import").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    wrong["question"] = look_at(page)
    page.goto("/import/")
    expect(page.get_by_text(long.name).first).to_be_visible()
    wrong["earlier imports"] = look_at(page)
    assert {step: found for step, found in wrong.items() if found} == {}


def test_the_list_of_chats_shows_what_came_in_without_a_reload(open_page, person, export):
    page = open_page("/import/", user=person)
    drop(page, export)
    with a_worker():
        expect(heading(page)).to_have_text("What your export holds")
        page.evaluate("window.isStillHere = true")
        page.locator("[data-action=start]").click()
        expect(heading(page)).to_have_text("Your history is here")
        expect(page.locator("[data-sidebar] [data-conversation-id]").first).to_be_attached(timeout=15_000)
        expect(page.locator("[data-sidebar]").get_by_text("Sourdough 59")).to_be_attached(timeout=15_000)
    assert page.evaluate("window.isStillHere")
    expect(page.locator("[data-part=account]")).to_be_hidden()
