"""Files over REST: uploaded, read back in a sandbox, named by a message, and refused to everybody else."""

import io
import struct

import pytest
from django.apps import apps
from PIL import Image

from intake.models import Attachment, AttachmentPiece, Turn, User
from intake.tests.attached import PDF, a_file, a_picture
from intake.tests.factories import a_person
from memory.tests.attached import read_all

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/api/v1/attachments/"


def upload(client, data=b"Milk, eggs", name="list.txt", media_type="text/plain", headers=None, **form):
    sent = headers or client._csrf()
    return client.post(PATH, files={"file": (name, data, media_type)}, data=form, headers=sent)


def bearer(user, *scopes):
    _, secret = apps.get_model("agent_tools.AccessToken").objects.issue(user=user, scopes=list(scopes))
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def alices(person, log_in):
    return log_in(person)


def test_an_uploaded_file_is_named_by_a_message_and_comes_back_with_it(alices):
    made = upload(alices)
    assert made.status_code == 201, made.text
    body = made.json()
    assert (body["name"], body["type"], body["size"], body["state"]) == ("list.txt", "text/plain", 10, "waiting")
    assert len(body["sha256"]) == 64
    begun = alices.events(None, attachments=[body["id"]])[0].data
    read = alices.get(f"/api/v1/conversations/{begun['conversationId']}/").json()
    assert (read["title"], read["turns"][0]["userMessage"]) == ("list.txt", "")
    assert [each["id"] for each in read["turns"][0]["attachments"]] == [body["id"]]
    known = alices.get(f"{PATH}{body['id']}/").json()
    assert (known["conversationId"], known["turnNumber"]) == (begun["conversationId"], 1)
    again = alices.chat("Once more", attachments=[body["id"]])
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


def test_a_file_of_many_megabytes_arrives_whole_and_a_larger_one_is_refused_in_words(alices, settings):
    settings.ATTACHMENT_BYTES = 6_000_000
    data = bytes(range(256)) * 20_000
    made = upload(alices, data, "large.bin", "application/octet-stream")
    assert made.status_code == 201, made.text
    assert alices.get(f"{PATH}{made.json()['id']}/content").content == data
    for size in (6_000_001, 6_500_000):
        refused = upload(alices, b"x" * size, "larger.bin")
        assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
        assert "at most 5.7" in refused.json()["detail"]
    assert Attachment.objects.count() == 1


def test_other_bodies_keep_their_own_limit(alices, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100_000
    assert alices.post("/api/v1/intake/chat", content=b"x" * 200_000, headers=alices._csrf()).status_code == 413
    assert upload(alices, b"x" * 200_000).status_code == 201


@pytest.mark.parametrize(
    ("data", "name", "media_type", "shown_as"),
    [
        (a_picture(), "a.png", "text/html", "image/png"),
        (PDF, "a.html", "text/html", "application/pdf"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "a.svg", "image/svg+xml", None),
        (b"<script>alert(1)</script>", "a.html", "text/html", None),
        (b"plain", "a.txt", "text/plain", None),
    ],
)
def test_only_pictures_and_pdfs_are_shown_and_nothing_has_an_origin(alices, data, name, media_type, shown_as):
    made = upload(alices, data, name, media_type).json()
    answer = alices.get(f"{PATH}{made['id']}/content")
    assert answer.content == data
    assert answer.headers["content-type"] == (shown_as or "application/octet-stream")
    kind = "inline" if shown_as else "attachment"
    assert answer.headers["content-disposition"] == f'{kind}; filename="{name}"'
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "allow-" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "private, no-store"


def test_a_name_with_quotes_and_line_ends_stays_one_header(alices):
    made = upload(alices, b"x", 'a"\r\nSet-Cookie: b=c.txt').json()
    answer = alices.get(f"{PATH}{made['id']}/content")
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-disposition"].startswith("attachment; filename")


def test_a_thumbnail_is_small_upright_and_without_the_cameras_words(alices):
    large = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "at home, Elm Street 1"
    Image.new("RGB", (2000, 1000), (10, 200, 30)).save(large, "JPEG", exif=exif)
    made = upload(alices, large.getvalue(), "photo.jpg", "image/jpeg").json()
    assert (made["state"], alices.get(f"{PATH}{made['id']}/thumbnail").status_code) == ("waiting", 404)
    read_all()
    answer = alices.get(f"{PATH}{made['id']}/thumbnail")
    with Image.open(io.BytesIO(answer.content)) as small:
        assert (small.size, dict(small.getexif())) == ((240, 480), {})
    assert answer.headers["cache-control"] == "private, no-store"
    assert alices.get(f"{PATH}{upload(alices).json()['id']}/thumbnail").status_code == 404
    broken = upload(alices, a_picture()[:40], "broken.png").json()
    read_all()
    refused = alices.get(f"{PATH}{broken['id']}/thumbnail")
    assert (refused.status_code, refused.json()["detail"][:28]) == (400, "This picture cannot be read:")


def test_a_stranger_gets_the_same_answer_for_a_file_as_for_none(alices, stranger, log_in, person):
    stored = a_file(person)
    strangers = log_in(stranger)
    none = "0190c0de-0000-7000-8000-000000000001"
    for path in ("/", "/content", "/thumbnail"):
        theirs, missing = strangers.get(f"{PATH}{stored.pk}{path}"), strangers.get(f"{PATH}{none}{path}")
        assert (theirs.status_code, theirs.content) == (404, missing.content)
    assert strangers.delete(f"{PATH}{stored.pk}/", headers=strangers._csrf()).status_code == 404
    refused = strangers.chat("Look", attachments=[str(stored.pk)])
    assert (refused.status_code, refused.content) == (
        404,
        strangers.chat("Look", attachments=[none]).content,
    )
    assert not Turn.objects.exists()


def test_a_visitor_attaches_before_the_first_word_and_keeps_it_for_the_message(visitor, settings):
    made = upload(visitor)
    assert made.status_code == 201, made.text
    assert made.headers["x-recollect-for"].startswith("v")
    assert User.objects.get().is_visitor
    begun = visitor.events("What is on the list?", attachments=[made.json()["id"]])[0].data
    assert Attachment.objects.get().turn_number == begun["turnNumber"]
    settings.VISITORS = False
    assert visitor.post(PATH, files={"file": ("a.txt", b"x")}).status_code in (401, 403)


def test_nobody_without_a_page_of_ours_makes_no_visitor(new_client, settings):
    assert new_client().post(PATH, files={"file": ("a.txt", b"x")}).status_code == 401
    settings.VISITORS = False
    client = new_client()
    client.get("/login/")
    assert upload(client).status_code == 401
    assert not User.objects.exists()


def test_scopes_of_a_token_are_those_of_the_message_a_file_is_for(person, new_client):
    client = new_client()
    assert upload(client, headers=bearer(person, "write")).status_code == 403
    chat = bearer(person, "chat")
    made = upload(client, headers=chat).json()
    assert client.get(f"{PATH}{made['id']}/content", headers=bearer(person, "read")).status_code == 200
    assert client.get(f"{PATH}{made['id']}/content", headers=bearer(person, "write")).status_code == 403
    body = {"message": "Read it", "attachments": [made["id"]]}
    with client.stream("POST", "/api/v1/intake/chat", json=body, headers=chat) as answer:
        answer.read()
    refused = client.delete(f"{PATH}{made['id']}/", headers=chat)
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
    assert client.delete(f"{PATH}{made['id']}/", headers=bearer(person, "delete")).status_code == 204
    assert not AttachmentPiece.objects.exists()


def test_the_same_file_sent_again_with_its_key_is_stored_once(alices):
    headers = {**alices._csrf(), "Idempotency-Key": "one"}
    first, second = upload(alices, headers=headers), upload(alices, headers=headers)
    assert first.json()["id"] == second.json()["id"]
    other = upload(alices, b"other", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    alices.delete(f"{PATH}{first.json()['id']}/", headers=alices._csrf())
    assert upload(alices, headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("files", "form"),
    [
        ({}, {"kind": "file"}),
        ({"file": ("a", b"1"), "other": ("b", b"2")}, {}),
        ({"file": ("a", b"1")}, {"kind": "imported"}),
    ],
)
def test_a_form_that_is_not_one_file_is_refused_by_its_field(alices, files, form):
    refused = alices.post(PATH, files=files or None, data=form, headers=alices._csrf())
    assert refused.status_code in (400, 415)
    assert not Attachment.objects.exists()


def test_more_than_ten_files_of_a_message_or_files_of_a_version_are_refused(alices, person):
    ids = [str(a_file(person, b"%d" % number).pk) for number in range(11)]
    assert alices.chat("Too many", attachments=ids).status_code == 400
    begun = alices.events("Ten", attachments=ids[:10])[0].data
    assert Turn.objects.get().attachment_count == 10
    refused = alices.chat("Edit", conversation_id=begun["conversationId"], edit=1, attachments=ids[10:])
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_error")


def test_a_whole_account_is_deleted_with_its_files_through_the_api(alices, person):
    a_file(person)
    other = a_person("other@example.com")
    kept = a_file(other)
    answer = alices.request("DELETE", "/api/v1/account/", json={"password": "password"}, headers=alices._csrf())
    assert answer.status_code == 200
    assert answer.json()["deleted"]["attachments"] == 1
    assert list(Attachment.objects.all()) == [kept]


def test_a_picture_of_more_pixels_than_a_process_can_hold_is_not_decoded(alices):
    bomb = upload(
        alices, a_picture(1, 1).replace(struct.pack(">II", 1, 1), struct.pack(">II", 60_000, 60_000)), "a.png"
    )
    read_all()
    refused = alices.get(f"{PATH}{bomb.json()['id']}/thumbnail")
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_error")


@pytest.mark.parametrize(("mode", "kind"), [("RGBA", "PNG"), ("P", "GIF"), ("L", "PNG"), ("RGB", "WEBP"), ("1", "PNG")])
def test_pictures_of_every_mode_have_a_thumbnail(alices, mode, kind):
    written = io.BytesIO()
    Image.new(mode, (900, 300)).save(written, kind)
    made = upload(alices, written.getvalue(), f"a.{kind.lower()}").json()
    read_all()
    answer = alices.get(f"{PATH}{made['id']}/thumbnail")
    with Image.open(io.BytesIO(answer.content)) as small:
        assert small.size == (480, 160)
