"""The way of files through the whole product, in a browser: attached, asked about, opened, found, and gone."""

import re

import pytest
from playwright.sync_api import expect

from chat.tests.test_browser_files import a_photo, chips, drop, paste, send
from intake.attachments.services import bytes_of
from intake.models import Attachment, AttachmentPiece, AttachmentText
from memory import index
from memory.index.segments import flush
from memory.models import Embedding, IndexedText
from memory.tasks import sweep_deleted
from memory.tests.attached import read_all
from testing import files
from testing.examiner import as_a_worker
from testing.model_server import CallTool, Say
from testing.traces import rows_naming, traces_of

pytestmark = [
    pytest.mark.extended,
    pytest.mark.django_db(transaction=True),
]

# Words that no stemmer shortens, one of the file, one of the message.
IN_THE_FILE, IN_THE_CHAT = "kwyjibo", "zzyzx"
PAGES = [f"This is page {number}. The rent is paid every month." for number in range(1, 31)]
PAGES[20] = f"The deposit of the {IN_THE_FILE} is paid back within six weeks."
PHONE = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}


def work():
    """What the workers do."""
    read_all()
    with as_a_worker():
        index.embed_pending()
        flush()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_files_are_attached_asked_about_opened_found_and_deleted(open_page, person, language_model, options):
    page = open_page(user=person, **options)
    drop(
        page,
        ("lease.pdf", "application/pdf", files.pdf(PAGES)),
        ("prices.csv", "text/csv", b"name,price\\nOak,40\\n"),
        ("notes.txt", "text/plain", b"Ask about the deposit"),
    )
    paste(page, ("image.png", "image/png", a_photo()))
    expect(chips(page)).to_have_count(4)
    # One that is removed on its way may have been stored already, until the server's sweep.
    expect(chips(page).locator("progress:visible")).to_have_count(0)
    with page.expect_response(lambda response: response.request.method == "DELETE"):
        page.get_by_role("button", name="Remove prices.csv").click()
    expect(chips(page)).to_have_count(3)
    lease = Attachment.objects.get(name="lease.pdf")
    read_all()

    address = f"/api/v1/attachments/{lease.pk}/content#page=21"
    model = language_model(
        CallTool("read_attachment", {"attachmentId": str(lease.pk), "place": "page 21"}),
        Say((f"Within six weeks: [page 21]({address}).",)),
    )
    page.get_by_label("Message", exact=True).fill(f"What does page 21 say, {IN_THE_CHAT}?")
    send(page)
    page.wait_for_url("**/c/*/")
    link = page.locator(".turn .prose a", has_text="page 21")
    expect(link).to_have_attribute("href", address)
    assert IN_THE_FILE in str(model.requests[1]["messages"][-1])
    opened = page.request.get(link.get_attribute("href").partition("#")[0])
    assert (opened.status, opened.headers["content-type"]) == (200, "application/pdf")
    assert "sandbox" in opened.headers["content-security-policy"]
    assert opened.body() == bytes_of(lease)
    assert sorted(Attachment.objects.values_list("name", flat=True)) == ["Pasted picture.png", "lease.pdf", "notes.txt"]
    chat = page.url

    work()
    page.goto(f"/search/?q={IN_THE_FILE}")
    expect(page.locator("main")).to_contain_text("lease.pdf")
    expect(page.locator(".result-file a").first).to_have_attribute("href", address)
    assert traces_of(IN_THE_FILE) != []

    page.goto(f"{chat}delete/")
    page.get_by_role("button", name=re.compile("Delete")).click()
    page.wait_for_url(lambda url: url != f"{chat}delete/")
    with as_a_worker():
        sweep_deleted()
    for model_ in (Attachment, AttachmentPiece, AttachmentText, IndexedText, Embedding):
        assert not model_.objects.exists(), model_.__name__
    assert traces_of(IN_THE_FILE) == traces_of(IN_THE_CHAT) == []
    assert rows_naming("source_id", lease.pk) == []
