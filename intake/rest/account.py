"""`/api/v1/account/`: taking one's data along, and leaving for good."""

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core import rate_limits
from core.errors import InvalidInput
from core.isolation.acting import acting_as
from core.validation import validate
from intake import deleting, exporting
from intake.identity import person_of
from intake.models import User
from intake.schemas import PasswordConfirmation, problems

FILE_NAME = "recollect-{day:%Y-%m-%d}.json"


class AccountExportView(APIView):
    throttle_scope = "export"

    @extend_schema(
        operation_id="export_account",
        responses={(200, "application/json"): OpenApiTypes.OBJECT, **problems(401, 429, 503)},
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Everything of the person as one JSON document, sent while it is read."""
        now = timezone.now()
        user = person_of(request)
        pieces = exporting.account_as_json(user=user, now=now)
        # Each piece takes one for itself: a slow reader must not keep a connection from others.
        connections.close_all()
        return StreamingHttpResponse(
            _in_steps(user, pieces),
            content_type="application/json",
            headers={
                "Content-Disposition": f'attachment; filename="{FILE_NAME.format(day=now)}"',
                "Cache-Control": "private, no-store",
                "X-Accel-Buffering": "no",
            },
        )


class AccountView(APIView):
    @extend_schema(
        operation_id="delete_account",
        request=PasswordConfirmation,
        responses={204: None, **problems(400, 401, 413, 415, 429, 503)},
    )
    def delete(self, request: Request) -> Response:
        """Remove the account and everything said or stored in it, for good."""
        user = person_of(request)
        confirmation = validate(PasswordConfirmation, request.data)
        rate_limits.take_for_password(user.get_username(), address=rate_limits.client_address(request))
        if not user.check_password(confirmation.password):
            raise InvalidInput("The password is not right.", errors={"password": ["This is not your password."]})
        deleting.delete_account(user=user)
        return Response(status=204)


async def _in_steps(user: User, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is made in a thread, when the reader has taken the one before."""
    while piece := await sync_to_async(_step, thread_sensitive=False)(user, pieces):
        yield piece


def _step(user: User, pieces: Iterator[bytes]) -> bytes:
    """The connection goes back at once: a slow reader must not keep one from others."""
    try:
        with acting_as(user):
            return next(pieces, b"")
    finally:
        connections.close_all()
