"""Files in a browser: chosen, dropped, pasted, shown while they are uploaded, sent, and read where they were said."""

import io
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from intake.attachments.services import bytes_of
from intake.chats.tree import conversation_path
from intake.models import Attachment, AttachmentPiece, Turn
from intake.tests.attached import PDF, a_file
from memory.tests.attached import read_all
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
# Gives files to a page as the operating system does.
TRANSFER = """([files]) => {
  const transfer = new DataTransfer();
  for (const [name, type, base64] of files) {
    const bytes = Uint8Array.from(atob(base64), (sign) => sign.charCodeAt(0));
    transfer.items.add(new File([bytes], name, { type }));
  }
  return transfer;
}"""
DROP = """([transfer, kind]) => {
  for (const name of kind) document.body.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""
PASTE = """([input, transfer]) =>
  input.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }))
"""


def a_photo(width=640, height=400, color=(40, 120, 160)):
    written = io.BytesIO()
    Image.new("RGB", (width, height), color).save(written, "PNG")
    return written.getvalue()


def transfer(page: Page, *files):
    import base64

    encoded = [[name, media_type, base64.b64encode(data).decode()] for name, media_type, data in files]
    return page.evaluate_handle(TRANSFER, [encoded])


def drop(page: Page, *files):
    page.evaluate(DROP, [transfer(page, *files), ["dragover", "drop"]])


def paste(page: Page, *files):
    field = page.get_by_label("Message", exact=True).element_handle()
    page.evaluate(PASTE, [field, transfer(page, *files)])


def chips(page: Page):
    return page.locator("[data-attached] li")


def send(page: Page):
    page.get_by_role("button", name="Send", exact=True).click()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_three_files_are_dropped_one_is_removed_and_two_are_sent(open_page, person, options):
    page = open_page(user=person, **options)
    csv = b'name,price\nOak, 40 mm;"1,200"\n'
    drop(
        page,
        ("lease.pdf", "application/pdf", PDF),
        ("prices.csv", "text/csv", csv),
        ("room.png", "image/png", a_photo()),
    )
    expect(chips(page)).to_have_count(3)
    expect(page.locator("[data-attached] progress:visible")).to_have_count(0)
    read_all()
    expect(page.locator("[data-attached] img:visible")).to_have_count(1)
    page.get_by_role("button", name="Remove prices.csv").click()
    expect(chips(page)).to_have_count(2)
    page.get_by_label("Message", exact=True).fill("What does page 212 say?")
    send(page)
    page.wait_for_url("**/c/*/")
    turn = page.locator(".turn").last
    expect(turn.locator(".file")).to_have_count(2)
    expect(turn.locator(".file").first).to_contain_text("lease.pdf")
    expect(turn.locator(".is-picture img")).to_have_js_property("naturalWidth", 480)
    page.reload()
    expect(page.locator(".file-link").first).to_have_attribute(
        "href", f"/api/v1/attachments/{Attachment.objects.get(name='lease.pdf').pk}/content"
    )
    expect(page.locator(".file").first).to_contain_text("The file is damaged")
    assert [(each.name, each.turn_number) for each in Attachment.objects.order_by("position")] == [
        ("lease.pdf", 1),
        ("room.png", 1),
    ]
    assert bytes_of(Attachment.objects.get(name="lease.pdf")) == PDF


def test_the_page_says_where_to_drop_while_files_are_over_it(open_page, person):
    page = open_page(user=person)
    over = transfer(page, ("a.txt", "text/plain", b"a"))
    expect(page.locator("[data-dropping]")).to_be_hidden()
    page.evaluate(DROP, [over, ["dragover"]])
    expect(page.locator("[data-dropping]")).to_be_visible()
    expect(page.locator("[data-dropping]")).to_be_hidden()


def test_a_pasted_picture_is_attached_and_sent_without_a_word(open_page, person):
    page = open_page(user=person)
    paste(page, ("image.png", "image/png", a_photo()))
    expect(chips(page)).to_contain_text("Pasted picture.png")
    send(page)
    page.wait_for_url("**/c/*/")
    expect(page.locator("[data-title]")).to_have_text("Pasted picture.png")
    expect(page.locator(".turn .said")).to_be_hidden()
    assert Turn.objects.get().user_message == ""


def test_files_are_chosen_by_a_button_and_sending_waits_for_them(open_page, person, tmp_path):
    page = open_page(user=person)
    held = []

    def hold(route):
        held.append(route)

    page.route("**/api/v1/attachments/", hold)
    path = Path(tmp_path, "notes.md")
    path.write_text("# Notes")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach files").click()
    chooser.value.set_files(path)
    page.get_by_label("Message", exact=True).fill("Read my notes")
    page.get_by_label("Message", exact=True).press("Enter")
    expect(page.locator("[data-composer]")).to_have_attribute("data-sending", "")
    assert page.locator(".turn").count() == 0
    while not held:
        page.wait_for_timeout(20)
    held.pop().continue_()
    page.wait_for_url("**/c/*/")
    assert Attachment.objects.get().turn_number == 1


def test_what_cannot_be_attached_says_why_on_its_chip_and_is_not_sent(open_page, person, settings):
    settings.ATTACHMENT_BYTES = 2_000
    settings.QUOTA_FILE_BYTES = 1_000
    page = open_page(user=person)
    drop(page, ("large.bin", "", b"x" * 3_000), ("full.bin", "", b"x" * 1_500))
    expect(chips(page).nth(0)).to_contain_text("The file is too large: at most 2 kB.")
    expect(chips(page).nth(1)).to_contain_text("of files here, and this would be more.")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_disabled()
    for name in ("large.bin", "full.bin"):
        page.get_by_role("button", name=f"Remove {name}").click()
    expect(page.locator("[data-attached]")).to_be_hidden()
    drop(page, *[(f"{number}.txt", "text/plain", b"%d" % number) for number in range(11)])
    expect(chips(page)).to_have_count(10)


def test_a_lost_line_offers_to_try_again(open_page, person):
    page = open_page(user=person)
    page.route("**/api/v1/attachments/", lambda route: route.abort(), times=1)
    drop(page, ("a.txt", "text/plain", b"a"))
    expect(chips(page)).to_contain_text("No connection to Recollect.")
    page.get_by_role("button", name="Try again").click()
    expect(chips(page)).not_to_contain_text("No connection to Recollect.")
    send(page)
    page.wait_for_url("**/c/*/")
    assert Attachment.objects.get().turn_number == 1


def test_a_file_that_a_server_in_front_refuses_is_said_to_be_too_large_for_it(open_page, person):
    page = open_page(user=person)
    page.route("**/api/v1/attachments/", lambda route: route.fulfill(status=413, body="<h1>413</h1>"), times=1)
    drop(page, ("a.txt", "text/plain", b"a"))
    expect(chips(page)).to_contain_text("The server in front of Recollect refuses files of this size.")
    expect(page.get_by_role("button", name="Try again")).to_be_hidden()


def test_a_removed_file_is_removed_from_the_server_too(open_page, person):
    page = open_page(user=person)
    drop(page, ("a.txt", "text/plain", b"a"))
    expect(chips(page).locator("progress")).to_be_hidden()
    with page.expect_response(lambda response: response.request.method == "DELETE"):
        page.get_by_role("button", name="Remove a.txt").click()
    assert not Attachment.objects.exists()
    assert not AttachmentPiece.objects.exists()


def test_a_visitor_attaches_first_and_speaks_then(open_page):
    page = open_page()
    drop(page, ("a.txt", "text/plain", b"a"))
    expect(chips(page).locator("progress")).to_be_hidden()
    page.get_by_label("Message", exact=True).fill("What is this?")
    send(page)
    page.wait_for_url("**/c/*/")
    assert Attachment.objects.get().conversation_id == Turn.objects.get().conversation_id


def test_files_go_with_what_waits_for_an_answer_and_with_another_version(open_page, person, language_model):
    language_model(Say(("One ", "two."), seconds_apart=1.0), Say(("Seen.",)), Say(("Again.",)))
    page = open_page(user=person)
    page.get_by_label("Message", exact=True).fill("First")
    send(page)
    expect(page.locator(".turn .prose")).to_contain_text("One")
    drop(page, ("later.txt", "text/plain", b"later"))
    expect(chips(page).locator("progress")).to_be_hidden()
    page.get_by_role("button", name="Send when the answer is done").click()
    expect(page.locator("[data-queue]")).to_contain_text("later.txt")
    expect(page.locator(".turn .prose").nth(1)).to_contain_text("Seen.")
    assert Attachment.objects.get().turn_number == 2
    page.locator(".turn").nth(1).get_by_role("button", name="Answer again").click()
    expect(page.locator(".turn .prose").nth(1)).to_contain_text("Again.")
    expect(page.locator(".turn").nth(1).locator(".file")).to_contain_text("later.txt")
    assert sorted(Attachment.objects.values_list("turn_number", flat=True)) == [2, 3]


def test_a_table_shows_its_first_rows_and_a_script_in_a_file_never_runs(open_page, person, log_in):
    rows = "name,price\n" + "".join(f'"Item, {number}",{number}\n' for number in range(50))
    html = "<script>document.title = 'ran'</script>"
    client = log_in(person)
    files = [a_file(person, rows.encode(), "prices.csv"), a_file(person, html.encode(), "page.html")]
    begun = client.events("Look", attachments=[str(each.pk) for each in files])[0].data
    page = open_page(conversation_path(begun["conversationId"]), user=person)
    page.get_by_text("Read it here").first.click()
    expect(page.locator(".file-text tr")).to_have_count(21)
    expect(page.locator(".file-text td").first).to_have_text("Item, 0")
    page.get_by_text("Read it here").last.click()
    expect(page.locator(".file-text pre")).to_have_text(html)
    assert page.title() != "ran"
