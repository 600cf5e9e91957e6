"""The files that were attached to messages."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from chat.pages.common import done, page_for_registered, show
from core.errors import NotFound
from core.paging import page_of, position_in_address
from core.text import pg_text
from intake.accounts.identity import caller_of, person_of
from intake.attachments import services
from intake.attachments.reading.parts import reading_of, sections_of
from intake.chats import deleting
from intake.models import Attachment, Conversation
from memory import quotas

LONGEST_NAME = 200


@page_for_registered
def files(request: HttpRequest) -> HttpResponse:
    """`?q=`: those whose name contains each of these words."""
    user, words = person_of(request), pg_text(request.GET.get("q", ""))[:LONGEST_NAME].strip()
    after = position_in_address(request.GET.get("after"))
    found = page_of(services.listed(user=user, words=words), by="created_at", after=after, size=50)
    places = {file.conversation_id for file in found.rows if file.conversation_id is not None}
    titles = dict(Conversation.objects.for_user(user).filter(pk__in=places).values_list("pk", "title"))
    rows = [(file, titles[file.conversation_id]) for file in found.rows if file.conversation_id in titles]
    shown: dict[str, Any] = {"more": found.more, "words": words, "size": quotas.files(user.pk).file_bytes}
    return show(request, "memory/files.html", rows=rows, **shown, tab="files")


@page_for_registered
def show_page(request: HttpRequest, file_id: str) -> HttpResponse:
    """A page of the web as it was read, in the passages to which citations lead."""
    file = services.get(caller=caller_of(request), attachment_id=file_id)
    if file.kind != Attachment.Kind.PAGE or file.conversation_id is None:
        raise NotFound
    # Cut as its worker and its reader cut it: the numbers of its passages are the same.
    parts = reading_of(sections_of(services.bytes_of(file).decode(errors="replace"))).parts
    return show(request, "memory/page.html", file=file, parts=parts, tab="files")


@page_for_registered
def delete_file(request: HttpRequest, file_id: str) -> HttpResponse:
    file = services.get(caller=caller_of(request), attachment_id=file_id)
    if not services.listed(user=person_of(request)).filter(pk=file.pk).exists():
        raise NotFound
    if request.method != "POST":
        return show(request, "memory/delete_file.html", file=file, tab="files")
    deleting.delete_attachment(caller=caller_of(request), attachment_id=file_id)
    said = _("Page removed.") if file.kind == Attachment.Kind.PAGE else _("File deleted.")
    return done(request, said, "memory:files")
