"""`/api/v1/account/`: leaving for good."""

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from intake import deleting
from intake.errors import InvalidInput
from intake.models import User
from intake.rest.shapes import PasswordConfirmation
from intake.schemas import problems
from intake.validation import validate


class AccountView(APIView):
    @extend_schema(
        operation_id="delete_account",
        request=PasswordConfirmation,
        responses={204: None, **problems(400, 401, 413, 415, 429, 503)},
    )
    def delete(self, request: Request) -> Response:
        """Remove the account and everything said or stored in it, for good."""
        user = request.user
        assert isinstance(user, User), "the permission classes let nobody else in"  # noqa: S101
        confirmation = validate(PasswordConfirmation, request.data)
        if not user.check_password(confirmation.password):
            raise InvalidInput("The password is not right.", errors={"password": ["This is not your password."]})
        deleting.delete_account(user=user)
        return Response(status=204)
