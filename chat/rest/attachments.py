"""`/api/v1/attachments/`: files for messages, which a page or a program uploads before it sends the message.

Also for visitors, and for nobody: their first file makes the visitor, as their first message does. What comes back is
for its owner alone. A browser gets the bytes in a sandbox without an origin, and shows only pictures and PDFs.
"""

from collections.abc import Collection
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import login
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import SAFE_METHODS, AllowAny, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from chat.rest.chat import admit
from chat.rest.downloads import download_of
from chat.rest.shapes import AttachmentOutput
from core.errors import InvalidInput
from core.isolation.acting import Caller, acting_as
from core.rate_limits import client_address, note_file_of_visitor, take_bytes_of_visitor
from core.responses import A_KEY, KEY_SCHEMA
from core.text import gettext_noop as _
from intake.accounts.identity import PAGE_PERSON_HEADER, owner_of, page_person_of
from intake.attachments import services
from intake.chats import deleting, idempotency
from intake.models import Attachment, User
from intake.operations import Operations
from memory import quotas

# A file is a part of a message, so it takes the right to send one.
SCOPE, LACKING = "chat", "A file is for a message: its token needs the scope `chat`."
SANDBOX = {
    # Its own document, of no origin: no script in it runs, and no cookie or page of ours is within its reach.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-store",
}
CONTENT = {(200, media_type): OpenApiTypes.BINARY for media_type in sorted({*services.SHOWN, services.UNKNOWN})}
KEY = OpenApiParameter(
    idempotency.HEADER,
    KEY_SCHEMA,
    OpenApiParameter.HEADER,
    description=f"{A_KEY}: the same file sent again with it within 24 hours is stored once.",
)
FORM = {
    "multipart/form-data": {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "kind": {"enum": [Attachment.Kind.FILE.value, Attachment.Kind.PASTED.value]},
        },
        "required": ["file"],
    }
}


class _OfVisitorsToo(APIView):
    # Replaces the first default, which requires an account. Visitors own their files. A caller without a session finds
    # no file, like a visitor who asks for another user's. The scopes of tokens are checked as everywhere.
    permission_classes = [
        AllowAny,
        *cast("list[type[BasePermission]]", api_settings.DEFAULT_PERMISSION_CLASSES)[1:],
    ]
    parser_classes = [MultiPartParser]

    @property
    def throttle_scope(self) -> str:
        return "attachment" if self.request.method == "POST" else "api"

    @property
    def required_scope(self) -> str:
        """A token that reads chats reads their files, and one that deletes chats deletes them."""
        if self.request.method == "DELETE":
            return "delete"
        is_reader = self.request.method in SAFE_METHODS and SCOPE not in _scopes(self.request)
        return "read" if is_reader else SCOPE


# Each acts as its caller itself. A file that no message names yet is of no project.
api = Operations(_OfVisitorsToo)
ONE = "attachments/<str:attachment_id>/"


@api(
    "post",
    "attachments/",
    AttachmentOutput,
    status=201,
    fails=[400, 409, 413, 415, 422],
    is_bound=False,
    request=FORM,
    parameters=[KEY],
)
def upload_attachment(request: Request, caller: Caller) -> Response:
    """Upload a file for a message, which then names it in `attachments`. One that no message names within a day is
    removed."""
    file, kind = _file_of(request)
    address, headers = client_address(request), {}
    if not caller.is_registered:
        take_bytes_of_visitor(file.size or 0, address=address)
    if caller.user_id is not None:
        with acting_as(caller):
            stored = _stored(request, caller, file, kind)
    else:
        admit(request._request, scopes={SCOPE}, lacking=LACKING)
        stored = _stored_as_visitor(request, file, kind)
        # The first file of nobody makes its page that of a visitor.
        headers = {PAGE_PERSON_HEADER: page_person_of(request._request)}
    if not caller.is_registered:
        note_file_of_visitor(stored.pk, address=address)
    return Response(AttachmentOutput.of(stored).as_data(), status=HTTPStatus.CREATED, headers=headers)


@api("get", ONE, AttachmentOutput)
def get_attachment(caller: Caller, attachment_id: str) -> AttachmentOutput:
    """What is known of a file, and whether its text has been read."""
    return AttachmentOutput.of(_found(caller, attachment_id))


@api("delete", ONE, status=204, is_bound=False)
def delete_attachment(caller: Caller, attachment_id: str) -> None:
    """Remove a file with its bytes and its text, for good. The message that it belongs to stays."""
    with acting_as(caller):
        deleting.delete_attachment(caller=caller, attachment_id=attachment_id)


@api("get", f"{ONE}thumbnail", fails=[400], also={(200, "image/jpeg"): OpenApiTypes.BINARY})
def read_attachment_thumbnail(caller: Caller, attachment_id: str) -> HttpResponse:
    """A small picture of a picture; 404 until it has been read and for any other file, 400 if it cannot be read."""
    attachment = _found(caller, attachment_id)
    with acting_as(caller):
        small, content_type = services.scaled(attachment)
    return HttpResponse(small, content_type=content_type, headers=SANDBOX)


@api("get", f"{ONE}content", also=CONTENT)
def read_attachment_content(request: Request, caller: Caller, attachment_id: str) -> StreamingHttpResponse:
    """The bytes. Pictures (PNG, JPEG, GIF, WebP) and PDFs have their type; everything else is only downloaded."""
    attachment = _found(caller, attachment_id)
    is_shown = attachment.media_type in services.SHOWN
    headers = {
        **SANDBOX,
        "Content-Disposition": content_disposition_header(not is_shown, attachment.name) or "inline",
        "Content-Length": str(attachment.size),
    }
    content_type = attachment.media_type if is_shown else services.UNKNOWN
    return download_of(attachment, request=request, user=owner_of(request), content_type=content_type, headers=headers)


def _scopes(request: Request) -> Collection[str]:
    """Those of the token; a session has all."""
    return getattr(request.auth, "scopes", (SCOPE, "read", "delete"))


def _found(caller: Caller, attachment_id: str) -> Attachment:
    with acting_as(caller):
        return services.get(caller=caller, attachment_id=attachment_id)


def _file_of(request: Request) -> "tuple[UploadedFile[bytes], Attachment.Kind]":
    """The one file of the form, and what it is. Raises `InvalidInput`, `TooLarge`."""
    unknown = sorted({*request.data} - {"file", "kind"})
    if unknown:
        raise InvalidInput(errors={name[:100]: ["Unknown field. Known: file, kind."] for name in unknown[:10]})
    files = request.FILES.getlist("file")
    if len(files) != 1:
        raise InvalidInput(errors={"file": [_("Send one file, as a part of the form named `file`.")]})
    kind = cast("dict[str, Any]", request.data).get("kind", Attachment.Kind.FILE)
    if kind not in (Attachment.Kind.FILE, Attachment.Kind.PASTED):
        raise InvalidInput(errors={"kind": ["One of: file, pasted."]})
    if files[0].size > settings.ATTACHMENT_BYTES:
        raise services.too_large()
    return files[0], Attachment.Kind(kind)


def _stored(request: Request, caller: Caller, file: "UploadedFile[bytes]", kind: Attachment.Kind) -> Attachment:
    now, key = timezone.now(), request.headers.get(idempotency.HEADER)

    def store() -> dict[str, Any]:
        stored = services.store(
            caller=caller,
            file=file,
            name=file.name or "",
            media_type=file.content_type or "",
            kind=kind,
            now=now,
            take_room=partial(quotas.take_file, caller),
        )
        return {"id": str(stored.pk)}

    if key is None:
        return services.get(caller=caller, attachment_id=store()["id"])
    about = {"name": file.name, "kind": kind.value, "sha256": services.measured(file)[1]}
    kept, _is_replay = idempotency.once(
        caller=caller,
        key=idempotency.clean_key(key),
        operation="attachments",
        data=about,
        run=store,
        now=now,
    )
    return services.get(caller=caller, attachment_id=kept["id"])


def _stored_as_visitor(request: Request, file: "UploadedFile[bytes]", kind: Attachment.Kind) -> Attachment:
    """The first file creates its visitor and logs them in; a refused file creates none."""
    with transaction.atomic():
        visitor = User.objects.create_visitor()
        caller = Caller(user_id=visitor.pk, is_visitor=True)
        with acting_as(caller):
            stored = _stored(request, caller, file, kind)
        login(request._request, visitor)
    # As long as a visitor's messages are kept.
    request._request.session.set_expiry(timedelta(days=settings.VISITOR_DAYS))
    return stored
