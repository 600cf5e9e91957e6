"""`/api/v1/account/`: export and deletion of the account."""

from collections.abc import Callable, Iterator

from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from core import rate_limits
from core.errors import InvalidInput
from core.validation import validate
from intake import deleting, export_files, exporting
from intake.accounts.proof import refuse_without_recent_proof
from intake.identity import person_of
from intake.rest.downloads import choice, download
from intake.schemas import DeletionStatement, PasswordConfirmation, problems

# By `as`: the function that makes the pieces, the file's extension and its type.
FORMS: dict[str, tuple[Callable[..., Iterator[bytes]], str, str]] = {
    "json": (exporting.account_as_json, ".json", "application/json"),
    "zip": (export_files.json_zip, "-json.zip", "application/zip"),
    "markdown": (export_files.markdown_zip, "-markdown.zip", "application/zip"),
}


class AccountExportView(APIView):
    throttle_scope = "export"

    @extend_schema(
        operation_id="export_account",
        parameters=[
            OpenApiParameter(
                "as", str, enum=list(FORMS), description="One JSON document, or a zip of it or of Markdown."
            )
        ],
        responses={
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "application/zip"): OpenApiTypes.BINARY,
            **problems(400, 401, 429, 503),
        },
    )
    def get(self, request: Request) -> StreamingHttpResponse:
        """Everything of the person, sent while it is read. Any of the files can be imported again."""
        refuse_without_recent_proof(request)
        now = timezone.now()
        user = person_of(request)
        pieces, ending, content_type = FORMS[choice(request.query_params.getlist("as"), tuple(FORMS))]
        name = f"recollect-{now:%Y-%m-%d}{ending}"
        return download(
            request=request, user=user, pieces=pieces(user=user, now=now), name=name, content_type=content_type
        )


class AccountView(APIView):
    @extend_schema(
        operation_id="delete_account",
        request=PasswordConfirmation,
        responses={200: DeletionStatement, **problems(400, 401, 413, 415, 429, 503)},
    )
    def delete(self, request: Request) -> Response:
        """Remove the account and everything said or stored in it, for good. The answer is what is left: keep it."""
        user = person_of(request)
        confirmation = validate(PasswordConfirmation, request.data)
        rate_limits.take_for_password(user.get_username(), address=rate_limits.client_address(request))
        if not user.check_password(confirmation.password):
            raise InvalidInput("The password is not right.", errors={"password": ["This is not your password."]})
        return Response(deleting.delete_account(user=user).as_data())
